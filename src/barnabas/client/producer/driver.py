"""The sender at work on an event loop: it runs when something has happened, and sleeps otherwise.

There is no task that waits. A turn is a callback of the loop: it sends what the sender wants sent, and sets a timer for
when the sender wants to be asked again. Turns are brought about by records (`wake`, or `wake_threadsafe` from other
threads), by answers, by metadata and by connections that become usable.
"""

from __future__ import annotations

import asyncio
import math
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from barnabas.base.log_context import logger
from barnabas.client.errors import ClientClosedError, ClientError, ClientTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.base.runtime import Clock
    from barnabas.client.core.cluster_view import ClusterView
    from barnabas.client.core.producing.accumulator import Accumulator
    from barnabas.client.core.producing.produce_requests import NodeRequest
    from barnabas.client.core.producing.sender import Sender
    from barnabas.client.producer.transactions import TransactionDriver
    from barnabas.wire.message import Request, Response

_log = logger(__name__)

#: After so many steps others get a turn of the loop, also if there is more to send.
_STEPS_PER_TURN: Final = 16
#: A sender that asks for another step at once, having sent nothing, gets it after this.
_SHORTEST_WAIT_MS: Final = 1.0


class DriverNetwork(Protocol):
    """What of `Network` is used here."""

    def request_soon(
        self,
        node_id: int,
        message: Request,
        on_answer: Callable[[Response | Any], None],
        *,
        version: int | None = None,
        timeout_ms: float | None = None,
    ) -> None: ...

    def send(
        self,
        node_id: int,
        message: Request,
        on_sent: Callable[[Any], None] | None = None,
        *,
        version: int | None = None,
    ) -> None: ...

    async def request_any(self, message: Any, *, timeout_ms: float | None = None) -> Any: ...

    def on_ready(self, callback: Callable[[int], None]) -> None: ...

    def on_denial(self, callback: Callable[[Any], None]) -> None: ...

    def on_update(self, callback: Callable[[ClusterView], None]) -> None: ...


class SenderFailedError(ClientError):
    """The sender broke down, through a fault in this package or by Ctrl-C. The producer sends nothing any more."""


class SenderDriver:
    """Runs a sender. Everything but `wake_threadsafe` belongs to the thread of the loop.

    `is_shared` says that records come from other threads than the loop's.
    """

    def __init__(
        self,
        network: DriverNetwork,
        accumulator: Accumulator,
        sender: Sender,
        *,
        clock: Clock,
        request_timeout_ms: int,
        is_shared: bool = True,
        transactions: TransactionDriver | None = None,
    ) -> None:
        self._network = network
        self._accumulator = accumulator
        self._sender = sender
        self._now_ms = clock.monotonic_ms
        self._request_timeout_ms = request_timeout_ms
        self._is_shared = is_shared
        self._transactions = transactions
        if transactions is not None:
            transactions.wake = self.wake
            transactions.break_down = self._break_down
        self._loop: asyncio.AbstractEventLoop | None = None
        # Turns speak as this producer, whoever woke it.
        self._context: Context | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._id_task: asyncio.Task[None] | None = None
        # A turn will come. Read and set by any thread: see `wake_threadsafe`.
        self._is_awake = False
        self._is_stopped = False
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def failure(self) -> Exception | None:
        """Why the producer cannot go on; None as long as it can."""
        return self._sender.fatal_error

    def start(self) -> None:
        """Begin to send, on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self._accumulator.on_work = self.wake_threadsafe if self._is_shared else self.wake
        self._network.on_ready(self._node_is_ready)
        self._network.on_update(self._metadata_came)
        self._network.on_denial(self._denied)
        self.wake()

    def wake(self) -> None:
        """There may be something to do."""
        if self._loop is not None and not self._is_awake and not self._is_stopped:
            self._loop.call_soon(self._turn, context=self._context)
            self._is_awake = True

    def wake_threadsafe(self) -> None:
        """The same from any thread. Nearly free if a turn is coming already.

        No wake is lost: a turn first lowers the flag and then looks. Who finds it raised has put its record where a
        turn that has not begun yet will find it.
        """
        if self._is_awake or self._is_stopped or self._loop is None:
            return
        try:
            self._is_awake = True
            self._loop.call_soon_threadsafe(self._turn, context=self._context)
        except RuntimeError:
            # The loop is closed, and all records were failed with it.
            self._is_stopped = True
        except BaseException:
            # Ctrl-C: perhaps no turn will come. One too many does no harm.
            self._is_awake = False
            raise

    async def flush(self, timeout_ms: float | None = None) -> None:
        """Send at once what is there, and wait until all of it is acknowledged or failed."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        flush = self._accumulator.begin_flush(partial(settle, over))
        self.wake()
        try:
            if not flush.is_done:
                async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                    await over
        except TimeoutError:
            raise ClientTimeoutError(
                f"flush: not everything was acknowledged within {timeout_ms:.0f} ms; it is still being sent"
            ) from None
        finally:
            self._accumulator.end_flush(flush)

    async def close(self, timeout_ms: float | None = None) -> None:
        """Take no more records, send what is there, and stop. What is left after the timeout fails; with 0, all."""
        if self._is_stopped:
            return
        if self._transactions is not None and self._loop is not None:
            await self._end_transaction(self._transactions, timeout_ms)
        self._sender.close()
        self.wake()
        try:
            if self._loop is not None and (timeout_ms is None or timeout_ms > 0):
                async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                    await self._drained()
        except TimeoutError:
            pass
        finally:
            # Also if the caller gave up waiting: nobody is left to whom an outcome could be told later.
            self._stop(timeout_ms)

    async def _end_transaction(self, transactions: TransactionDriver, timeout_ms: float | None) -> None:
        """What is open is aborted. If that fails the coordinator does it, when its time is over."""
        try:
            await transactions.end(timeout_ms)
        except ClientError as error:
            _log.warning("The open transaction was not aborted as the producer was closed: %s", error)

    def _stop(self, timeout_ms: float | None) -> None:
        self._is_stopped = True
        if not self._sender.is_drained:
            within = "" if timeout_ms is None else f" within {timeout_ms:.0f} ms"
            self._sender.close(
                ClientClosedError(f"the producer was closed, and this was not acknowledged{within}; it may be written")
            )
        if self._timer is not None:
            self._timer.cancel()
        if self._id_task is not None:
            self._id_task.cancel()
        if self._transactions is not None:
            self._transactions.stop()

    # Turns

    def _turn(self) -> None:
        self._is_awake = False
        if self._is_stopped:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            wait_ms = self._steps()
        except BaseException as error:
            self._break_down(error)
            if not isinstance(error, Exception):
                raise
            return
        if wait_ms <= 0:
            self.wake()
        elif wait_ms < math.inf:
            assert self._loop is not None
            self._timer = self._loop.call_later(wait_ms / 1000, self._turn, context=self._context)
        self._look_for_end()

    def _steps(self) -> float:
        now_ms = self._now_ms()
        for _ in range(_STEPS_PER_TURN):
            step = self._sender.step(now_ms)
            for request in step.requests:
                self._send(request)
            if step.wants_producer_id:
                self._ask_for_id()
            if step.transaction is not None and self._transactions is not None:
                self._transactions.send(step.transaction)
            if not step.requests:
                return max(step.wait_ms, _SHORTEST_WAIT_MS)
        return 0.0

    def _send(self, request: NodeRequest) -> None:
        try:
            if request.expects_answer:
                self._network.request_soon(
                    request.node_id,
                    request.message,
                    partial(self._answered, request),
                    version=request.version,
                    timeout_ms=self._request_timeout_ms,
                )
            else:
                self._network.send(
                    request.node_id, request.message, partial(self._answered, request), version=request.version
                )
        except Exception as error:
            assert self._loop is not None
            self._loop.call_soon(self._answered, request, error)

    def _answered(self, request: NodeRequest, outcome: Any) -> None:
        try:
            if isinstance(outcome, Exception):
                self._sender.failed(request, outcome, self._now_ms())
            else:
                self._sender.answered(request, outcome, self._now_ms())
        except BaseException as error:
            # What callbacks raise does not come here. But Ctrl-C may come anywhere, where the loop has the main thread.
            self._break_down(error)
            if not isinstance(error, Exception):
                raise
        self.wake()
        self._look_for_end()

    def _node_is_ready(self, node_id: int) -> None:
        self.wake()

    def _denied(self, error: Exception) -> None:
        self._sender.authentication_failed(error)
        self.wake()
        self._look_for_end()

    def _metadata_came(self, view: ClusterView) -> None:
        self._accumulator.metadata_updated(view)
        self.wake()

    # The producer id

    def _ask_for_id(self) -> None:
        assert self._loop is not None
        self._id_task = self._loop.create_task(self._get_id(self._sender.producer_id_request()))

    async def _get_id(self, message: Request) -> None:
        try:
            outcome = await self._network.request_any(message, timeout_ms=self._request_timeout_ms)
        except Exception as error:
            outcome = error
        try:
            if isinstance(outcome, Exception):
                self._sender.producer_id_failed(outcome, self._now_ms())
            else:
                self._sender.producer_id_answered(outcome, self._now_ms())
        except Exception as error:
            self._break_down(error)
        self.wake()

    # The end

    async def _drained(self) -> None:
        if not self._sender.is_drained:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def _look_for_end(self) -> None:
        if self._waiters and self._sender.is_drained:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                settle(waiter)

    def lose_loop(self) -> None:
        """The loop ends, and this was not closed. Whatever is not acknowledged fails, and nothing is taken any more."""
        if self._is_stopped:
            return
        self._is_stopped = True
        self._sender.break_down(
            ClientClosedError(
                "the event loop of the producer ended before the producer was closed, and nothing is sent any more; "
                "what was not acknowledged by then may be written"
            )
        )

    def _break_down(self, cause: BaseException) -> None:
        """A fault of ours, or an interruption. Nobody may wait for what will not be sent any more."""
        if isinstance(cause, Exception):
            why = (
                f"the producer's sender failed through a fault in barnabas ({cause!r}), and nothing is sent any more; "
                "close this producer and make a new one, and please report the traceback in the log"
            )
            _log.critical("The sender of a producer failed; all its records are failed", exc_info=cause)
        else:
            why = (
                f"the producer's sender was interrupted by {type(cause).__name__}, and nothing is sent any more; "
                "close this producer and make a new one"
            )
            _log.warning("The sender of a producer was interrupted; all its records are failed", exc_info=cause)
        error = SenderFailedError(why)
        error.__cause__ = cause
        try:
            self._sender.break_down(error)
        except Exception as another:
            _log.critical("Failing the records of a broken sender failed, too", exc_info=another)
            self._accumulator.abort(error)
        self._look_for_end()


def settle(waiter: asyncio.Future[None]) -> None:
    """Wake whoever waits, unless it has given up."""
    if not waiter.done():
        waiter.set_result(None)
