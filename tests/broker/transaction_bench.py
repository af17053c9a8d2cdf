"""A transaction service over a log in memory, and brokers that take markers, on a loop with virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from itertools import count
from random import Random
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.base.persistent_map import PersistentMap
from barnabas.broker.data.producer_ids import ProducerIdPool
from barnabas.broker.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
)
from barnabas.broker.services import MetadataCache
from barnabas.broker.settings import BrokerSettings
from barnabas.broker.transactions.marker_sender import MarkerSender
from barnabas.broker.transactions.transaction_coordinator import TransactionCoordinatorService
from barnabas.metadata.authorizer import AllowEverything
from barnabas.metadata.delta import ClusterDelta
from barnabas.metadata.features import TRANSACTION_VERSION
from barnabas.metadata.image import BrokerImage, ClusterImage, FeaturesImage
from barnabas.metadata.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.net.errors import ConnectError
from barnabas.testing.sim.loop import VirtualTimeLoop
from barnabas.testing.sim.runtime import SimulatedRuntime
from barnabas.wire.message import Request
from barnabas.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from barnabas.wire.messages.allocate_producer_ids import AllocateProducerIdsResponse
from barnabas.wire.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.wire.messages.end_txn import EndTxnRequest
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.messages.list_transactions import ListTransactionsRequest
from barnabas.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.broker.connections import FakeConnection, call, context_of, over_the_wire
from tests.broker.group_bench import NODE_ID, MemoryLog, image_of
from tests.virtual_time import virtual_loop

Story = Callable[["TransactionBench"], Coroutine[Any, Any, None]]


class FakeBrokers:
    """Takes markers for partitions, and says of each what it is told to."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, WriteTxnMarkersRequest]] = []
        #: What the next requests meet, before all are taken: an error for all partitions, or no connection.
        self.troubles: list[ErrorCode | None] = []
        self.errors: dict[TopicPartition, ErrorCode] = {}

    async def send(self, broker_id: int, request: Request, *, timeout_ms: int) -> WriteTxnMarkersResponse:
        asked = over_the_wire(request, 2)
        assert isinstance(asked, WriteTxnMarkersRequest)
        self.requests.append((broker_id, asked))
        await asyncio.sleep(0.001)
        trouble = self.troubles.pop(0) if self.troubles else ErrorCode.NONE
        if trouble is None:
            raise ConnectError(f"broker {broker_id}", "told to fail")
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=index,
                                    error_code=trouble or self.errors.get(TopicPartition(topic.name, index), 0),
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in asked.markers
            ]
        )

    @property
    def taken(self) -> list[tuple[int, int, bool, str, int]]:
        """Broker, epoch, whether committed, topic and partition of all markers that came."""
        return [
            (broker_id, marker.producer_epoch, marker.transaction_result, topic.name, index)
            for broker_id, request in self.requests
            for marker in request.markers
            for topic in marker.topics
            for index in topic.partition_indexes
        ]


class TransactionBench:
    """The service and what handlers need beside it."""

    def __init__(self, loop: VirtualTimeLoop, log: MemoryLog, **settings: Any) -> None:
        node = {
            "node.id": NODE_ID,
            "process.roles": "broker,controller",
            "controller.listener.names": "CONTROLLER",
            "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:9093",
        }
        self.settings = BrokerSettings.load(node, **settings)
        self.log = log
        self.runtime = SimulatedRuntime(loop, Random(7))
        self.metadata = MetadataCache()
        self.brokers = FakeBrokers()
        self._blocks = count(1000, 1000)
        self.producer_ids = ProducerIdPool(cast(Any, self), NODE_ID, lambda: 7)
        markers = MarkerSender(self.brokers, lambda: self.metadata.image, 30_000)
        self.transactions = TransactionCoordinatorService(
            self.settings, self.runtime, NODE_ID, log, self.producer_ids.take, markers
        )
        self.transactions.start()
        self.services: Any = SimpleNamespace(
            transactions=self.transactions,
            groups=SimpleNamespace(partition_for=lambda group_id: 3),
            producer_ids=self.producer_ids,
            metadata=self.metadata,
            settings=self.settings,
            authorizer=AllowEverything(),
        )

    async def submit(self, *_: Any) -> AllocateProducerIdsResponse:
        """As the controller, which gives out producer ids."""
        await asyncio.sleep(0.001)
        return AllocateProducerIdsResponse(producer_id_start=next(self._blocks), producer_id_len=1000)

    def apply(self, image: ClusterImage, **delta: Any) -> None:
        self.metadata.image = image
        changed = tuple(
            TopicPartition(name, index)
            for name, topic in image.topics.items()
            for index in range(len(topic.partitions))
        )
        news: dict[str, Any] = {"partitions_changed": changed, "features_changed": True} | delta
        self.transactions.apply(image, ClusterDelta(**news))

    async def start(self, partitions: int = 2, version: int = 2, **topics: int) -> None:
        self.apply(image_at({TRANSACTION_STATE: partitions, CONSUMER_OFFSETS: 5, "t": 3, **topics}, version))
        await asyncio.sleep(partitions * 0.1)

    async def call(self, handler: Any, request: Any, version: int) -> Any:
        """Ask a handler as the router does; the answer went over the wire."""
        context = context_of(handler.API_KEY, version, FakeConnection(), "app")
        answer = call(handler, self.services, context, over_the_wire(request, version), FakeConnection())
        while isinstance(answer, asyncio.Future):
            answer = await answer
        return over_the_wire(answer, version)

    async def init(self, name: str, version: int = 5, timeout_ms: int = 60_000) -> tuple[ErrorCode, int, int]:
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
        answer = await self.call(init_producer_id, request, version)
        return ErrorCode.of(answer.error_code), answer.producer_id, answer.producer_epoch

    async def add(self, name: str, producer_id: int, epoch: int, **topics: list[int]) -> dict[str, list[ErrorCode]]:
        """As an older client does it."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=each, partitions=indexes) for each, indexes in topics.items()
            ],
        )
        answer = await self.call(add_partitions_to_txn, request, 3)
        return {
            topic.name: [ErrorCode.of(each.partition_error_code) for each in topic.results_by_partition]
            for topic in answer.results_by_topic_v3_and_below
        }

    async def add_offsets(self, name: str, producer_id: int, epoch: int) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id=name, producer_id=producer_id, producer_epoch=epoch, group_id="g"
        )
        return ErrorCode.of((await self.call(add_offsets_to_txn, request, 4)).error_code)

    async def end(
        self, name: str, producer_id: int, epoch: int, *, commit: bool = True, version: int = 5
    ) -> tuple[ErrorCode, int, int]:
        request = EndTxnRequest(transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=commit)
        answer = await self.call(end_txn, request, version)
        return ErrorCode.of(answer.error_code), answer.producer_id, answer.producer_epoch

    async def describe(self, *names: str) -> list[Any]:
        request = DescribeTransactionsRequest(transactional_ids=list(names))
        return list((await self.call(describe_transactions, request, 0)).transaction_states)

    async def state(self, name: str) -> str:
        return str((await self.describe(name))[0].transaction_state)

    async def list(self, **filters: Any) -> Any:
        request = ListTransactionsRequest(**({"state_filters": [], "producer_id_filters": []} | filters))
        return await self.call(list_transactions, request, 2)


def image_at(topics: Mapping[str, int], version: int = 2, *, leader: int = NODE_ID, epoch: int = 0) -> ClusterImage:
    """With a level of transaction.version, and another broker."""
    image = image_of(topics, leader, epoch)
    other = BrokerImage(2, 1, Uuid.ZERO, (), MappingProxyType({}), None, False, False)
    levels = {TRANSACTION_VERSION: version} if version else {}
    return replace(
        image, features=FeaturesImage(levels), brokers=PersistentMap({**dict(image.brokers.items()), 2: other})
    )


def play(story: Story, log: MemoryLog | None = None, **settings: Any) -> MemoryLog:
    """Run a story on virtual time; the log that it leaves can be given to the next."""
    log = log or MemoryLog()
    with virtual_loop(seed=None) as loop:

        async def whole() -> None:
            bench = TransactionBench(loop, log, **settings)
            try:
                await story(bench)
            finally:
                await bench.transactions.stop()
                bench.producer_ids.close()

        loop.run_until_complete(whole())
    return log
