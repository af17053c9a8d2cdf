"""The producer for programs with asyncio."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterable
from contextlib import nullcontext
from functools import partial
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from barnabas.base.runtime import Clock, SystemClock
from barnabas.base.system_runtime import new_randomness
from barnabas.client._kernel.sending import AsyncSendPath
from barnabas.client.arguments import ConfigOrServers, settings_sources
from barnabas.client.core.cluster_view import PartitionInfo
from barnabas.client.core.metrics import prometheus_text
from barnabas.client.core.producing.buffer_pool import MemoryWaiter
from barnabas.client.core.producing.lanes import TopicLane
from barnabas.client.errors import ClientClosedError, UnknownPartitionError, WrongUseError
from barnabas.client.other_methods import PRODUCER_METHODS, ExplainsOtherMethods
from barnabas.client.producer.driver import settle
from barnabas.client.producer.finding import find_lane
from barnabas.client.producer.parts import Prepared, ProducerParts, checked_target, record_of
from barnabas.client.producer.transactions import AsyncTransactions
from barnabas.client.settings import ProducerSettings
from barnabas.client.settings.keywords import ProducerKeywords

if TYPE_CHECKING:
    from barnabas.client._kernel.sending import ArrowDelivery, OnDelivery, SendFuture

#: After so many batches of a table the loop gets a turn.
_BATCHES_PER_TURN: Final = 4


class Producer(AsyncSendPath, AsyncTransactions, ExplainsOtherMethods):
    """Sends records to topics.

        async with Producer(bootstrap_servers="127.0.0.1:9092") as producer:
            future = await producer.send("clicks", b"value", key=b"u1")     # room and metadata were there
            metadata = await future                                         # it is written

    Settings have Kafka's names: as keywords with underscores, or in a dict with dots. A producer belongs to the event
    loop in which it is first used, and is started by that. `send` waits for metadata and for memory, at most
    max.block.ms; it lets other tasks run whenever a batch is full. It raises if these do not come, or if the record is
    too large: then its `on_delivery` is not called. What callbacks raise is logged; only KeyboardInterrupt and
    SystemExit stop the loop, as they do from any callback, once all records of the answer have their outcome.
    """

    _other_methods = PRODUCER_METHODS

    def __init__(
        self,
        config: ConfigOrServers | None = None,
        /,
        *,
        clock: Clock | None = None,
        randomness: Random | None = None,
        **settings: Unpack[ProducerKeywords],
    ) -> None:
        loaded = ProducerSettings.load(*settings_sources(config, settings, "Producer"), **settings)
        self._parts = ProducerParts(
            loaded,
            clock=clock or SystemClock(),
            randomness=randomness or new_randomness(),
            lock=nullcontext(),
            is_shared=False,
        )
        parts = self._parts
        super().__init__(parts.accumulator.lanes, parts.home, **parts.send_path_options())
        self.is_direct = parts.is_direct
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing: asyncio.Future[None] | None = None
        self._max_block_ms = loaded.max_block_ms

    async def start(self) -> None:
        """Begin to work on the running loop. Need not be called: the first use does it."""
        loop = asyncio.get_running_loop()
        self._parts.check_open()
        if self._loop is loop:
            return
        if self._loop is not None:
            raise WrongUseError("this producer belongs to another event loop: make one in each loop")
        self._loop = self.owner = loop
        try:
            await self._parts.start()
        except BaseException:
            self._loop = self.owner = None
            raise

    async def send_arrow(self, topic: str, data: Any, *, partition: int | None = None) -> ArrowDelivery:
        """Send the rows of a table: one future for all of them, which gives the offsets by partition.

        `data` is an Arrow table, record batch, reader, or anything that exports an Arrow stream. Of its columns `value`
        must be there; `key`, `headers`, `timestamp` and `partition` may be. Returns when all rows are in batches.
        Columns are written as they are: a producer with serializers is refused.
        """
        await self.start()
        self._parts.accumulator.check_open()
        self._parts.check_arrow()
        topic, partition = checked_target(topic, partition)
        lane, _ = await find_lane(self._parts, topic, partition, self._max_block_ms / 1000)
        try:
            rows = self._parts.arrow_rows(lane, data, partition)
        except UnknownPartitionError:
            if not hasattr(data, "num_rows"):
                raise  # a stream has come half way
            lane, _ = await find_lane(self._parts, topic, partition, self._max_block_ms / 1000, refresh=True)
            rows = self._parts.arrow_rows(lane, data, partition)
        waiter: MemoryWaiter | None = None
        try:
            while not rows.is_done:
                waiter = rows.advance(self._parts.clock.monotonic_ms(), waiter, batch_limit=_BATCHES_PER_TURN)
                if waiter is not None:
                    await self._memory(waiter, self._deadline())
                else:
                    await asyncio.sleep(0)
        except BaseException as error:
            if waiter is not None:
                self._parts.accumulator.give_up(waiter)
            rows.abandon(error if isinstance(error, Exception) else ClientClosedError("send_arrow was cancelled"))
            raise
        return rows.delivery

    async def flush(self, timeout: float | None = None) -> None:
        """Send at once what is there, and wait until all of it is acknowledged or failed."""
        if self._parts.is_closed or self._loop is None:
            return
        await self.start()
        loop = asyncio.get_running_loop()
        start = loop.time()
        try:
            await self._parts.driver.flush(None if timeout is None else timeout * 1000)
        finally:
            self._parts.flush_ended(loop.time() - start)

    async def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...]:
        """The partitions of a topic, with their leaders."""
        await self.start()
        topic, _ = checked_target(topic, None)
        view = await self._parts.network.topic_metadata(topic, self._max_block_ms)
        self._parts.accumulator.lane(topic, view)
        return view.partitions(topic)

    def metrics(self) -> dict[str, dict[str, float]]:
        """What the producer tells about itself, under Kafka's names: by group, then by metric with its tags."""
        return self._parts.registry.as_dict()

    def prometheus(self) -> str:
        """The same as text for Prometheus."""
        return prometheus_text(self._parts.registry.metrics())

    async def close(self, timeout: float | None = None) -> None:
        """Wait until all records are acknowledged or failed, and end. What is left after `timeout` seconds fails.
        An open transaction is aborted."""
        loop, parts = self._loop, self._parts
        if loop is not None and loop is not asyncio.get_running_loop() and not loop.is_closed():
            raise WrongUseError("this producer belongs to another event loop: close it there")
        if parts.is_closed:
            # Somebody else may be at it.
            if self._closing is not None and not self._closing.done():
                await asyncio.wait({self._closing})
            return
        parts.is_closed = True
        self.is_direct = False
        if loop is None or loop.is_closed():
            parts.dispose()
            return
        self._closing = loop.create_future()
        try:
            await parts.close(None if timeout is None else max(0.0, timeout) * 1000)
        finally:
            self._closing.set_result(None)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        parts = getattr(self, "_parts", None)
        if parts is not None and self._loop is not None and not parts.is_closed:
            warnings.warn(f"{parts.client_id} was not closed", ResourceWarning, source=self, stacklevel=2)

    # The slow ways of `send`

    async def _send_slowly(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Iterable[tuple[str, bytes | None]] | None,
        partition: int | None,
        timestamp_ms: int | None,
        on_delivery: OnDelivery | None,
    ) -> SendFuture:
        await self.start()
        parts = self._parts
        parts.accumulator.check_open()
        record = parts.intercepted(record_of(topic, value, key, headers, partition, timestamp_ms))
        try:
            deadline = self._deadline()
            lane, view = await find_lane(parts, record.topic, record.partition, self._max_block_ms / 1000)
            prepared = parts.prepared(record, view, on_delivery)
            return await self._appended(lane, prepared, deadline)
        except Exception as error:
            parts.interceptors.on_send_error(record, error)
            raise

    async def _append_slowly(
        self,
        lane: TopicLane,
        partition: int,
        value: bytes | None,
        key: bytes | None,
        headers: Any,
        timestamp_ms: int,
        on_delivery: OnDelivery | None,
    ) -> SendFuture:
        await self.start()
        self._parts.metadata.want(lane.topic, self._parts.clock.monotonic_ms())
        prepared = Prepared(partition, value, key, headers, timestamp_ms, on_delivery)
        return await self._appended(lane, prepared, self._deadline())

    async def _appended(self, lane: TopicLane, record: Prepared, deadline: float) -> SendFuture:
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
                    # A batch was opened: the loop gets a turn, or a program that only sends would keep it from sending.
                    await asyncio.sleep(0)
                    return outcome
                waiter = outcome
                await self._memory(waiter, deadline)
        except BaseException:
            # Also by a cancellation no place in the line may be left behind.
            if isinstance(outcome, MemoryWaiter):
                self._parts.accumulator.give_up(outcome)
            raise

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._max_block_ms / 1000

    async def _memory(self, waiter: MemoryWaiter, deadline: float) -> None:
        """Wait until there is memory, or none will come any more. If this raises, the caller gives the waiter up."""
        parts, loop = self._parts, asyncio.get_running_loop()
        over: asyncio.Future[None] = loop.create_future()
        waiter.watch(partial(settle, over))
        start = loop.time()
        is_exhausted = False
        parts.memory_wait_began()
        try:
            async with asyncio.timeout_at(deadline):
                await over
        except TimeoutError:
            is_exhausted = True
            raise parts.buffer_full() from None
        finally:
            parts.memory_wait_ended(loop.time() - start, is_exhausted)
