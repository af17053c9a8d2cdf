"""The append side of the accumulator: records into batches, batches into queues and lanes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from barnabas.base.errors import InvariantError, check
from barnabas.client._kernel.sending import record_bound_bytes
from barnabas.client.core.producing.batch import BATCH_HEAD_BYTES, ProducerBatch
from barnabas.client.core.producing.batch_sizes import BatchSizes
from barnabas.client.core.producing.buffer_pool import MemoryWaiter
from barnabas.client.core.producing.lanes import PartitionQueue, TopicLane
from barnabas.client.core.producing.partitioners import NodeDelays, next_sticky_partition
from barnabas.client.errors import ClientClosedError, RecordTooLargeError
from barnabas.records import Codec

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from random import Random

    from barnabas.base.ids import TopicPartition
    from barnabas.client._kernel.sending import ArrowDelivery, Home, OnDelivery, RowGroups, SendFuture
    from barnabas.client.core.cluster_view import ClusterView
    from barnabas.client.core.producing.buffer_pool import BufferPool
    from barnabas.records._kernel.columns import RowColumns

ANY_PARTITION: Final = -1


@dataclass(frozen=True, slots=True)
class AccumulatorSettings:
    """What of the producer's settings matters here."""

    batch_bytes: int = 16_384
    #: How far batches may grow that have not left yet, and how large those of tables are from the start; 0 if
    #: batch.size was given, and is obeyed.
    largest_batch_bytes: int = 0
    linger_ms: int = 5
    delivery_timeout_ms: int = 120_000
    max_request_bytes: int = 1_048_576
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1000
    codec: Codec = Codec.NONE
    level: int | None = None
    is_adaptive: bool = True
    availability_timeout_ms: int = 0


class AppendSide:
    """Half of the `Accumulator`, which says what must hold. It never waits: who needs memory is given a waiter."""

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
        self.settings = settings
        self.pool = pool
        self.lock = lock
        self.home = home
        #: Called, without the lock, when the sender has something new to look at. The driver sets it.
        self.on_work = on_work
        #: What the compiled `send` looks topics up in.
        self.lanes: dict[str, TopicLane] = {}
        # No batch may have so much of the memory that others wait for it to be acknowledged.
        largest_bytes = min(settings.largest_batch_bytes, settings.max_request_bytes, pool.total_bytes // 4)
        self._sizes = BatchSizes(settings.batch_bytes, largest_bytes)
        self._randomness = randomness
        self._view: ClusterView | None = None
        #: The queues that are not empty, in the order in which they became so.
        self._busy: dict[TopicPartition, PartitionQueue] = {}
        self._incomplete: dict[ProducerBatch, None] = {}
        self._delays = NodeDelays(settings.availability_timeout_ms)
        self._is_closed = False
        # Raises why no record is taken at the moment; None as long as they are.
        self._gate: Callable[[], object] | None = None

    def set_gate(self, gate: Callable[[], object] | None) -> None:
        """Take no records any more until this is called with None; `gate` raises the reason.

        What was taken before counts as before. Nothing can slip in: a record is written only while its lane is open.
        """
        with self.lock:
            self._gate = gate
            for topic, lane in list(self.lanes.items()):
                lane.is_open = self._takes_records and bool(self._view and self._view.partition_count(topic))

    @property
    def _takes_records(self) -> bool:
        return not self._is_closed and self._gate is None

    def metadata_updated(self, view: ClusterView) -> None:
        """Fit the lanes to a new view of the cluster. Call it for every update.

        The lane of a topic that the view does not know is closed: the next record for it asks for metadata again.
        """
        with self.lock:
            self._view = view
            # Lanes stay for good: somebody who waits for memory may hold one, and a topic must not have two.
            for topic, lane in list(self.lanes.items()):
                count = view.partition_count(topic)
                if count:
                    lane.fit(count)
                lane.is_open = bool(count) and self._takes_records

    def lane(self, topic: str, view: ClusterView) -> TopicLane | None:
        """The lane of a topic, made if need be; None while the partitions of the topic are not known."""
        with self.lock:
            if self._view is None or view.version > self._view.version:
                self._view = view
            count = self._view.partition_count(topic)
            if not count:
                return None
            lane = self._lane(topic)
            lane.fit(count)
            lane.is_open = self._takes_records
            return lane

    def append(
        self,
        lane: TopicLane,
        partition: int,
        value: bytes | None,
        key: bytes | None,
        headers: Any,
        timestamp_ms: int,
        on_delivery: OnDelivery | None,
        now_ms: int,
        memory: MemoryWaiter | None = None,
    ) -> SendFuture | MemoryWaiter:
        """Put one record into the last batch of a partition, or into a new one.

        `partition` is `ANY_PARTITION` where the sticky partitioner is to choose. If there is no memory for a new batch
        a waiter comes back instead: wait for it (`MemoryWaiter.watch`), then call again with it as `memory`, or
        `give_up` when max.block.ms is over. Whatever comes back or is raised, memory that was handed in is the caller's
        no more.
        """
        is_work = is_waiting = False
        try:
            needed_bytes = record_bound_bytes(value, key, headers)
            self.check_size(needed_bytes)
            with self.lock:
                self.check_open()
                queue = self._queue_for(lane, partition)
                is_work = self._widen(queue, needed_bytes, now_ms)
                future = self._append_to_last(queue, partition, value, key, headers, timestamp_ms, on_delivery)
                if future is None and partition == ANY_PARTITION:
                    # Its last batch is full now: perhaps it is another partition's turn, where one is open.
                    before, queue = queue, self._queue_for(lane, partition)
                    if queue is not before:
                        is_work = True  # a batch is full: the sender should not wait until it has lingered
                        self._widen(queue, needed_bytes, now_ms)
                        future = self._append_to_last(queue, partition, value, key, headers, timestamp_ms, on_delivery)
                if future is not None:
                    return future
                if memory is None:
                    memory = MemoryWaiter(max(self._batch_bytes(), needed_bytes))
                    is_work = True
                    if not self.pool.ask(memory):
                        is_waiting = True
                        return memory
                batch = self._new_batch(queue, memory, now_ms)
                future = batch.append(value, key, timestamp_ms, headers, on_delivery)
                if future is None:
                    raise InvariantError(f"{batch} has no room for its first record")
                is_work = True
                self._open(queue, batch, memory)
                self._count(queue, partition, batch.uncompressed_bytes)
                return future
        except BaseException:
            is_waiting = False
            raise
        finally:
            try:
                self._leave(memory, is_work, is_waiting)
            except BaseException:
                self._leave(memory, is_work, False)
                raise

    def append_rows(
        self,
        lane: TopicLane,
        partition: int,
        rows: RowColumns,
        groups: RowGroups,
        group: int,
        done: int,
        delivery: ArrowDelivery,
        now_ms: int,
        memory: MemoryWaiter | None = None,
    ) -> int | MemoryWaiter:
        """Put rows of a group into one batch, the last one or a new one, and tell how many rows of it are sent then.

        `done` says how many were before. Memory is waited for as with `append`.
        """
        is_work = is_waiting = False
        try:
            with self.lock:
                self.check_open()
                queue = self._queue_for(lane, partition)
                is_work = self._widen(queue, groups.left_bytes(group, done), now_ms)
                sent = self._rows_to_last(queue, partition, rows, groups, group, done, delivery)
                if sent == done and partition == ANY_PARTITION:
                    before, queue = queue, self._queue_for(lane, partition)
                    if queue is not before:
                        is_work = True
                        sent = self._rows_to_last(queue, partition, rows, groups, group, done, delivery)
                if sent > done:
                    return sent
                if memory is None:
                    memory = MemoryWaiter(self._rows_bytes(queue.partition, groups, group, done))
                    is_work = True
                    if not self.pool.ask(memory):
                        is_waiting = True
                        return memory
                batch = self._new_batch(queue, memory, now_ms)
                sent, first_index = batch.append_rows(rows, groups, group, done)
                if sent == done:
                    raise InvariantError(f"{batch} has no room for its first row")
                is_work = True
                self._open(queue, batch, memory)
                delivery.add(batch.delivery, first_index, sent - done)
                self._count(queue, partition, batch.uncompressed_bytes)
                return sent
        except BaseException:
            is_waiting = False
            raise
        finally:
            try:
                self._leave(memory, is_work, is_waiting)
            except BaseException:
                self._leave(memory, is_work, False)
                raise

    def _leave(self, memory: MemoryWaiter | None, is_work: bool, is_waiting: bool) -> None:
        """End an append. May be done again, as Ctrl-C may come anywhere: memory must not be lost by it, nor a batch be
        open that the sender was not told of, where whatever came into it later would lie for long."""
        if memory is not None and not is_waiting and not memory.is_spent:
            self.give_up(memory)
        if is_work:
            self.on_work()

    def give_up(self, memory: MemoryWaiter) -> None:
        """Wait for this memory no longer. Does no harm if it was used or given up before."""
        with self.lock:
            self.pool.give_up(memory)

    def _lane(self, topic: str) -> TopicLane:
        lane = self.lanes.get(topic)
        if lane is None:
            lane = self.lanes[topic] = TopicLane(topic, self.settings.batch_bytes)
            lane.is_open = False
        return lane

    def _queue_for(self, lane: TopicLane, partition: int) -> PartitionQueue:
        """The queue of a partition, or of the one whose turn it is."""
        if partition != ANY_PARTITION:
            lane.make_queues(partition + 1)
            return lane.queues[partition]
        number = lane.sticky_partition
        if 0 <= number < lane.partition_count:
            queue = lane.queues[number]
            if lane.sticky_bytes < self.settings.batch_bytes or not queue.is_full:
                return queue
        if self._view is None:
            raise InvariantError("records came before metadata did")
        lengths = [len(queue.batches) for queue in lane.queues] if self.settings.is_adaptive else None
        number = next_sticky_partition(lane.topic, self._view, self._randomness, lengths, self._delays)
        lane.make_queues(number + 1)
        lane.sticky_partition = number
        lane.sticky_bytes = 0
        return lane.queues[number]

    def _widen(self, queue: PartitionQueue, needed_bytes: int, now_ms: int) -> bool:
        """Make room in the last batch of a queue for what would take `needed_bytes` alone in a batch, if it has none
        and may grow. Whether the sender has to know: the batch is to be sent from now on."""
        if not self._sizes.can_grow or not queue.batches or queue.batches[-1].is_closed:
            return False
        batch = queue.batches[-1]
        size_bytes = batch.builder.limit_bytes
        needed_bytes += batch.uncompressed_bytes - BATCH_HEAD_BYTES
        if needed_bytes <= size_bytes:
            return False
        grown_bytes = self._sizes.grown_bytes(queue.partition, size_bytes, needed_bytes, now_ms - batch.created_ms)
        if grown_bytes == size_bytes:
            return False
        memory = MemoryWaiter(grown_bytes - size_bytes)
        is_first = not batch.is_grown
        try:
            if not self.pool.take_at_once(memory):
                return False
            # There is no call among these: not even Ctrl-C can part them.
            batch.reserved_bytes += memory.size_bytes
            memory.is_spent = True
            batch.is_grown = True
        finally:
            self.pool.give_up(memory)
        batch.widen(grown_bytes)
        return is_first

    def _append_to_last(
        self,
        queue: PartitionQueue,
        partition: int,
        value: bytes | None,
        key: bytes | None,
        headers: Any,
        timestamp_ms: int,
        on_delivery: OnDelivery | None,
    ) -> SendFuture | None:
        if not queue.batches:
            return None
        batch = queue.batches[-1]
        before_bytes = batch.uncompressed_bytes
        future = batch.append(value, key, timestamp_ms, headers, on_delivery)
        if future is not None:
            self._count(queue, partition, batch.uncompressed_bytes - before_bytes)
        return future

    def _rows_to_last(
        self,
        queue: PartitionQueue,
        partition: int,
        rows: RowColumns,
        groups: RowGroups,
        group: int,
        done: int,
        delivery: ArrowDelivery,
    ) -> int:
        if not queue.batches:
            return done
        batch = queue.batches[-1]
        before_bytes = batch.uncompressed_bytes
        sent, first_index = batch.append_rows(rows, groups, group, done)
        if sent > done:
            delivery.add(batch.delivery, first_index, sent - done)
            self._count(queue, partition, batch.uncompressed_bytes - before_bytes)
        return sent

    def _count(self, queue: PartitionQueue, partition: int, added_bytes: int) -> None:
        """Half of the rule by which the sticky partition changes; the other half is in `_queue_for`.

        It changes between batches once a batch's worth is sent, and after twice that in any case.
        """
        lane = queue.lane
        if partition == ANY_PARTITION and lane.sticky_partition == queue.partition.partition:
            lane.sticky_bytes += added_bytes
            if lane.sticky_bytes >= 2 * self.settings.batch_bytes:
                lane.sticky_partition = ANY_PARTITION

    def _new_batch(self, queue: PartitionQueue, memory: MemoryWaiter, now_ms: int) -> ProducerBatch:
        check(memory.is_ready and not memory.is_spent, "this waiter has no memory")
        return ProducerBatch(
            queue.partition,
            memory.size_bytes,
            now_ms,
            home=self.home,
            codec=self.settings.codec,
            level=self.settings.level,
            reserved_bytes=memory.size_bytes,
        )

    def _open(self, queue: PartitionQueue, batch: ProducerBatch, memory: MemoryWaiter) -> None:
        """Show a batch to everybody: its first record is in, so that it cannot be filled up before, nor be empty."""
        # There is no call among these: not even Ctrl-C can part them.
        self._incomplete[batch] = None
        memory.is_spent = True
        self._busy[queue.partition] = queue
        queue.batches += (batch,)
        if len(queue.batches) > 1:
            queue.batches[-2].close()
        queue.lane.set_room(queue.partition.partition, batch)

    def _batch_bytes(self) -> int:
        return max(BATCH_HEAD_BYTES, min(self.settings.batch_bytes, self.pool.total_bytes))

    def _rows_bytes(self, partition: TopicPartition, groups: RowGroups, group: int, done: int) -> int:
        wanted_bytes = min(groups.left_bytes(group, done), self._sizes.largest_bytes(partition))
        allowed_bytes = max(BATCH_HEAD_BYTES, self.settings.max_request_bytes)
        return max(groups.row_bytes(group, done), min(max(wanted_bytes, self._batch_bytes()), allowed_bytes))

    def check_size(self, needed_bytes: int, what: str = "a record") -> None:
        """Refuse what no request could carry, or no memory hold."""
        for name, limit_bytes in (
            ("max.request.size", self.settings.max_request_bytes),
            ("buffer.memory", self.pool.total_bytes),
        ):
            if needed_bytes > limit_bytes:
                raise RecordTooLargeError(
                    f"{what} takes {needed_bytes} bytes with the header of a batch, and {name} allows {limit_bytes}: "
                    f"send smaller records, or raise {name} (and what the broker allows: message.max.bytes)"
                )

    def check_open(self) -> None:
        """Raise if no record is taken now."""
        if self._is_closed:
            raise ClientClosedError("the producer is closed")
        gate = self._gate
        if gate is not None:
            gate()
            if self._gate is gate:
                raise InvariantError("no records are taken, and nobody says why")
