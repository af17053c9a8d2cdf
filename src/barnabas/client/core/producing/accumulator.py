"""Records on their way out: a queue of batches for each partition, filled by `send` and emptied by the sender.

Two sides meet here, perhaps on two threads. The append side opens batches and hands them to the lanes, from where the
compiled `send` fills them without asking anybody. The send side closes batches and takes them away. Both hold the lock
that was handed in (one that a thread may take twice) while they change queues; between opening and closing, a batch
belongs to whoever has the interpreter.

Non-obvious things that must hold:

1. A batch is in `_incomplete`, and holds its memory, from its opening until `release`, wherever it is meanwhile.
2. Only the last batch of a queue is open. Another one behind it closes it first: so batches leave in the order in which
   their records came.
3. Callbacks of the program never run under the lock: they may call `send`.
4. The lock lets its own thread in again: a signal handler, or a `__del__` that runs in a collection of garbage, may
   `send` while queues are walked through. So walks are over copies, and what is half done adds up at any moment.
5. A batch counts as `batch.size` what its records take before compression. (Java guesses how well they will compress.)
6. What a batch holds of the memory is what it may grow to without asking again (`limit_bytes`): it is asked for first,
   and never waited for.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from barnabas.base.ids import TopicPartition
from barnabas.client.core.producing.batch import BATCH_HEAD_BYTES, ProducerBatch
from barnabas.client.core.producing.filling import ANY_PARTITION, AccumulatorSettings, AppendSide
from barnabas.client.core.producing.lanes import Flush, PartitionQueue
from barnabas.net.backoff import grown
from barnabas.records.batch import MAX_SEQUENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable
    from contextlib import AbstractContextManager
    from random import Random

    from barnabas.client._kernel.sending import Home
    from barnabas.client.core.cluster_view import ClusterView
    from barnabas.client.core.producing.buffer_pool import BufferPool

__all__ = ["ANY_PARTITION", "NEVER_MS", "Accumulator", "AccumulatorSettings", "Ready"]

NEVER_MS: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Ready:
    """Whom there is something to send to now."""

    #: The nodes that lead a partition with a batch to send, in the order in which they were found.
    nodes: list[int]
    #: In how many milliseconds the next batch will be ready if nothing else happens; `NEVER_MS` if none waits.
    next_check_ms: int
    #: Topics with a batch for a partition whose leader is not known.
    unknown_leader_topics: list[str]


class Accumulator(AppendSide):
    """See the head of this file. `lock` guards everything here: an `RLock`, or nothing if one thread does it all."""

    def __init__(
        self,
        settings: AccumulatorSettings,
        pool: BufferPool,
        *,
        randomness: Random,
        lock: AbstractContextManager[Any],
        home: Home | None = None,
        on_work: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(settings, pool, randomness=randomness, lock=lock, home=home, on_work=on_work)
        self._muted: set[TopicPartition] = set()
        self._next_in_turn: dict[int, TopicPartition] = {}
        self._flush_count = 0
        #: A transaction is to end, and nothing shall linger.
        self.is_completing = False

    def ready(self, view: ClusterView, now_ms: int, asked_nodes: Container[int] = ()) -> Ready:
        """Which nodes lead a partition whose first batch is to be sent now.

        A batch is to be sent when it is full or has another behind it, when it has waited for linger.ms, or at once
        while memory is short, somebody flushes, a transaction is to end, or the producer closes; but not while its
        partition is muted, nor before its `retry_at_ms`. One that has grown past batch.size counts as full, unless its
        node is among the `asked_nodes`, who have yet to answer: it gets larger until they do, or linger.ms is over.
        """
        nodes: dict[int, None] = {}
        unknown: dict[str, None] = {}
        next_check_ms = NEVER_MS
        with self.lock:
            all_sendable = self._is_closed or self.is_completing or self._flush_count > 0 or self.pool.waiter_count > 0
            for partition, queue in list(self._busy.items()):
                leader = view.leader_of(partition)
                if leader is None:
                    unknown[partition.topic] = None
                    continue
                if partition in self._muted or leader.node_id in nodes:
                    continue
                batch = queue.batches[0]
                batch.note_leader_epoch(view.leader_epoch(partition))
                if batch.is_backing_off(now_ms):
                    next_check_ms = min(next_check_ms, batch.retry_at_ms - now_ms)
                    continue
                left_ms = batch.queued_ms + self.settings.linger_ms - now_ms
                is_full = batch.is_full or (batch.is_grown and leader.node_id not in asked_nodes)
                if all_sendable or left_ms <= 0 or len(queue.batches) > 1 or is_full:
                    nodes[leader.node_id] = None
                else:
                    next_check_ms = min(next_check_ms, left_ms)
        return Ready(list(nodes), next_check_ms, list(unknown))

    def note_node(self, node_id: int, now_ms: int, can_drain: bool) -> None:
        """A node was among the ready ones, and could be sent to or not: for partitioner.availability.timeout.ms."""
        self._delays.note(node_id, now_ms, can_drain)

    def drain(
        self,
        view: ClusterView,
        node_ids: Iterable[int],
        max_request_bytes: int,
        now_ms: int,
        may_send: Callable[[ProducerBatch], bool] = lambda _: True,
    ) -> dict[int, list[ProducerBatch]]:
        """Take the batches of the next request to each node: closed, and at most one of a partition.

        Partitions that are muted, or whose first batch waits for another attempt or is refused by `may_send`, are
        passed over. Every request begins where the one before had no room left, so that no partition starves.
        `may_send` runs under the lock. Nodes without a batch are left out of the answer.
        """
        by_node: dict[int, list[TopicPartition]] = {node_id: [] for node_id in node_ids}
        drained: dict[int, list[ProducerBatch]] = {}
        with self.lock:
            for partition in list(self._busy):
                leader = view.leader_of(partition)
                if leader is not None and leader.node_id in by_node:
                    by_node[leader.node_id].append(partition)
            for node_id, partitions in by_node.items():
                batches = self._drain_node(node_id, sorted(partitions), max_request_bytes, now_ms, may_send, view)
                if batches:
                    drained[node_id] = batches
        return drained

    def _drain_node(
        self,
        node_id: int,
        partitions: list[TopicPartition],
        max_request_bytes: int,
        now_ms: int,
        may_send: Callable[[ProducerBatch], bool],
        view: ClusterView,
    ) -> list[ProducerBatch]:
        if not partitions:
            return []
        batches: list[ProducerBatch] = []
        size_bytes = 0
        start = bisect_left(partitions, self._next_in_turn.get(node_id, partitions[0])) % len(partitions)
        self._next_in_turn[node_id] = partitions[(start + 1) % len(partitions)]
        for partition in partitions[start:] + partitions[:start]:
            if partition in self._muted:
                continue
            first = self._busy[partition].batches[0]
            first.note_leader_epoch(view.leader_epoch(partition))
            if first.is_backing_off(now_ms):
                continue
            if batches and size_bytes + first.size_bytes > max_request_bytes:
                self._next_in_turn[node_id] = partition
                break
            if not may_send(first):
                continue
            batches.append(self._take_first(partition, now_ms))
            size_bytes += first.size_bytes
        return batches

    def _take_first(self, partition: TopicPartition, now_ms: int) -> ProducerBatch:
        queue = self._busy[partition]
        batch = queue.batches.popleft()
        self._left_queue(queue, batch)
        batch.drained_ms = now_ms
        return batch

    def _left_queue(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        batch.close()
        if not queue.batches:
            del self._busy[queue.partition]
            queue.lane.set_room(queue.partition.partition, None)

    def reenqueue(self, batch: ProducerBatch, now_ms: int) -> None:
        """Put a batch back that has to be sent again: one more attempt, after a wait that grows with their number.

        Batches with sequences stay in the order of those; without, it becomes the first.
        """
        with self.lock:
            wait_ms = grown(
                self.settings.retry_backoff_ms, self.settings.retry_backoff_max_ms, batch.attempts, self._randomness
            )
            batch.attempts += 1
            batch.retry_at_ms = now_ms + int(wait_ms)
            batch.queued_ms = now_ms
            self._insert(batch)

    def split_and_reenqueue(self, batch: ProducerBatch, now_ms: int) -> list[ProducerBatch]:
        """Put the records of a batch that a broker found too large back as smaller ones, which come back in order.

        They hold no memory of the pool, and are sent without a wait. The large batch still has to be released.
        """
        with self.lock:
            self._sizes.refused(batch.partition, batch.uncompressed_bytes)
            limit_bytes = self._batch_bytes()
            if batch.is_split or batch.uncompressed_bytes <= limit_bytes:
                # Less than batch.size is too large already, so no setting tells how small is small enough.
                limit_bytes = BATCH_HEAD_BYTES + (batch.uncompressed_bytes - BATCH_HEAD_BYTES) // 2
            parts = batch.split(limit_bytes)
            for part in reversed(parts):
                part.queued_ms = now_ms
                self._incomplete[part] = None
                self._insert(part)
        return parts

    def _insert(self, batch: ProducerBatch) -> None:
        number = batch.partition.partition
        lane = self._lane(batch.partition.topic)
        lane.make_queues(number + 1)
        queue = lane.queues[number]
        place = 0
        if batch.has_sequence:
            while place < len(queue.batches) and _comes_before(queue.batches[place], batch):
                place += 1
        queue.batches.insert(place, batch)
        self._busy[batch.partition] = queue

    def expired(self, now_ms: int) -> list[ProducerBatch]:
        """Take out the batches that were queued for longer than delivery.timeout.ms. The sender fails and frees them.

        Those on their way are the sender's to watch.
        """
        found: list[ProducerBatch] = []
        timeout_ms = self.settings.delivery_timeout_ms
        with self.lock:
            for queue in list(self._busy.values()):
                while queue.batches and queue.batches[0].has_timed_out(timeout_ms, now_ms):
                    found.append(queue.batches.popleft())
                    self._left_queue(queue, found[-1])
        return found

    def next_expiry_ms(self, now_ms: int) -> int:
        """In how many milliseconds the next queued batch expires; `NEVER_MS` if none is queued."""
        with self.lock:
            oldest_ms = min((queue.batches[0].created_ms for queue in list(self._busy.values())), default=None)
        return NEVER_MS if oldest_ms is None else max(0, oldest_ms + self.settings.delivery_timeout_ms - now_ms)

    def release(self, batch: ProducerBatch) -> None:
        """The batch is acknowledged, failed or split: give its memory back. Only the first call does anything."""
        with self.lock:
            if not batch.is_released:
                batch.is_released = True
                self._incomplete.pop(batch, None)
                self.pool.free(batch.reserved_bytes)

    def answered(self, batch: ProducerBatch, took_ms: int) -> None:
        """A broker answered for a batch, whatever it said."""
        with self.lock:
            self._sizes.answered(batch.partition, batch.uncompressed_bytes, took_ms)

    def unanswered(self, batch: ProducerBatch) -> None:
        """A batch was sent, and no answer came."""
        with self.lock:
            self._sizes.unanswered(batch.partition)

    def mute(self, partition: TopicPartition) -> None:
        """Send nothing of this partition until `unmute`: something of it is on its way, and order matters."""
        with self.lock:
            self._muted.add(partition)

    def unmute(self, partition: TopicPartition) -> None:
        with self.lock:
            self._muted.discard(partition)

    def queued(self, partition: TopicPartition) -> list[ProducerBatch]:
        """The batches that wait for one partition, in order."""
        with self.lock:
            queue = self._busy.get(partition)
            return list(queue.batches) if queue is not None else []

    @property
    def busy_partitions(self) -> list[TopicPartition]:
        """Those for which a batch waits."""
        return list(self._busy)

    def abort_undrained(self, error: Exception) -> list[ProducerBatch]:
        """Fail what was never sent, and give its memory back. What is to be sent again has numbers, and stays."""
        dropped: list[ProducerBatch] = []
        with self.lock:
            for queue in list(self._busy.values()):
                for batch in [each for each in queue.batches if not each.has_sequence]:
                    queue.batches.remove(batch)
                    dropped.append(batch)
                    self._left_queue(queue, batch)
        for batch in dropped:
            try:
                batch.delivery.fail(error)
            finally:
                self.release(batch)
        return dropped

    @property
    def has_queued(self) -> bool:
        """Whether a batch waits to be drained."""
        return bool(self._busy)

    @property
    def has_incomplete(self) -> bool:
        """Whether a record is neither acknowledged nor failed."""
        return bool(self._incomplete)

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def begin_flush(self, on_done: Callable[[], object] = lambda: None) -> Flush:
        """Make everything ready at once until `end_flush`. `on_done` is called when what is there now is done.

        Call it on the thread where deliveries are told; `on_done` is called there too, perhaps before this returns.
        """
        with self.lock:
            self._flush_count += 1
            flush, batches = Flush(on_done), list(self._incomplete)
        self.on_work()
        flush.watch(batches)
        return flush

    def end_flush(self, flush: Flush) -> None:
        with self.lock:
            if not flush.is_ended:
                flush.is_ended = True
                self._flush_count -= 1

    def close(self) -> None:
        """Take no record any more, and hold none back: all is ready at once. Whoever waits for memory is told."""
        with self.lock:
            self._is_closed = True
            for lane in list(self.lanes.values()):
                lane.is_open = False
            self.pool.close()
        self.on_work()

    def abort(self, error: Exception) -> None:
        """Fail everything that is not done, on its way or not, and give its memory back."""
        with self.lock:
            batches = list(self._incomplete)
            for queue in list(self._busy.values()):
                while queue.batches:
                    self._left_queue(queue, queue.batches.popleft())
        for batch in batches:
            batch.close()
            try:
                batch.delivery.fail(error)
            finally:
                self.release(batch)


def _comes_before(queued: ProducerBatch, batch: ProducerBatch) -> bool:
    """By sequence, which begins anew at 0 after the highest."""
    return queued.has_sequence and 0 < (batch.base_sequence - queued.base_sequence) & MAX_SEQUENCE <= MAX_SEQUENCE // 2
