"""A group service over a log in memory, on a loop with virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping
from random import Random
from types import MappingProxyType, SimpleNamespace
from typing import Any

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.base.persistent_map import PersistentMap
from barnabas.base.runtime import Runtime
from barnabas.broker.context import RequestContext
from barnabas.broker.groups.group_coordinator import GroupCoordinatorService
from barnabas.broker.services import MetadataCache
from barnabas.broker.settings import BrokerSettings
from barnabas.metadata.authorizer import AllowEverything
from barnabas.metadata.delta import ClusterDelta
from barnabas.metadata.image import BrokerEndpointImage, BrokerImage, ClusterImage, PartitionImage, TopicImage
from barnabas.metadata.topic_names import CONSUMER_OFFSETS
from barnabas.records.batch import BatchView
from barnabas.storage.errors import LogError
from barnabas.testing.sim.loop import VirtualTimeLoop
from barnabas.testing.sim.runtime import SimulatedRuntime
from barnabas.wire.apis import ApiKey
from tests.broker.connections import FakeConnection, call, context_of, over_the_wire
from tests.metadata.images import topics_image

NODE_ID = 1


class MemoryLog:
    """A `PartitionWriter`. `commits_at_once` says whether followers are quick; `failure` lets appends fail."""

    def __init__(self) -> None:
        self.batches: dict[TopicPartition, list[bytes]] = {}
        self.commits_at_once = True
        self.failure: ErrorCode | None = None
        self.waits: list[tuple[int, asyncio.Future[ErrorCode]]] = []
        self.load_failure: LogError | None = None
        #: Partitions of which followers have not told yet how much of what earlier leaders wrote they have.
        self.behind: dict[TopicPartition, asyncio.Event] = {}

    def append_as_coordinator(self, partition: TopicPartition, batch: bytearray, now_ms: int) -> int:
        if self.failure is not None:
            raise LogError(self.failure, f"{partition}: told to fail")
        batches = self.batches.setdefault(partition, [])
        base_offset = BatchView(batches[-1]).next_offset if batches else 0
        view = BatchView(batch)
        view.stamp(base_offset=base_offset, leader_epoch=0)
        batches.append(bytes(batch))
        return view.next_offset

    def append_in_transaction(
        self, partition: TopicPartition, batch: bytearray, guard: object, now_ms: int, transaction_version: int
    ) -> int:
        return self.append_as_coordinator(partition, batch, now_ms)

    def wait_for_high_watermark(self, partition: TopicPartition, offset: int, timeout_ms: int) -> Awaitable[ErrorCode]:
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[ErrorCode] = loop.create_future()
        if self.commits_at_once:
            outcome.set_result(ErrorCode.NONE)
        else:
            self.waits.append((offset, outcome))
            loop.call_later(timeout_ms / 1000, lambda: settle(outcome, ErrorCode.REQUEST_TIMED_OUT))
        return outcome

    def advance(self) -> None:
        """The followers have caught up."""
        waits, self.waits = self.waits, []
        for _, outcome in reversed(waits):
            settle(outcome, ErrorCode.NONE)

    async def until_readable(self, partition: TopicPartition) -> ErrorCode:
        if partition in self.behind:
            await self.behind[partition].wait()
        return ErrorCode.NONE

    async def read_all(self, partition: TopicPartition, max_bytes: int, runtime: Runtime) -> AsyncIterator[bytes]:
        if self.load_failure is not None:
            raise self.load_failure
        for each in self.batches.get(partition, []):
            yield each

    @property
    def batch_count(self) -> int:
        return sum(map(len, self.batches.values()))


def settle(future: asyncio.Future[ErrorCode], outcome: ErrorCode) -> None:
    if not future.done():
        future.set_result(outcome)


def image_of(topics: Mapping[str, int], leader: int = NODE_ID, epoch: int = 0) -> ClusterImage:
    """A cluster of one broker with topics of so many partitions."""
    images = [
        TopicImage(
            name,
            Uuid(name.encode()[:16].rjust(16, b"\x01")),
            tuple(PartitionImage((leader,), (leader,), leader, epoch, epoch) for _ in range(count)),
        )
        for name, count in topics.items()
    ]
    endpoint = BrokerEndpointImage("PLAINTEXT", "127.0.0.1", 9092, 0)
    broker = BrokerImage(NODE_ID, 1, Uuid.ZERO, (endpoint,), MappingProxyType({}), None, False, False)
    return ClusterImage(
        brokers=PersistentMap({NODE_ID: broker}),
        topics=topics_image(images),
    )


class ServiceBench:
    """The service and what handlers need beside it."""

    def __init__(self, loop: VirtualTimeLoop, log: MemoryLog, **settings: Any) -> None:
        node = {
            "node.id": NODE_ID,
            "process.roles": "broker,controller",
            "controller.listener.names": "CONTROLLER",
            "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:9093",
        }
        self.settings = BrokerSettings.load(node, **({"group_initial_rebalance_delay_ms": 0} | settings))
        self.log = log
        self.runtime = SimulatedRuntime(loop, Random(7))
        self.groups = GroupCoordinatorService(self.settings, self.runtime, NODE_ID, log)
        self.groups.start()
        self.metadata = MetadataCache()
        self.to_create: list[str] = []
        self.services: Any = SimpleNamespace(
            node_id=1,
            groups=self.groups,
            metadata=self.metadata,
            settings=self.settings,
            authorizer=AllowEverything(),
            auto_topic_creation=SimpleNamespace(create_topics=lambda names, _: self.to_create.extend(names)),
        )

    def apply(self, image: ClusterImage, **delta: Any) -> None:
        self.metadata.image = image
        changed = tuple(
            TopicPartition(name, index)
            for name, topic in image.topics.items()
            for index in range(len(topic.partitions))
        )
        self.groups.apply(image, ClusterDelta(**({"partitions_changed": changed} | delta)))

    async def start(self, partitions: int = 2, **topics: int) -> None:
        self.apply(image_of({CONSUMER_OFFSETS: partitions, **topics}))
        # Loading takes a few milliseconds of virtual time for each partition.
        await asyncio.sleep(partitions * 0.1)
        assert not any(isinstance(each, ErrorCode) for each in self.groups.list_groups([], []))

    def context(self, key: ApiKey, version: int, client_id: str = "app") -> RequestContext:
        return context_of(key, version, FakeConnection(), client_id)

    async def call(self, handler: Any, request: Any, version: int) -> Any:
        """Ask a handler as the router does; the answer went over the wire."""
        context = self.context(handler.API_KEY, version)
        answer = call(handler, self.services, context, over_the_wire(request, version), FakeConnection())
        while isinstance(answer, asyncio.Future):
            answer = await answer
        return over_the_wire(answer, version)
