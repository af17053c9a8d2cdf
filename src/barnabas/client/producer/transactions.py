"""Transactions of a producer at work: requests to coordinators, and calls that wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from barnabas.base.ids import TopicPartition
from barnabas.client.coordinators import CoordinatorType
from barnabas.client.core.consuming.membership_steps import GroupMetadata
from barnabas.client.core.consuming.offsets import OffsetAndMetadata
from barnabas.client.core.producing.transaction_requests import Kind, TransactionRequest
from barnabas.client.core.producing.transaction_states import TransactionHandle, TransactionResult
from barnabas.client.errors import (
    TransactionAbortableError,
    TransactionFatalError,
    TransactionStateError,
    TransactionTimeoutError,
)

if TYPE_CHECKING:
    from barnabas.client.core.producing.transaction_manager import TransactionManager
    from barnabas.client.network_client import NetworkClient
    from barnabas.client.producer.parts import ProducerParts

Offsets = Mapping[TopicPartition, OffsetAndMetadata | int]


class TransactionDriver:
    """Sends what the manager wants sent, and lets calls wait. Belongs to the thread of the loop."""

    def __init__(
        self,
        network: NetworkClient,
        manager: TransactionManager,
        *,
        now_ms: Callable[[], int],
        request_timeout_ms: int,
        max_block_ms: int,
    ) -> None:
        self.manager = manager
        self._network = network
        self._now_ms = now_ms
        self._request_timeout_ms = request_timeout_ms
        self._max_block_ms = max_block_ms
        self._task: asyncio.Task[None] | None = None
        #: There may be something to do, or a fault of ours happened. The driver of the sender sets them.
        self.wake: Callable[[], None] = lambda: None
        self.break_down: Callable[[BaseException], None] = lambda error: None

    # Requests

    def send(self, request: TransactionRequest) -> None:
        self._task = asyncio.get_running_loop().create_task(self._ask(request))

    async def _ask(self, request: TransactionRequest) -> None:
        version = 0
        outcome: Any
        try:
            if request.kind is Kind.FIND_COORDINATOR:
                outcome = await self._find(request)
            else:
                assert request.message is not None
                version = await self._version(request)
                outcome = await self._network.request(
                    request.node_id, request.message, version=version, timeout_ms=self._request_timeout_ms
                )
        except Exception as error:
            outcome = error
        try:
            if isinstance(outcome, Exception):
                self.manager.failed(request, outcome, self._now_ms())
            else:
                self.manager.answered(request, outcome, version, self._now_ms())
        except Exception as error:
            self.break_down(error)
        self.wake()

    async def _find(self, request: TransactionRequest) -> int:
        kind = CoordinatorType(request.coordinator)
        # Who asks for it does not believe what was known.
        self._network.forget_coordinator(kind, request.key, "a transaction needs it")
        return await self._network.coordinator(kind, request.key, self._request_timeout_ms)

    async def _version(self, request: TransactionRequest) -> int:
        kind = type(request.message)
        version = self._network.version_of(request.node_id, kind)  # type: ignore[arg-type]
        if version is None:
            await self._network.connect(request.node_id, self._request_timeout_ms)
            version = self._network.version_of(request.node_id, kind)  # type: ignore[arg-type]
        return min(request.max_version, 0 if version is None else version)

    # Calls

    async def init(self) -> None:
        await self._wait(self.manager.init())

    async def begin(self) -> None:
        self.manager.begin()

    async def commit(self) -> None:
        await self._wait(self.manager.commit())

    async def abort(self) -> None:
        await self._wait(self.manager.abort())

    async def send_offsets(self, offsets: Offsets, group: GroupMetadata) -> None:
        wanted = {
            TopicPartition(*partition): OffsetAndMetadata(each) if isinstance(each, int) else each
            for partition, each in offsets.items()
        }
        await self._wait(self.manager.send_offsets(wanted, group))

    async def _wait(self, result: TransactionResult, timeout_ms: float | None = None) -> None:
        """Wait for the outcome. One that came too late is told to whoever makes the same call again."""
        self.wake()
        timeout_ms = self._max_block_ms if timeout_ms is None else timeout_ms
        if not result.is_done:
            over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            result.when_done(partial(_settle, over))
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    await over
            except TimeoutError:
                raise TransactionTimeoutError(
                    f"transactional id {self.manager.transactional_id!r}: {result.operation} was not done within "
                    f"max.block.ms = {timeout_ms:.0f}, and goes on; call it again to wait for it"
                ) from None
        result.is_told = True
        if result.error is not None:
            raise result.error.with_traceback(None)

    # The end

    async def end(self, timeout_ms: float | None) -> None:
        """Abort what is open, before the producer closes."""
        manager = self.manager
        if not manager.is_open:
            return
        if not manager.is_completing:
            manager.forget_pending()
            result = manager.abort()
        else:
            result = manager.pending
        await self._wait(result, self._max_block_ms if timeout_ms is None else timeout_ms)

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()


def _settle(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class _Calls:
    """What both kinds of producer do."""

    _parts: ProducerParts

    def _transactions(self, operation: str) -> TransactionDriver:
        self._parts.check_not_closed()
        driver = self._parts.transactions
        if driver is None:
            raise TransactionStateError(
                f"{operation} is not possible, as this producer has no transactional.id: "
                'make it with transactional_id="a name that stays the same after a restart"'
            )
        return driver

    async def _timed(self, metric: str, work: Awaitable[None]) -> None:
        loop = asyncio.get_running_loop()
        start = loop.time()
        try:
            await work
        finally:
            self._parts.transaction_call_ended(metric, int((loop.time() - start) * 1e9))

    async def _handle(self, driver: TransactionDriver) -> TransactionHandle:
        driver.manager.check_prepare()
        await self._timed("prepare", self._parts.driver.flush())
        return driver.manager.prepare()


class SyncTransactions(_Calls):
    """The calls of a producer with `transactional_id`. Errors say what to do: `TransactionTimeoutError`, call it
    again; `TransactionAbortableError`, abort and go on; `TransactionFatalError`, give this producer up."""

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        raise NotImplementedError

    def init_transactions(self) -> None:
        """Once, before the first transaction: lock out other producers of the same id, and end what they left open."""
        self._run(self._timed("init", self._transactions("init_transactions()").init()))

    def begin_transaction(self) -> None:
        """From here on records and offsets belong together, until `commit_transaction` or `abort_transaction`."""
        self._run(self._timed("begin", self._transactions("begin_transaction()").begin()))

    def send_offsets_to_transaction(self, offsets: Offsets, group: GroupMetadata) -> None:
        """Commit offsets of a group with the transaction: `consumer.group_metadata()` tells which. An offset is that of
        the next record to read. The consumer must not commit by itself (enable_auto_commit=False)."""
        driver = self._transactions("send_offsets_to_transaction()")
        self._run(self._timed("send-offsets", driver.send_offsets(offsets, group)))

    def commit_transaction(self) -> None:
        """Send what is left, and make all of it visible at once; or raise, and then none of it is."""
        self._run(self._timed("commit", self._transactions("commit_transaction()").commit()))

    def abort_transaction(self) -> None:
        """Take everything back. Records that were not sent yet fail with `TransactionAbortedError`."""
        self._run(self._timed("abort", self._transactions("abort_transaction()").abort()))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """`with producer.transaction(): …` begins, and commits; or aborts, if anything is raised."""
        self.begin_transaction()
        try:
            yield
        except BaseException as error:
            if not isinstance(error, TransactionFatalError):
                self._give_back()
            raise
        try:
            self.commit_transaction()
        except TransactionAbortableError:
            self._give_back()
            raise

    def _give_back(self) -> None:
        driver = self._transactions("abort_transaction()")
        if driver.manager.is_open:
            driver.manager.forget_pending()
            self.abort_transaction()

    def transaction_handle(self) -> TransactionHandle:
        """Flush, and hand the open transaction over: whoever has the handle ends it, in this process or another
        (`Admin.end_transaction`). This producer can only be closed then, which leaves the transaction open."""
        handle: TransactionHandle = self._run(self._handle(self._transactions("transaction_handle()")))
        return handle


class AsyncTransactions(_Calls):
    """The calls of a producer with `transactional_id`. Errors say what to do: `TransactionTimeoutError`, call it
    again; `TransactionAbortableError`, abort and go on; `TransactionFatalError`, give this producer up."""

    async def start(self) -> None:
        raise NotImplementedError

    async def init_transactions(self) -> None:
        """Once, before the first transaction: lock out other producers of the same id, and end what they left open."""
        driver = self._transactions("init_transactions()")
        await self.start()
        await self._timed("init", driver.init())

    async def begin_transaction(self) -> None:
        """From here on records and offsets belong together, until `commit_transaction` or `abort_transaction`."""
        await self._timed("begin", self._transactions("begin_transaction()").begin())

    async def send_offsets_to_transaction(self, offsets: Offsets, group: GroupMetadata) -> None:
        """Commit offsets of a group with the transaction: `consumer.group_metadata()` tells which. An offset is that of
        the next record to read. The consumer must not commit by itself (enable_auto_commit=False)."""
        driver = self._transactions("send_offsets_to_transaction()")
        await self._timed("send-offsets", driver.send_offsets(offsets, group))

    async def commit_transaction(self) -> None:
        """Send what is left, and make all of it visible at once; or raise, and then none of it is."""
        await self._timed("commit", self._transactions("commit_transaction()").commit())

    async def abort_transaction(self) -> None:
        """Take everything back. Records that were not sent yet fail with `TransactionAbortedError`."""
        await self._timed("abort", self._transactions("abort_transaction()").abort())

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """`async with producer.transaction(): …` begins, and commits; or aborts, if anything is raised."""
        await self.begin_transaction()
        try:
            yield
        except BaseException as error:
            if not isinstance(error, TransactionFatalError):
                await self._give_back()
            raise
        try:
            await self.commit_transaction()
        except TransactionAbortableError:
            await self._give_back()
            raise

    async def _give_back(self) -> None:
        driver = self._transactions("abort_transaction()")
        if driver.manager.is_open:
            driver.manager.forget_pending()
            await self.abort_transaction()

    async def transaction_handle(self) -> TransactionHandle:
        """Flush, and hand the open transaction over: whoever has the handle ends it, in this process or another
        (`Admin.end_transaction`). This producer can only be closed then, which leaves the transaction open."""
        return await self._handle(self._transactions("transaction_handle()"))
