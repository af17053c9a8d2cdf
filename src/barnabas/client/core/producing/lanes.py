"""The queues of batches, by topic and partition, and what waits for all of them to be acknowledged."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from barnabas.base.ids import TopicPartition
from barnabas.client._kernel.sending import Lane

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.client.core.producing.batch import ProducerBatch


class PartitionQueue:
    """The batches of one partition, oldest first."""

    __slots__ = ("batches", "lane", "partition")

    def __init__(self, lane: TopicLane, partition: TopicPartition) -> None:
        self.lane = lane
        self.partition = partition
        self.batches: deque[ProducerBatch] = deque()

    @property
    def is_full(self) -> bool:
        """Whether the next record needs a new batch, as far as one can tell."""
        return not self.batches or self.batches[-1].is_full


class TopicLane(Lane):
    """The partitions of one topic (Kafka: RecordAccumulator.TopicInfo).

    What `send` reads of it lies in the kernel; the queues are for the slow side.
    """

    __slots__ = ("queues",)

    def __init__(self, topic: str, switch_bytes: int) -> None:
        super().__init__(topic, switch_bytes)
        self.queues: list[PartitionQueue] = []

    def fit(self, partition_count: int) -> None:
        """Take on the topic's partitions. One that has fewer than before was made anew: what is queued for those that
        are gone finds no leader, and expires."""
        self.make_queues(partition_count)
        self.resize(partition_count)

    def make_queues(self, partition_count: int) -> None:
        for number in range(len(self.queues), partition_count):
            self.queues.append(PartitionQueue(self, TopicPartition(self.topic, number)))


class Flush:
    """Everything that was not acknowledged when a flush began. `on_done` is called once, when all of it is."""

    __slots__ = ("_left", "_on_done", "is_ended")

    def __init__(self, on_done: Callable[[], object]) -> None:
        self._left = 1
        self._on_done = on_done
        self.is_ended = False

    @property
    def is_done(self) -> bool:
        return self._left == 0

    def watch(self, batches: Iterable[ProducerBatch]) -> None:
        for batch in batches:
            self._left += 1
            batch.delivery.when_done(self._one_done)
        self._one_done()

    def _one_done(self) -> None:
        self._left -= 1
        if not self._left:
            self._on_done()
