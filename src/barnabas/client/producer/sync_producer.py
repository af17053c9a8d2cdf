"""The producer for programs without asyncio: `send` in the caller's thread, the rest on one in the background."""

from __future__ import annotations

import asyncio
import atexit
import threading
import time
import warnings
import weakref
from collections.abc import Coroutine, Iterable
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from barnabas.base.log_context import logger
from barnabas.base.runtime import SystemClock
from barnabas.base.system_runtime import new_randomness
from barnabas.client._kernel.sending import SyncSendPath
from barnabas.client.arguments import ConfigOrServers, settings_sources
from barnabas.client.core.cluster_view import ClusterView, PartitionInfo
from barnabas.client.core.metrics import prometheus_text
from barnabas.client.core.producing.buffer_pool import MemoryWaiter
from barnabas.client.core.producing.lanes import TopicLane
from barnabas.client.errors import ClientClosedError, UnknownPartitionError, WrongUseError
from barnabas.client.other_methods import PRODUCER_METHODS, ExplainsOtherMethods
from barnabas.client.producer.finding import find_lane
from barnabas.client.producer.parts import Prepared, ProducerParts, checked_target, record_of
from barnabas.client.producer.transactions import SyncTransactions
from barnabas.client.settings import ProducerSettings
from barnabas.client.settings.keywords import ProducerKeywords
from barnabas.client.sync import LoopThread

if TYPE_CHECKING:
    from barnabas.client._kernel.sending import ArrowDelivery, OnDelivery, SendFuture

_log: Final = logger(__name__)

#: How long a producer that nobody closed may hold up the end of the program, to send what it has.
_LAST_CHANCE_S: Final = 10.0


class Producer(SyncSendPath, SyncTransactions, ExplainsOtherMethods):
    """Sends records to topics.

        with Producer(bootstrap_servers="127.0.0.1:9092") as producer:
            metadata = producer.send("clicks", b"value", key=b"u1").result()

    Settings have Kafka's names: as keywords with underscores, or in a dict with dots. Any number of threads may share
    one. `send` returns as soon as the record is in a batch; it waits for metadata and for memory, at most max.block.ms,
    and raises if these do not come, or if the record is too large: then its `on_delivery` is not called.
    Callbacks run on the background thread, before the futures of their batch are done: they may call `send`, but must
    not wait for anything of this producer. Whatever they raise is logged, also a SystemExit: that thread goes on.
    """

    _other_methods = PRODUCER_METHODS

    def __init__(self, config: ConfigOrServers | None = None, /, **settings: Unpack[ProducerKeywords]) -> None:
        loaded = ProducerSettings.load(*settings_sources(config, settings, "Producer"), **settings)
        self._parts = ProducerParts(
            loaded, clock=SystemClock(), randomness=new_randomness(), lock=threading.RLock(), is_shared=True
        )
        parts = self._parts
        super().__init__(parts.accumulator.lanes, parts.home, **parts.send_path_options())
        self._closing = threading.RLock()
        try:
            self._thread = LoopThread(parts.client_id)
            try:
                self._thread.run(parts.start())
            except BaseException:
                self._thread.close()
                raise
        except BaseException:
            parts.dispose()
            raise
        self._max_block_ms = loaded.max_block_ms
        self.is_direct = parts.is_direct
        _open.add(self)

    def send_arrow(self, topic: str, data: Any, *, partition: int | None = None) -> ArrowDelivery:
        """Send the rows of a table: one future for all of them, which gives the offsets by partition.

        `data` is an Arrow table, record batch, reader, or anything that exports an Arrow stream. Of its columns `value`
        must be there; `key`, `headers`, `timestamp` and `partition` may be. Returns when all rows are in batches.
        Columns are written as they are: a producer with serializers is refused.
        """
        self._check()
        self._parts.accumulator.check_open()
        self._parts.check_arrow()
        topic, partition = checked_target(topic, partition)
        deadline = self._deadline()
        lane, _ = self._lane(topic, partition, deadline)
        try:
            rows = self._parts.arrow_rows(lane, data, partition)
        except UnknownPartitionError:
            if not hasattr(data, "num_rows"):
                raise  # a stream has come half way
            left_s = max(0.0, deadline - time.monotonic())
            lane, _ = self._thread.run(find_lane(self._parts, topic, partition, left_s, refresh=True))
            rows = self._parts.arrow_rows(lane, data, partition)
        waiter: MemoryWaiter | None = None
        try:
            waiter = rows.advance(self._parts.clock.monotonic_ms())
            while waiter is not None:
                self._memory(waiter, self._deadline())
                waiter = rows.advance(self._parts.clock.monotonic_ms(), waiter)
        except BaseException as error:
            if waiter is not None:
                self._parts.accumulator.give_up(waiter)
            rows.abandon(error if isinstance(error, Exception) else ClientClosedError("send_arrow was interrupted"))
            raise
        return rows.delivery

    def flush(self, timeout: float | None = None) -> None:
        """Send at once what is there, and wait until all of it is acknowledged or failed."""
        self._thread.check_process()
        if not self._parts.is_closed:
            start = time.monotonic()
            try:
                self._thread.run(self._parts.driver.flush(None if timeout is None else timeout * 1000))
            finally:
                self._parts.flush_ended(time.monotonic() - start)

    def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...]:
        """The partitions of a topic, with their leaders."""
        self._check()
        topic, _ = checked_target(topic, None)
        return self._lane(topic, None, self._deadline())[1].partitions(topic)

    def metrics(self) -> dict[str, dict[str, float]]:
        """What the producer tells about itself, under Kafka's names: by group, then by metric with its tags."""
        return self._parts.registry.as_dict()

    def prometheus(self) -> str:
        """The same as text for Prometheus."""
        return prometheus_text(self._parts.registry.metrics())

    def close(self, timeout: float | None = None) -> None:
        """Wait until all records are acknowledged or failed, and end. What is left after `timeout` seconds fails.
        An open transaction is aborted."""
        parts = self._parts
        if not self._thread.is_usable:
            # In a fork there is nothing to wait for: the records are the parent's.
            parts.is_closed = True
            self._thread.close()
            return
        if parts.home.is_here:
            raise WrongUseError("a producer cannot be closed from its own callbacks: hand it to another thread")
        # Who closes it second returns when it is closed, too; a signal handler that interrupts the first, at once.
        with self._closing:
            if parts.is_closed:
                return
            parts.is_closed = True
            self.is_direct = False
            _open.discard(self)
            if self._thread.loop.is_closed():
                # It ended by itself: every record was failed then.
                parts.dispose()
                self._thread.close()
                return
            try:
                self._thread.run(parts.close(None if timeout is None else max(0.0, timeout) * 1000))
            finally:
                self._thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        parts = getattr(self, "_parts", None)
        if parts is None or parts.is_closed or not hasattr(self, "_max_block_ms") or not self._thread.is_usable:
            return
        warnings.warn(f"{parts.client_id} was not closed", ResourceWarning, source=self, stacklevel=2)
        # Whichever thread this is, it must not be held up.
        parts.is_closed = True
        _close_in_background(parts, self._thread)

    # The slow ways of `send`

    def _send_slowly(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Iterable[tuple[str, bytes | None]] | None,
        partition: int | None,
        timestamp_ms: int | None,
        on_delivery: OnDelivery | None,
    ) -> SendFuture:
        self._check()
        parts = self._parts
        parts.accumulator.check_open()
        record = parts.intercepted(record_of(topic, value, key, headers, partition, timestamp_ms))
        try:
            deadline = self._deadline()
            lane, view = self._lane(record.topic, record.partition, deadline)
            return self._appended(lane, parts.prepared(record, view, on_delivery), deadline)
        except Exception as error:
            parts.interceptors.on_send_error(record, error)
            raise

    def _append_slowly(
        self,
        lane: TopicLane,
        partition: int,
        value: bytes | None,
        key: bytes | None,
        headers: Any,
        timestamp_ms: int,
        on_delivery: OnDelivery | None,
    ) -> SendFuture:
        self._check()
        self._parts.metadata.want(lane.topic, self._parts.clock.monotonic_ms())
        prepared = Prepared(partition, value, key, headers, timestamp_ms, on_delivery)
        return self._appended(lane, prepared, self._deadline())

    def _appended(self, lane: TopicLane, record: Prepared, deadline: float) -> SendFuture:
        append, now_ms = self._parts.accumulator.append, self._parts.clock.monotonic_ms
        outcome: SendFuture | MemoryWaiter | None = None
        waiter: MemoryWaiter | None = None
        try:
            while True:
                outcome = append(
                    lane,
                    record.partition,
                    record.value,
                    record.key,
                    record.headers,
                    record.timestamp_ms,
                    record.on_delivery,
                    now_ms(),
                    waiter,
                )
                if not isinstance(outcome, MemoryWaiter):
                    return outcome
                waiter = outcome
                self._memory(waiter, deadline)
        except BaseException:
            # Also by Ctrl-C no place in the line may be left behind.
            if isinstance(outcome, MemoryWaiter):
                self._parts.accumulator.give_up(outcome)
            raise

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        if self._parts.home.is_here:
            coroutine.close()
            raise WrongUseError("transactions cannot be begun or ended in a callback: do it in another thread")
        return self._thread.run(coroutine)

    def _check(self) -> None:
        self._thread.check_process()
        self._parts.check_open()

    def _deadline(self) -> float:
        return time.monotonic() + self._max_block_ms / 1000

    def _memory(self, waiter: MemoryWaiter, deadline: float) -> None:
        """Wait until there is memory, or none will come any more. If this raises, the caller gives the waiter up."""
        parts = self._parts
        if parts.home.is_here and not waiter.is_over:
            raise WrongUseError(
                "send() in a callback found buffer.memory used up, and only the thread that runs the callback could "
                "make room: send from another thread"
            )
        over: SimpleQueue[None] = SimpleQueue()
        waiter.watch(lambda: over.put(None))
        start = time.monotonic()
        is_exhausted = False
        parts.memory_wait_began()
        try:
            over.get(timeout=max(0.0, deadline - start))
        except Empty:
            is_exhausted = True
            raise parts.buffer_full() from None
        finally:
            parts.memory_wait_ended(time.monotonic() - start, is_exhausted)

    def _lane(self, topic: str, partition: int | None, deadline: float) -> tuple[TopicLane, ClusterView]:
        """What records for a topic, and perhaps for one partition of it, go through, once that is known."""
        parts = self._parts
        view = parts.network.view
        count = view.partition_count(topic)
        if count is not None and (partition is None or partition < count):
            parts.metadata.want(topic, parts.clock.monotonic_ms())
            lane = parts.accumulator.lane(topic, view)
            if lane is not None:
                return lane, view
        return self._thread.run(find_lane(parts, topic, partition, max(0.0, deadline - time.monotonic())))


_open: weakref.WeakSet[Producer] = weakref.WeakSet()


#: Those that were dropped and still have something to send, with what keeps them alive until they are done.
_closing: dict[LoopThread, asyncio.Task[None] | None] = {}


def _close_in_background(parts: ProducerParts, thread: LoopThread) -> None:
    """What a program dropped without closing it is sent all the same, if that does not take too long."""

    async def finish() -> None:
        try:
            await parts.close(_LAST_CHANCE_S * 1000)
        except Exception:
            _log.exception("%s could not be closed", parts.client_id)
        finally:
            thread.close()
            _closing.pop(thread, None)

    def begin() -> None:
        _closing[thread] = thread.loop.create_task(finish())

    _closing[thread] = None
    thread.call_soon(begin)


@atexit.register
def _close_all() -> None:
    for producer in list(_open):
        try:
            producer.close(_LAST_CHANCE_S)
        except Exception:
            _log.exception("%s could not be closed at the end", producer._parts.client_id)
    for thread in list(_closing):
        thread.join(_LAST_CHANCE_S)
