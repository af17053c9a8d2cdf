"""A cluster that is only described, and a producer that never leaves it."""

from __future__ import annotations

import operator
import threading
from collections.abc import Mapping
from random import Random
from typing import Any

from barnabas.base.ids import TopicPartition
from barnabas.client._kernel.sending import AsyncSendPath, Home, SendFuture, SyncSendPath
from barnabas.client.core.cluster_view import ClusterView, Node, PartitionInfo, TopicView
from barnabas.client.core.producing.accumulator import Accumulator, AccumulatorSettings
from barnabas.client.core.producing.batch import ProducerBatch
from barnabas.client.core.producing.buffer_pool import BufferPool, MemoryWaiter
from barnabas.records import BatchView, Record

TOPIC = "castle"


def cluster(leaders: Mapping[str, list[int]], *, version: int = 1, epoch: int = 0) -> ClusterView:
    """A view in which each topic has one partition for each leader named; -1 for none."""
    node_ids = sorted({node_id for named in leaders.values() for node_id in named if node_id >= 0})
    topics = [
        TopicView(
            topic, partitions=tuple(PartitionInfo(topic, number, node, epoch) for number, node in enumerate(named))
        )
        for topic, named in leaders.items()
    ]
    return ClusterView(version, "c", None, {node_id: Node(node_id, "host", 9092) for node_id in node_ids}, topics)


def accumulator(*, memory_bytes: int = 1 << 20, home: Home | None = None, **settings: Any) -> Accumulator:
    settings.setdefault("batch_bytes", 1000)
    return Accumulator(
        AccumulatorSettings(**settings),
        BufferPool(memory_bytes, settings["batch_bytes"]),
        randomness=Random(7),
        lock=threading.RLock(),
        home=home,
    )


def put(
    target: Accumulator, partition: int, value: bytes = b"v", *, view: ClusterView, now_ms: int = 0, topic: str = TOPIC
) -> SendFuture:
    lane = target.lane(topic, view)
    assert lane is not None
    outcome = target.append(lane, partition, value, None, None, 1, None, now_ms)
    assert isinstance(outcome, SendFuture)
    return outcome


def records_of(batch: ProducerBatch) -> list[Record]:
    return list(BatchView(batch.encoded()))


def drained(target: Accumulator, view: ClusterView, now_ms: int = 0) -> list[ProducerBatch]:
    """Everything that can be sent, request after request."""
    found: list[ProducerBatch] = []
    while batches := target.drain(view, list(view.nodes), 1 << 20, now_ms):
        found.extend(batch for node_id in batches for batch in batches[node_id])
    return found


def by_partition(batches: list[ProducerBatch]) -> dict[TopicPartition, list[bytes | None]]:
    found: dict[TopicPartition, list[bytes | None]] = {}
    for batch in batches:
        found.setdefault(batch.partition, []).extend(record.value for record in records_of(batch))
    return found


class SyncPath(SyncSendPath):
    """The slow ways of a producer whose metadata is always there. When memory is short it says so."""

    def __init__(self, target: Accumulator, view: ClusterView, home: Home | None = None, **options: Any) -> None:
        options.setdefault("max_record_bytes", 1 << 20)
        super().__init__(target.lanes, home or target.home or Home(), **options)
        self.target = target
        self.view = view
        self.slow_sends: list[str] = []
        self.slow_appends: list[int] = []

    def _send_slowly(
        self, topic: str, value: Any, key: Any, headers: Any, partition: Any, timestamp_ms: Any, on_delivery: Any
    ) -> SendFuture:
        self.slow_sends.append(topic)
        lane = self.target.lane(topic, self.view)
        if lane is None or not self.is_direct or len(self.slow_sends) > 1_000:
            raise LookupError(topic)
        if partition is not None and not 0 <= operator.index(partition) < lane.partition_count:
            raise LookupError(f"{topic}-{partition}")
        return self.send(
            topic, value, key, headers=headers, partition=partition, timestamp_ms=timestamp_ms, on_delivery=on_delivery
        )

    def _append_slowly(
        self, lane: Any, partition: int, value: Any, key: Any, headers: Any, timestamp_ms: int, on_delivery: Any
    ) -> SendFuture:
        self.slow_appends.append(partition)
        outcome = self.target.append(lane, partition, value, key, headers, timestamp_ms, on_delivery, 0)
        if isinstance(outcome, MemoryWaiter):
            self.target.give_up(outcome)
            raise MemoryError("no room")
        return outcome


class AsyncPath(AsyncSendPath):
    def __init__(self, target: Accumulator, view: ClusterView) -> None:
        super().__init__(target.lanes, target.home or Home(), max_record_bytes=1 << 20)
        self.target = target
        self.view = view
        self.slow_count = 0

    async def _send_slowly(
        self, topic: str, value: Any, key: Any, headers: Any, partition: Any, timestamp_ms: Any, on_delivery: Any
    ) -> SendFuture:
        assert self.target.lane(topic, self.view) is not None
        return await self.send(topic, value, key, partition=partition, timestamp_ms=timestamp_ms)

    async def _append_slowly(
        self, lane: Any, partition: int, value: Any, key: Any, headers: Any, timestamp_ms: int, on_delivery: Any
    ) -> SendFuture:
        self.slow_count += 1
        outcome = self.target.append(lane, partition, value, key, headers, timestamp_ms, on_delivery, 0)
        assert isinstance(outcome, SendFuture)
        return outcome
