"""Runs one shard of a coordinator: loads it, writes its records, and answers its requests.

`CoordinatorRuntime` says what is to be done; here it is done, with asyncio and the log. What
operations of one turn of the event loop write goes into one batch, so many small commits cost one append. Answers wait
until the high watermark has passed their records.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Any, Final, Generic, TypeVar

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.base.runtime import Runtime
from barnabas.coordinator.results import (
    CoordinatorResult,
    Now,
    Operation,
    ProducerWrite,
    Token,
    append_error,
)
from barnabas.coordinator.runtime import CoordinatorRuntime, CoordinatorShard, Write
from barnabas.coordinator.writer import PartitionWriter
from barnabas.records.batch import HEADER
from barnabas.records.builder import BatchBuilder
from barnabas.records.compression import Codec
from barnabas.records.control import TransactionMarker, build_marker
from barnabas.wire.messages.write_txn_markers import WritableTxnMarkerPartitionResult

T = TypeVar("T")
Q = TypeVar("Q")
S = TypeVar("S", bound=CoordinatorShard)

#: Gather what comes in one turn of the event loop, as opposed to a number of milliseconds.
_ONE_TURN: Final = -1


#: With too few replicas in sync it is committed nevertheless: all those that are in sync have it.
_COMMITTED: Final = (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


#: What a producer has done wrong, or a coordinator that was replaced.
_PRODUCERS_OWN: Final = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
)


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """How a coordinator reads and writes its partitions."""

    append_linger_ms: int
    commit_timeout_ms: int
    load_buffer_bytes: int
    codec: Codec
    #: The largest batch that the topic takes.
    max_batch_bytes: int

    @property
    def max_write_bytes(self) -> int:
        return self.max_batch_bytes - HEADER.size


@dataclass(frozen=True, slots=True)
class Words:
    """How the log of a node speaks of what a coordinator coordinates."""

    logger: logging.Logger
    #: As in "the groups of …".
    subjects: str
    #: As in "Finished loading of …".
    metadata: str


class CoordinatorState(Enum):
    LOADING = auto()
    ACTIVE = auto()
    FAILED = auto()
    CLOSED = auto()


class CoordinatorRunner(Generic[S]):
    """A shard at work. `on_deadline` is told when it wants something done, `on_reload` that it is to be loaded."""

    def __init__(
        self,
        partition: TopicPartition,
        new_shard: Callable[[], S],
        writer: PartitionWriter,
        runtime: Runtime,
        settings: WriteSettings,
        words: Words,
        *,
        on_deadline: Callable[[int], None],
        on_reload: Callable[[CoordinatorRunner[S]], None],
        leader_epoch: int = -1,
    ) -> None:
        self.partition = partition
        #: In which this node leads the partition.
        self.leader_epoch = leader_epoch
        self._new_shard = new_shard
        self._writer = writer
        self._runtime = runtime
        self._clock = runtime.clock
        self._settings = settings
        self._words = words
        self._log = words.logger
        self._on_deadline = on_deadline
        self._on_reload = on_reload
        self._core = CoordinatorRuntime(new_shard(), settings.max_write_bytes)
        self._state = CoordinatorState.LOADING
        self._is_append_due = False
        self._waits: set[asyncio.Future[ErrorCode]] = set()
        #: To be run once it is loaded.
        self._postponed: list[Callable[[S], Operation]] = []

    @property
    def shard(self) -> S:
        return self._core.shard

    @property
    def error(self) -> ErrorCode:
        """What requests for this shard are told at the moment; NONE if it serves them."""
        if self._state is CoordinatorState.ACTIVE:
            return ErrorCode.NONE
        is_loading = self._state is CoordinatorState.LOADING
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NOT_COORDINATOR

    @property
    def settings(self) -> WriteSettings:
        return self._settings

    @settings.setter
    def settings(self, settings: WriteSettings) -> None:
        self._settings = settings
        self._core.max_write_bytes = settings.max_write_bytes

    # Loading

    @property
    def core(self) -> CoordinatorRuntime[S]:
        """What it is loaded into; another one after each `reload`."""
        return self._core

    async def load(self, core: CoordinatorRuntime[S]) -> None:
        """Read the partition, which was waited for with this core; nothing happens if it has begun anew since: by then
        another leader epoch may have begun, whose own wait is not over.

        The shard is nobody else's until that is done, so another thread may do it."""
        try:
            await self._load_all(core)
        except Exception as failure:
            # Whatever it is: the other partitions are loaded, and this one is not served with half of what it holds.
            trace = None if isinstance(failure, BarnabasError) else failure
            code = getattr(failure, "code", None)
            level = logging.ERROR
            if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                # It is not led here any more and given up in a moment; nobody need hear of it.
                level = logging.DEBUG
            elif code is ErrorCode.KAFKA_STORAGE_ERROR:
                # That the partition is offline, and why, was told when it went.
                level = logging.WARNING
            text = "the %s of %s are not served, they cannot be loaded: %s"
            self._log.log(level, text, self._words.subjects, self.partition, failure, exc_info=trace)
            if self._core is core and self._state is not CoordinatorState.CLOSED:
                self._state = CoordinatorState.FAILED

    def until_readable(self) -> Awaitable[ErrorCode]:
        """Done when it can be loaded, or is known not to be led here."""
        return self._writer.until_readable(self.partition)

    def _is_loading(self, core: CoordinatorRuntime[S]) -> bool:
        """Whether what is read is still wanted: meanwhile it may have been closed, or begun anew."""
        return self._state is CoordinatorState.LOADING and self._core is core

    async def _load_all(self, core: CoordinatorRuntime[S]) -> None:
        if not self._is_loading(core):
            return
        loaded, began_ms = 0, self._clock.monotonic_ms()
        async for data in self._writer.read_all(self.partition, self._settings.load_buffer_bytes, self._runtime):
            loaded += len(memoryview(data))
            await self._runtime.offload(partial(core.load, data))
            if not self._is_loading(core):
                return
        if not self._is_loading(core):
            return
        self._state = CoordinatorState.ACTIVE
        for operation in core.finish_loading(self._now()):
            self._run(operation)
        postponed, self._postponed = self._postponed, []
        for make_operation in postponed:
            self._run(make_operation(core.shard))
        self._settle()
        for line in core.skipped.lines():
            text = "%s: records of %s that are not understood: %s"
            self._log.warning(text, self.partition, self._words.subjects, line)
        if loaded:
            took_ms = self._clock.monotonic_ms() - began_ms
            text = "Finished loading of %s from %s in %d ms: %s from %d bytes"
            self._log.info(text, self._words.metadata, self.partition, took_ms, core.shard, loaded)

    def reload(self) -> None:
        """Begin anew with what the log has: it may have lost what was replayed, or can be read now."""
        self._stop(CoordinatorState.LOADING)
        self._core = CoordinatorRuntime(self._new_shard(), self._settings.max_write_bytes)
        self._on_reload(self)

    @property
    def has_failed(self) -> bool:
        return self._state is CoordinatorState.FAILED

    def close(self) -> None:
        """Stop: whoever waits here must look for the coordinator anew."""
        self._stop(CoordinatorState.CLOSED)

    def _stop(self, state: CoordinatorState) -> None:
        was_active = self._state is CoordinatorState.ACTIVE
        self._state = state
        for wait in list(self._waits):
            wait.cancel()
        if was_active:
            for reply in self._core.unload(ErrorCode.NOT_COORDINATOR):
                _resolve(reply.token, reply.response)

    # Operations

    def submit(self, make_operation: Callable[[S, Token], Operation]) -> T | asyncio.Future[T]:
        """Run an operation; its answer, if it is there, or the future of it."""
        token = _Token()
        self._run(make_operation(self._core.shard, token))
        self._settle()
        if token.response is not None:
            return token.response  # type: ignore[no-any-return]
        token.future = asyncio.get_running_loop().create_future()
        return token.future

    def complete_transaction(
        self, marker: TransactionMarker, transaction_version: int
    ) -> WritableTxnMarkerPartitionResult | asyncio.Future[WritableTxnMarkerPartitionResult]:
        """Append the marker with which a transaction ends, and let what it held back be seen. Answered when that is
        committed, or with the reason why it may not be."""
        number = self.partition.partition
        producer = ProducerWrite(
            marker.producer_id, marker.producer_epoch, marker=marker, transaction_version=transaction_version
        )
        result = CoordinatorResult(response=WritableTxnMarkerPartitionResult(partition_index=number), producer=producer)

        def if_failed(error: ErrorCode) -> WritableTxnMarkerPartitionResult:
            return WritableTxnMarkerPartitionResult(partition_index=number, error_code=error)

        return self.submit(lambda _, token: Operation(None, lambda _: result, token, if_failed))

    @property
    def has_unappended(self) -> bool:
        """Whether operations may have to wait for what was written before them."""
        return self._core.has_unappended

    def answer(self, answer: Callable[[S, Q, int], T], request: Q) -> T:
        """What needs no operation, since it writes nothing: its answer, now."""
        response = answer(self._core.shard, request, self._clock.monotonic_ms())
        self._tell_deadline()
        return response

    def submit_when_loaded(self, make_operation: Callable[[S], Operation]) -> None:
        """Run an operation that nobody waits for."""
        if self._state is CoordinatorState.ACTIVE:
            self._run(make_operation(self._core.shard))
            self._settle()
        else:
            self._postponed.append(make_operation)

    def tick(self) -> None:
        if self._state is CoordinatorState.ACTIVE:
            for operation in self._core.due(self._now()):
                self._run(operation)
            self._settle()

    def append_now(self) -> None:
        """Let whoever reads the shard next see all that was written."""
        if self._core.has_unappended:
            self._append_all()
            self._settle()

    def _now(self) -> Now:
        clock = self._clock
        return Now(clock.monotonic_ms(), clock.now_ms())

    def _run(self, operation: Operation) -> None:
        core = self._core
        while core.has_unappended and core.must_append_before(operation):
            self._append_all()
        for following in core.run(operation, self._now()):
            self._run(following)

    def _settle(self) -> None:
        """Do what the last operation asked for."""
        core = self._core
        for reply in core.take_replies():
            _resolve(reply.token, reply.response)
        if core.has_unappended and not self._is_append_due:
            self._append_soon()
        self._tell_deadline()

    def _tell_deadline(self) -> None:
        deadline_ms = self._core.next_deadline_ms
        if deadline_ms is not None:
            self._on_deadline(deadline_ms)

    # Writing

    def _append_soon(self) -> None:
        linger_ms = self._settings.append_linger_ms
        if linger_ms == 0:
            self._append_and_settle()
            return
        self._is_append_due = True
        loop = asyncio.get_running_loop()
        if linger_ms == _ONE_TURN:
            loop.call_soon(self._append_and_settle)
        else:
            loop.call_later(linger_ms / 1000, self._append_and_settle)

    def _append_and_settle(self) -> None:
        if self._state is not CoordinatorState.ACTIVE:
            self._is_append_due = False
            return
        # What an answer leads to while this goes on is for the next batch.
        self._is_append_due = True
        self._append_all()
        self._is_append_due = False
        self._settle()

    def _append_all(self) -> None:
        core = self._core
        while core.has_unappended:
            batch = core.next_batch()
            try:
                first_offset, required_offset = self._append(batch)
            except Exception as failure:
                code = getattr(failure, "code", ErrorCode.UNKNOWN_SERVER_ERROR)
                trace = None if isinstance(failure, BarnabasError) else failure
                is_of_producer = batch[0].producer is not None
                # A producer that is fenced hears of it, and nobody else need.
                level = logging.DEBUG if is_of_producer and code in _PRODUCERS_OWN else logging.WARNING
                text = "records of %s were not written to %s: %s"
                self._log.log(level, text, self._words.subjects, self.partition, failure, exc_info=trace)
                core.append_failed(append_error(code), self._now())
                if is_of_producer:
                    continue
                return
            wait = self._wait_for(required_offset)
            is_committed = wait.done() and wait.result() in _COMMITTED
            try:
                core.appended(first_offset, self._now(), required_offset if is_committed else 0)
            except Exception:
                # The log is right, and what is in memory is not any more.
                self._log.exception("%s is loaded anew: what was written to it could not be replayed", self.partition)
                self._reload_soon()
                return
            if wait.done():
                self._waited(required_offset, wait)
            else:
                wait.add_done_callback(partial(self._waited_and_settle, required_offset))

    def _append(self, batch: list[Write]) -> tuple[int, int]:
        """Where the records begin, and what the high watermark must reach."""
        now_ms = self._clock.now_ms()
        if batch[0].producer is not None:
            return self._append_in_transaction(batch[0], batch[0].producer, now_ms)
        builder = BatchBuilder(self._settings.max_batch_bytes, codec=self._settings.codec)
        for write in batch:
            for record in write.records:
                builder.append(record.data.value, record.data.key, now_ms)
        count = builder.record_count
        required_offset = self._writer.append_as_coordinator(self.partition, builder.build(), now_ms)
        return required_offset - count, required_offset

    def _append_in_transaction(self, write: Write, producer: ProducerWrite, now_ms: int) -> tuple[int, int]:
        if producer.marker is not None:
            batch = build_marker(producer.marker, now_ms)
        else:
            builder = BatchBuilder(
                self._settings.max_batch_bytes,
                codec=self._settings.codec,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                base_sequence=0,
                transactional=True,
            )
            for record in write.records:
                builder.append(record.data.value, record.data.key, now_ms)
            batch = builder.build()
        required_offset = self._writer.append_in_transaction(
            self.partition, batch, producer.guard, now_ms, producer.transaction_version
        )
        return required_offset - write.record_count, required_offset

    def _wait_for(self, offset: int) -> asyncio.Future[ErrorCode]:
        timeout_ms = self._settings.commit_timeout_ms
        wait = asyncio.ensure_future(self._writer.wait_for_high_watermark(self.partition, offset, timeout_ms))
        self._waits.add(wait)
        return wait

    def _waited_and_settle(self, offset: int, done: asyncio.Future[ErrorCode]) -> None:
        self._waited(offset, done)
        if self._state is CoordinatorState.ACTIVE:
            self._settle()

    def _waited(self, offset: int, done: asyncio.Future[ErrorCode]) -> None:
        self._waits.discard(done)
        if done.cancelled() or self._state is not CoordinatorState.ACTIVE:
            return
        outcome = done.result()
        if outcome in _COMMITTED:
            self._core.committed(offset, self._now())
            return
        self._core.not_committed(offset, append_error(outcome), self._now())
        if outcome is ErrorCode.REQUEST_TIMED_OUT:
            # Its clients have their answer; readers see it once it is committed after all.
            self._wait_for(offset).add_done_callback(partial(self._waited_and_settle, offset))
        else:
            # It is not led here any more, or cannot be written: what was replayed may not be in the log for long.
            self._reload_soon()

    def _reload_soon(self) -> None:
        asyncio.get_running_loop().call_soon(self._reload_if_active)

    def _reload_if_active(self) -> None:
        if self._state is CoordinatorState.ACTIVE:
            self.reload()


class _Token:
    """Of a request: its answer if that comes at once, or the future for it."""

    __slots__ = ("future", "response")

    def __init__(self) -> None:
        self.response: Any = None
        self.future: asyncio.Future[Any] | None = None


def _resolve(token: object, response: object) -> None:
    if not isinstance(token, _Token):
        return  # Nobody waits.
    if token.future is None:
        token.response = response
    elif not token.future.done():
        # Otherwise it was given up with its connection; what it asked for happened all the same.
        token.future.set_result(response)
