"""Runs one shard of the group coordinator: loads it, writes its records, and answers its requests.

Tokens are futures. What operations of one turn of the event loop stage goes into one batch, so many small commits cost
one append. Answers wait until the high watermark has passed their records.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from typing import Any, Final, TypeVar

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.base.runtime import Clock, Runtime
from barnabas.broker.settings import BrokerSettings
from barnabas.coordinator.effects import Now, Write, append_error
from barnabas.coordinator.shard import GroupShard
from barnabas.coordinator.state import GroupLimits
from barnabas.coordinator.writer import PartitionWriter
from barnabas.records.batch import HEADER
from barnabas.records.builder import BatchBuilder
from barnabas.records.compression import Codec

_log = logging.getLogger("barnabas.groups")

T = TypeVar("T")

#: Gather what comes in one turn of the event loop, as opposed to a number of milliseconds.
_ONE_TURN: Final = -1


#: With too few replicas in sync it is committed nevertheless: all those that are in sync have it.
_COMMITTED: Final = (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


class _Phase(Enum):
    LOADING = auto()
    ACTIVE = auto()
    FAILED = auto()
    CLOSED = auto()


def now_of(clock: Clock) -> Now:
    return Now(clock.monotonic_ms(), clock.now_ms())


class GroupRunner:
    """A shard at work. `on_deadline` is told when the shard wants its next tick."""

    def __init__(
        self,
        partition: TopicPartition,
        shard: GroupShard,
        writer: PartitionWriter,
        runtime: Runtime,
        settings: BrokerSettings,
        on_deadline: Callable[[int], None],
    ) -> None:
        self.partition = partition
        self.shard = shard
        self.settings = settings
        self._writer = writer
        self._runtime = runtime
        self._on_deadline = on_deadline
        self._phase = _Phase.LOADING
        self._is_flush_due = False
        #: What is in the log and not known to be committed, by the offset that the high watermark must reach.
        self._uncommitted: deque[tuple[int, list[Write]]] = deque()
        self._waits: set[asyncio.Future[ErrorCode]] = set()
        #: Deleted while it was loading.
        self._topics_to_forget: list[str] = []

    @property
    def error(self) -> ErrorCode:
        """What requests for this shard are told at the moment; NONE if it serves them."""
        if self._phase is _Phase.ACTIVE:
            return ErrorCode.NONE
        is_loading = self._phase is _Phase.LOADING
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NOT_COORDINATOR

    # Loading

    async def load(self) -> None:
        """Read the partition. The shard is nobody else's until that is done, so another thread may do it."""
        try:
            await self._load_all()
        except Exception as failure:
            # Whatever it is: the other partitions are loaded, and this one is not served with half its groups.
            trace = None if isinstance(failure, BarnabasError) else failure
            code = getattr(failure, "code", None)
            level = logging.ERROR
            if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                # It is not led here any more and given up in a moment; nobody need hear of it.
                level = logging.DEBUG
            elif code is ErrorCode.KAFKA_STORAGE_ERROR:
                # That the partition is offline, and why, was told when it went.
                level = logging.WARNING
            text = "the groups of %s are not served, they cannot be loaded: %s"
            _log.log(level, text, self.partition, failure, exc_info=trace)
            if self._phase is not _Phase.CLOSED:
                self._phase = _Phase.FAILED

    async def _load_all(self) -> None:
        loaded, began_ms = 0, self._runtime.clock.monotonic_ms()
        buffer_bytes = self.settings.offsets_load_buffer_size
        async for data in self._writer.read_all(self.partition, buffer_bytes, self._runtime):
            loaded += len(memoryview(data))
            await self._runtime.offload(partial(self._load, data))
            if self._phase is not _Phase.LOADING:
                return
        if self._phase is not _Phase.LOADING:
            return
        self._phase = _Phase.ACTIVE
        self.shard.finish_loading(self.now())
        for topic in self._topics_to_forget:
            self.shard.forget_topic(topic, self.now())
        self.settle()
        for line in self.shard.state.skipped.lines():
            _log.warning("%s: records of groups that are not understood: %s", self.partition, line)
        if loaded:
            _log.info(
                "Finished loading of group metadata from %s in %d ms: %d groups from %d bytes",
                self.partition,
                self._runtime.clock.monotonic_ms() - began_ms,
                len(self.shard.groups),
                loaded,
            )

    def _load(self, data: Any) -> None:
        self.shard.load_batches(data, self._runtime.clock.now_ms())

    def close(self) -> None:
        """Stop: whoever waits here must look for the coordinator anew."""
        was_active = self._phase is _Phase.ACTIVE
        self._phase = _Phase.CLOSED
        self._uncommitted.clear()
        for wait in list(self._waits):
            wait.cancel()
        if was_active:
            for reply in self.shard.unload():
                _resolve(reply.token, reply.response)

    # Operations

    def now(self) -> Now:
        return now_of(self._runtime.clock)

    def begin(self) -> asyncio.Future[Any]:
        """A token for an operation."""
        return asyncio.get_running_loop().create_future()

    def settle(self) -> None:
        """Do what the last operation asked for."""
        shard = self.shard
        for reply in shard.take_replies():
            _resolve(reply.token, reply.response)
        if shard.state.writes and not self._is_flush_due:
            self._schedule_flush()
        self.report_deadline()

    def report_deadline(self) -> None:
        deadline_ms = self.shard.next_deadline_ms
        if deadline_ms is not None:
            self._on_deadline(deadline_ms)

    def finish(self, token: asyncio.Future[T]) -> T | asyncio.Future[T]:
        """Settle, and give the answer itself if it is there."""
        self.settle()
        return token.result() if token.done() else token

    def tick(self) -> None:
        if self._phase is _Phase.ACTIVE:
            self.shard.tick(self.now())
            self.settle()

    def forget_topic(self, topic: str) -> None:
        if self._phase is _Phase.ACTIVE:
            self.shard.forget_topic(topic, self.now())
            self.settle()
        else:
            self._topics_to_forget.append(topic)

    # Writing

    def _schedule_flush(self) -> None:
        linger_ms = self.settings.group_coordinator_append_linger_ms
        if linger_ms == 0:
            self._flush()
            return
        self._is_flush_due = True
        loop = asyncio.get_running_loop()
        if linger_ms == _ONE_TURN:
            loop.call_soon(self._flush)
        else:
            loop.call_later(linger_ms / 1000, self._flush)

    def _flush(self) -> None:
        if self._phase is not _Phase.ACTIVE:
            return
        # What an answer leads to while this goes on is for the next batch.
        self._is_flush_due = True
        waiting = self.shard.take_writes()
        while waiting:
            count = self._count_that_fit(waiting)
            writes, waiting = waiting[:count], waiting[count:]
            try:
                self._append(writes)
            except Exception as failure:
                code = getattr(failure, "code", ErrorCode.UNKNOWN_SERVER_ERROR)
                trace = None if isinstance(failure, BarnabasError) else failure
                _log.warning("records of groups were not written to %s: %s", self.partition, failure, exc_info=trace)
                # What was staged later may build on what was not written.
                self.shard.rejected(writes + waiting, append_error(code), self.now())
                break
        self._is_flush_due = False
        self.settle()

    def _count_that_fit(self, writes: list[Write]) -> int:
        size_bytes = 0
        for count, write in enumerate(writes):
            size_bytes += sum(record.size_bytes for record in write.records)
            if count and size_bytes > self.shard.limits.max_write_bytes:
                return count
        return len(writes)

    def _append(self, writes: list[Write]) -> None:
        now_ms = self._runtime.clock.now_ms()
        limit_bytes = self.shard.limits.max_write_bytes + HEADER.size
        builder = BatchBuilder(limit_bytes, codec=Codec(self.settings.offsets_topic_compression_codec))
        for write in writes:
            for record in write.records:
                builder.append(record.value, record.key, now_ms)
        count = builder.record_count
        offset = self._writer.append_as_coordinator(self.partition, builder.build(), now_ms)
        self.shard.placed(writes, offset - count)
        self._uncommitted.append((offset, writes))
        wait = self._wait_for(offset)
        if wait.done():
            self._waited(offset, wait)
        else:
            wait.add_done_callback(partial(self._waited, offset))

    def _wait_for(self, offset: int) -> asyncio.Future[ErrorCode]:
        timeout_ms = self.settings.offsets_commit_timeout_ms
        wait = asyncio.ensure_future(self._writer.wait_for_high_watermark(self.partition, offset, timeout_ms))
        self._waits.add(wait)
        return wait

    def _waited(self, offset: int, done: asyncio.Future[ErrorCode]) -> None:
        self._waits.discard(done)
        if done.cancelled() or self._phase is not _Phase.ACTIVE:
            return
        outcome = done.result()
        if outcome in _COMMITTED:
            while self._uncommitted and self._uncommitted[0][0] <= offset:
                self.shard.committed(self._uncommitted.popleft()[1], self.now())
        else:
            for required, writes in self._uncommitted:
                if required == offset:
                    self.shard.waited_in_vain(writes, append_error(outcome), self.now())
            if outcome is ErrorCode.REQUEST_TIMED_OUT:
                # Its clients have their answer; readers see it once it is committed after all.
                self._wait_for(offset).add_done_callback(partial(self._waited, offset))
        self.settle()


def _resolve(token: object, response: object) -> None:
    # A request may have been given up with its connection; what it asked for happened all the same.
    if isinstance(token, asyncio.Future) and not token.done():
        token.set_result(response)


def limits_of(settings: BrokerSettings, max_batch_bytes: int) -> GroupLimits:
    """The settings that groups live by; `max_batch_bytes` is what the offsets topic takes."""
    return GroupLimits(
        min_session_timeout_ms=settings.group_min_session_timeout_ms,
        max_session_timeout_ms=settings.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
        max_size=settings.group_max_size,
        offset_metadata_max_chars=settings.offset_metadata_max_bytes,
        offsets_retention_ms=settings.offsets_retention_minutes * 60_000,
        retention_check_interval_ms=settings.offsets_retention_check_interval_ms,
        max_write_bytes=max_batch_bytes - HEADER.size,
    )
