"""Leaders that move and replicas nearby, with brokers that a test plays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.client.consumer.fetcher import Fetcher
from barnabas.client.core.cluster_view import ClusterView, Node, PartitionInfo, TopicView
from barnabas.client.core.consuming.offsets import EARLIEST, OffsetAndMetadata
from barnabas.client.core.consuming.subscription import Subscription
from barnabas.client.settings import ConsumerSettings
from barnabas.net.errors import DisconnectedError
from barnabas.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from barnabas.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from tests.client.consumer.reading_world import Reader
from tests.client.core.consuming.logs import T0, batch
from tests.virtual_time import clock, on_virtual_time

TOPIC_ID = Uuid(bytes(15) + b"t")


class Brokers:
    """Stands in for the network: fetches wait here until the test answers them."""

    def __init__(self) -> None:
        self.fetches: asyncio.Queue[tuple[int, FetchRequest, Callable[[Any], None]]] = asyncio.Queue()
        self.epochs_asked: list[tuple[int, int]] = []
        self.epoch_end = (0, 10**6)
        self.listeners: list[Callable[[ClusterView], None]] = []
        self.updates_wanted = 0
        self.metadata = SimpleNamespace(request_update=self.want_update, leader_hints=self.take_hints)
        nodes = {number: Node(number, "host", number) for number in (1, 2, 3)}
        self.view = ClusterView(1, nodes=nodes)
        self.lead(1, 0)

    def lead(self, leader: int, epoch: int) -> None:
        topic = TopicView("clicks", TOPIC_ID, partitions=(PartitionInfo("clicks", 0, leader, epoch),))
        self.view = ClusterView(self.view.version + 1, nodes=self.view.nodes, topics=[topic])
        for listener in self.listeners:
            listener(self.view)

    def want_update(self) -> None:
        self.updates_wanted += 1

    def take_hints(self, hints: list[tuple[TopicPartition, int, int]], endpoints: list[Node]) -> int:
        ((_, leader, epoch),) = hints
        assert leader in {node.node_id for node in endpoints}
        self.lead(leader, epoch)
        return 1

    def on_update(self, callback: Callable[[ClusterView], None]) -> None:
        self.listeners.append(callback)

    def on_ready(self, callback: Callable[[int], None]) -> None:
        pass

    def version_of(self, node_id: int, request: type) -> int:
        return 17 if request is FetchRequest else 4

    def is_connected(self, node_id: int) -> bool:
        return False

    def request_soon(self, node_id: int, message: Any, on_answer: Callable[[Any], None], *, version: int) -> None:
        self.fetches.put_nowait((node_id, message, on_answer))

    async def request(self, node_id: int, message: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        asked = message.topics[0].partitions[0]
        self.epochs_asked.append((node_id, asked.leader_epoch))
        epoch, end = self.epoch_end
        answer = EpochEndOffset(partition=0, leader_epoch=epoch, end_offset=end)
        return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic="clicks", partitions=[answer])])

    async def next_fetch(self) -> tuple[int, int, Callable[[Any], None]]:
        """Who is asked, from which offset (of the whole session or as it is told), and how to answer."""
        async with asyncio.timeout(5):
            node_id, message, answer = await self.fetches.get()
        offset = message.topics[0].partitions[0].fetch_offset if message.topics else -1
        return node_id, offset, answer


def response(
    records: bytes | bytearray = b"", *, code: int = 0, leader: tuple[int, int] | None = None, **fields: Any
) -> Any:
    data = PartitionData(
        partition_index=0,
        error_code=code,
        high_watermark=100,
        log_start_offset=0,
        records=memoryview(records),
        current_leader=None if leader is None else LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1]),
        **fields,
    )
    endpoints = [NodeEndpoint(node_id=number, host="host", port=number) for number in (1, 2, 3)]
    topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[data])
    return FetchResponse(session_id=0, responses=[topic], node_endpoints=endpoints)


class Scene:
    def __init__(self) -> None:
        self.brokers = Brokers()
        self.subscription = Subscription(EARLIEST)
        settings = ConsumerSettings(bootstrap_servers=("host:1",), retry_backoff_ms=1, client_rack="here")
        network: Any = self.brokers
        self.fetcher = Fetcher(network, self.subscription, settings, clock=clock(), randomness=Random(1))
        self.reader = Reader(network, self.subscription, self.fetcher)

    async def __aenter__(self) -> Scene:
        self.fetcher.start()
        self.subscription.assign([T0])
        self.subscription.seek(T0, OffsetAndMetadata(0, "", 0))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.fetcher.close()


@on_virtual_time
async def test_a_leader_that_is_named_is_asked_at_once_after_the_position_was_validated() -> None:
    async with Scene() as scene:
        brokers = scene.brokers
        node_id, offset, answer = await brokers.next_fetch()
        assert (node_id, offset) == (1, 0)
        answer(response(batch(0, [b"a", b"b"], epoch=0)))
        assert await scene.reader.values(2) == [b"a", b"b"]
        node_id, offset, answer = await brokers.next_fetch()
        assert (node_id, offset) == (1, 2)
        answer(response(code=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=(2, 1)))
        node_id, offset, answer = await brokers.next_fetch()
        assert (node_id, offset) == (2, 2)
        assert brokers.epochs_asked == [(1, 0), (2, 0)]
        answer(response(batch(2, [b"c"], epoch=1)))
        assert await scene.reader.values(1) == [b"c"]


@on_virtual_time
async def test_records_of_both_the_old_and_the_new_leader_are_read_once() -> None:
    async with Scene() as scene:
        brokers = scene.brokers
        _, _, old_answer = await brokers.next_fetch()
        brokers.lead(2, 1)
        node_id, offset, new_answer = await brokers.next_fetch()
        assert (node_id, offset) == (2, 0)
        new_answer(response(batch(0, [b"a"], epoch=0)))
        old_answer(response(batch(0, [b"a"], epoch=0)))
        assert await scene.reader.values(1) == [b"a"]
        await scene.reader.nothing(0.05)


@on_virtual_time
async def test_a_log_that_lost_its_end_with_its_leader_is_read_on_from_there() -> None:
    async with Scene() as scene:
        brokers = scene.brokers
        _, _, answer = await brokers.next_fetch()
        answer(response(batch(0, [b"a", b"b", b"lost"], epoch=0)))
        assert await scene.reader.values(3) == [b"a", b"b", b"lost"]
        _, _, answer = await brokers.next_fetch()
        brokers.epoch_end = (0, 2)
        brokers.lead(2, 1)
        answer(DisconnectedError("host:1", "it is gone"))
        node_id, offset, answer = await brokers.next_fetch()
        assert (node_id, offset) == (2, 2)
        answer(response(batch(2, [b"other"], epoch=1)))
        assert await scene.reader.values(1) == [b"other"]


@on_virtual_time
async def test_the_replica_nearby_is_read_until_it_fails() -> None:
    async with Scene() as scene:
        brokers = scene.brokers
        node_id, _, answer = await brokers.next_fetch()
        assert node_id == 1
        answer(response(preferred_read_replica=3))
        node_id, offset, answer = await brokers.next_fetch()
        assert (node_id, offset) == (3, 0)
        answer(response(batch(0, [b"a"])))
        node_id, offset, answer = await brokers.next_fetch()
        assert (node_id, offset) == (3, 1)
        answer(DisconnectedError("host:3", "it is gone"))
        node_id, offset, answer = await brokers.next_fetch()
        assert (node_id, offset) == (1, 1)
        assert brokers.updates_wanted >= 1
        assert await scene.reader.values(1) == [b"a"]


@on_virtual_time
async def test_a_partition_without_a_leader_is_read_again_when_it_has_one() -> None:
    async with Scene() as scene:
        brokers = scene.brokers
        _, _, answer = await brokers.next_fetch()
        brokers.lead(-1, 1)
        answer(response(code=ErrorCode.NOT_LEADER_OR_FOLLOWER))
        await scene.reader.nothing(0.05)
        assert brokers.fetches.empty()
        brokers.lead(3, 2)
        node_id, offset, answer = await brokers.next_fetch()
        assert (node_id, offset) == (3, 0)
        answer(response(batch(0, [b"a"])))
        assert await scene.reader.values(1) == [b"a"]
