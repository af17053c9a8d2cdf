"""Where the clients for programs without asyncio do their work: an event loop on a thread of its own.

A call hands a coroutine over and waits. What the program itself wants to be called for (rebalance listeners, callbacks
of commits) must run in the thread that waits, as it may call the client again: the coroutine sends such errands back
to its caller with `invoke`.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from contextvars import ContextVar, copy_context
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from barnabas.client.errors import ClientClosedError, WrongUseError
from barnabas.net.runtime import new_event_loop

T = TypeVar("T")

_STOP_TIMEOUT_S: Final = 5.0
#: After so long a caller looks whether it was interrupted.
_LONGEST_SLEEP_S: Final = 0.5
#: How long an interrupted caller waits for its coroutine to end.
_BREAK_OFF_TIMEOUT_S: Final = 5.0


class _Call:
    """A caller that waits, and how to reach it."""

    __slots__ = ("is_over", "messages")

    def __init__(self) -> None:
        #: For the caller: called with whether it still wants the outcome. What returns true ends the call.
        self.messages: SimpleQueue[Callable[[bool], bool]] = SimpleQueue()
        #: Nobody reads the messages any more. Only the loop's thread sets it and looks at it.
        self.is_over = False

    def next_message(self) -> Callable[[bool], bool]:
        """Wait for it. Not in one go: a signal that comes a moment before the thread falls asleep does not wake it."""
        while True:
            with contextlib.suppress(Empty):
                return self.messages.get(timeout=_LONGEST_SLEEP_S)


_current_call: ContextVar[_Call | None] = ContextVar("barnabas_current_call", default=None)


async def invoke(function: Callable[..., Any], *arguments: Any) -> None:
    """Run a function of the program: in the thread whose call this coroutine serves, or here if there is none."""
    call = _current_call.get()
    if call is None or call.is_over:
        outcome = function(*arguments)
        if inspect.isawaitable(outcome):
            await outcome
        return
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def errand(is_wanted: bool) -> bool:
        failure: Exception | None = None
        if is_wanted:
            # What is no `Exception`, such as Ctrl-C, is the caller's affair: it breaks the call off.
            try:
                function(*arguments)
            except StopIteration as error:
                failure = RuntimeError("a callback raised StopIteration")
                failure.__cause__ = error
            except Exception as error:
                failure = error
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(_settle, done, failure)
        return False

    call.messages.put(errand)
    await done


def _settle(future: asyncio.Future[None], failure: Exception | None) -> None:
    if future.done():
        return
    if failure is None:
        future.set_result(None)
    else:
        future.set_exception(failure)


class LoopThread:
    """An event loop in the background, and calls to it from any thread.

    Guarantees: a call returns what its coroutine returned or raised; a call that is interrupted cancels its coroutine,
    and ends after that; after `close`, or in a process that was forked from the one that made it, every call raises at
    once; those under way when it is closed raise too.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop = new_event_loop()
        self._is_closed = False
        self._is_foreign = False  # true in a child of the process that made it
        self._calls: set[_Call] = set()
        # A daemon: a program that forgets to close must still be able to end.
        self._thread = threading.Thread(target=_run_loop, args=(self._loop, self._calls), name=name, daemon=True)
        self._thread.start()
        # Who drops a client without closing it shall not keep a thread for it.
        self._stop = weakref.finalize(self, _stop_loop, self._loop)
        self._stop.atexit = False
        _alive.add(self)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    @property
    def is_usable(self) -> bool:
        return not self._is_closed and not self._is_foreign

    def run(self, coroutine: Coroutine[Any, Any, T], on_dropped: Callable[[], object] | None = None) -> T:
        """Run to the end on the loop, while this thread waits.

        `on_dropped` is called there if the coroutine has come to a result that nobody gets: the call was interrupted.
        """
        call = _Call()
        context = copy_context()
        context.run(_current_call.set, call)
        tasks: list[asyncio.Task[T]] = []

        def begin() -> None:
            task = self._loop.create_task(coroutine, context=context)
            tasks.append(task)
            task.add_done_callback(ended)

        def ended(_: object) -> None:
            call.is_over = True
            call.messages.put(_is_over)

        try:
            self.check()
        except BaseException:
            coroutine.close()
            raise
        self._calls.add(call)
        try:
            self._loop.call_soon_threadsafe(begin)
            while not call.next_message()(True):
                pass
        except BaseException:
            self._break_off(call, tasks, on_dropped)
            if self._loop.is_closed() and not tasks:  # since we looked
                coroutine.close()
                raise self._closed() from None
            raise
        finally:
            self._calls.discard(call)
        if not tasks:
            coroutine.close()
        if not tasks or not tasks[0].done() or tasks[0].cancelled():
            raise self._closed()
        return tasks[0].result()

    def _break_off(self, call: _Call, tasks: list[asyncio.Task[T]], on_dropped: Callable[[], object] | None) -> None:
        """Whoever waits was interrupted, as by Ctrl-C: nobody wants the result. The coroutine ends before the call
        does, so that the next call finds everything in order."""

        def dropped(task: asyncio.Task[T]) -> None:
            if on_dropped is not None and not task.cancelled() and task.exception() is None:
                on_dropped()

        def drop() -> None:
            for task in tasks:
                task.cancel()
                task.add_done_callback(dropped)

        try:
            self._loop.call_soon_threadsafe(drop)
        except RuntimeError:
            return
        with contextlib.suppress(Empty):
            while not call.messages.get(timeout=_BREAK_OFF_TIMEOUT_S)(False):
                pass

    def call_soon(self, function: Callable[..., object], *arguments: Any) -> None:
        """Have a function called on the loop, without waiting for it. Nothing happens if it is closed."""
        self.check_process()
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)

    def close(self) -> None:
        """Stop the loop and wait for its thread. What still runs there is cancelled."""
        if self._is_closed:
            return
        self._is_closed = True
        _alive.discard(self)
        # Not through the finalizer: at the end of the interpreter those do nothing any more.
        self._stop.detach()
        if self._is_foreign:
            return
        _stop_loop(self._loop)
        self.join(_STOP_TIMEOUT_S)

    def join(self, timeout_s: float) -> None:
        """Wait until the thread has ended, unless it is this one."""
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    def check_process(self) -> None:
        """Raise in a process that was forked after the client was made: the thread stayed behind in the parent."""
        if self._is_foreign:
            raise WrongUseError(
                f"{self._name} was made before this process was forked, and cannot be used in it: "
                "make a new client in the child, or start processes with 'spawn'"
            )

    def check(self) -> None:
        """Raise if a call from here and now could not be carried out."""
        self.check_process()
        if self._is_closed:
            raise ClientClosedError(f"{self._name} is closed")
        if threading.current_thread() is self._thread:
            raise WrongUseError(
                f"{self._name} was called from one of its own callbacks, which run on the thread that would have to do "
                "the work: hand it to another thread"
            )

    def _closed(self) -> ClientClosedError:
        return ClientClosedError(f"{self._name} was closed meanwhile")

    def _after_fork(self) -> None:
        self._is_foreign = True
        self._stop.detach()


def _stop_loop(loop: asyncio.AbstractEventLoop) -> None:
    with contextlib.suppress(RuntimeError):  # it is closed already
        loop.call_soon_threadsafe(loop.stop)


def _is_over(is_wanted: bool) -> bool:
    return True


def _run_loop(loop: asyncio.AbstractEventLoop, calls: set[_Call]) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        try:
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            late = asyncio.all_tasks(loop)  # what those began at their end, such as to close connections
            if late:
                loop.run_until_complete(asyncio.wait(late, timeout=_STOP_TIMEOUT_S))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()
        finally:
            # Some may not even have begun.
            for call in list(calls):
                call.messages.put(_is_over)


_alive: weakref.WeakSet[LoopThread] = weakref.WeakSet()


def _disown_all() -> None:
    for each in list(_alive):
        each._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)
