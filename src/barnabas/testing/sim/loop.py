"""An event loop on virtual time: an hour passes in no time, and a seed decides whatever asyncio leaves open.

Time stands still while anything is ready to run and then jumps to the next timer. What stays as asyncio promises it:
callbacks of `call_soon` run in the order in which they were scheduled, timers in the order of their times. What asyncio
leaves open is drawn from the random numbers that the loop was given: the order of timers that are due at the same
instant. Arrivals from the network and results of offloaded work are timers here, so their order is drawn too; the bytes
of one connection keep theirs, because a connection has only one timer at a time.

Tasks and futures have their serial numbers as hashes, so that even sets of them (`asyncio.wait`, `TaskGroup`) are
walked through in the same order in every process. The loop holds its tasks: none is lost to the garbage collector,
whose moments no seed decides.

What runs in a process sees the time of its host, whose clock may be fast or slow: `time`, `call_at` and `call_later`
are in that time, `world_time` and `call_in_world` in the world's.

An exception that nobody caught ends the run. So do a world that waits for nothing (`DeadlockError`) and one that does
not let time pass (`LivelockError`).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from asyncio import AbstractEventLoop, Future, Handle, Task, TimerHandle, format_helpers
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context, copy_context
from heapq import heapify, heappop, heappush
from random import Random
from types import CoroutineType
from typing import Any, Final, NoReturn, Protocol, TypeVar

from barnabas.testing.sim.process import Process, ProcessState, current_process

__all__ = ["DeadlockError", "LivelockError", "SimulationError", "VirtualTimeLoop"]

T = TypeVar("T")

START_S = 1000.0
"""Not 0, so that a time is never mistaken for "none"."""


MAX_CLOSINGS = 1000


class SimulationError(Exception):
    """The simulated world cannot go on, or code in it failed where nobody caught it."""


class DeadlockError(SimulationError):
    """Nothing is ready and no timer is set, yet what was waited for has not happened."""


class LivelockError(SimulationError):
    """Callbacks follow upon callbacks and time does not move, or it has moved beyond the limit of the run."""


class NetworkBehind(Protocol):
    """What the loop asks for connections; see `network.Network`."""

    async def create_server(self, factory: Callable[[], Any], host: Any, port: Any, **options: Any) -> Any: ...

    async def create_connection(self, factory: Callable[[], Any], host: Any, port: Any, **options: Any) -> Any: ...

    def resolve(self, host: str | None) -> str: ...


_RUNNING: Final = ProcessState.RUNNING
_PAUSED: Final = ProcessState.PAUSED


def _process_of(context: Context | None) -> Process | None:
    return current_process.get() if context is None else context.get(current_process)


# A run makes some hundred thousand handles, so their `__init__` do what asyncio's do without the detours: there is no
# debug mode.


class _Handle(Handle):
    __slots__ = ("process",)
    process: Process | None

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], loop: VirtualTimeLoop, context: Context | None
    ) -> None:
        if context is None:
            context = copy_context()
            self.process = current_process.get()
        else:
            self.process = context.get(current_process)
        self._context = context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = self._source_traceback = None


class _TimerHandle(TimerHandle):
    __slots__ = ("process",)
    process: Process | None

    def __init__(
        self,
        when: float,
        process: Process | None,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: VirtualTimeLoop,
        context: Context | None,
    ) -> None:
        self.process = process
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = self._scheduled = False
        self._repr = self._source_traceback = None
        self._when = when

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._callback = self._args = None  # type: ignore[assignment]
            self._loop._timer_handle_cancelled(self)


class _Numbered:
    """The hash of a task or future: its number."""

    _number: int
    process: Process | None

    def __hash__(self) -> int:
        return self._number


class SimulatedFuture(_Numbered, Future[T]):
    """A future of a virtual-time loop, which gives it its number."""


class SimulatedTask(_Numbered, Task[T]):
    """A task of a virtual-time loop. The number is set before `__init__`, which already asks for the hash."""

    def __new__(cls, *_: object, loop: VirtualTimeLoop, context: Context | None = None, **__: object) -> Any:
        task = super().__new__(cls)
        task._number = loop.next_number()
        task.process = _process_of(context)
        return task


def _raise_not_simulated(*_: object, **__: object) -> NoReturn:
    raise NotImplementedError("the simulated world has no descriptors, signals, pipes, datagrams or subprocesses")


_not_simulated: Any = _raise_not_simulated


class VirtualTimeLoop(AbstractEventLoop):
    """See the module. `random` draws the order of timers that are due together; without it they keep their order.

    `max_idle_turns` is how many turns may pass at one instant before the run is taken to be stuck.
    """

    #: `net` leaves the sizes of buffers alone where there are none.
    has_sockets = False

    def __init__(self, random: Random | None = None, *, max_idle_turns: int = 100_000) -> None:
        self.network: NetworkBehind | None = None
        #: Called after each callback of a process, with the process; what it raises ends the run.
        self.after_event: Callable[[Process], None] | None = None
        self.event_count = 0
        self._random = random
        self._max_idle_turns = max_idle_turns
        self._now_s = START_S
        self._ready: deque[_Handle | _TimerHandle] = deque()
        self._timers: list[tuple[float, int, _TimerHandle]] = []
        self._cancelled_timers = 0
        self._numbers = 0
        self._tasks: dict[int, SimulatedTask[Any]] = {}
        self._failures: list[BaseException] = []
        self._exception_handler: Callable[[AbstractEventLoop, dict[str, Any]], object] | None = None
        self._turns_at_this_instant = 0
        self._thread_id: int | None = None
        self._stopping = False
        self._closed = False

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    # Running

    def run_until_complete(self, awaitable: Awaitable[T], *, limit_s: float | None = None) -> T:  # type: ignore[override]
        """Run until the awaitable is done, for at most `limit_s` of virtual time."""
        end_s = None if limit_s is None else self._now_s + limit_s
        is_new = not asyncio.isfuture(awaitable)
        main: Future[T] = asyncio.ensure_future(awaitable, loop=self)
        self._enter()
        try:
            if not self._play(main.done, end_s):
                raise DeadlockError(f"nothing is left to happen at {self._now_s:.3f} s, but {main!r} is not done")
            self._raise_failure()
        except BaseException:
            if is_new and main.done() and not main.cancelled():
                main.exception()  # taken note of: the failure in flight is told instead
            raise
        finally:
            self._leave()
        return main.result()

    def run_forever(self) -> None:
        """Run until `stop`, or until nothing is left to happen."""
        self._enter()
        try:
            self._play(lambda: self._stopping, None)
        finally:
            self._stopping = False
            self._leave()

    def run_for(self, duration_s: float) -> None:
        """Let virtual time pass."""
        self.run_until_complete(asyncio.sleep(duration_s))

    def _enter(self) -> None:
        self._check_open()
        asyncio._set_running_loop(self)
        self._thread_id = threading.get_ident()

    def _leave(self) -> None:
        self._thread_id = None
        asyncio._set_running_loop(None)

    def _play(self, is_over: Callable[[], bool], end_s: float | None) -> bool:
        """In turns, run what is ready, or first let time jump to where something is. False if nothing is left."""
        ready, timers = self._ready, self._timers
        handle: _Handle | _TimerHandle | None
        while not is_over():
            if not ready:
                while timers and timers[0][2]._cancelled:
                    heappop(timers)
                    self._cancelled_timers -= 1
                if not timers:
                    return False
                when_s = timers[0][0]
                if end_s is not None and when_s > end_s:
                    raise LivelockError(f"the run was not over at its limit, {end_s:.3f} s")
                if when_s > self._now_s:
                    self._now_s = when_s
                    self._turns_at_this_instant = 0
            if timers and timers[0][0] <= self._now_s:
                self._take_due_timers()
            self._turns_at_this_instant += 1
            if self._turns_at_this_instant > self._max_idle_turns:
                raise LivelockError(f"{self._max_idle_turns} turns at {self._now_s:.6f} s; next is {ready[0]!r}")
            for _ in range(len(ready)):
                handle = ready.popleft()
                if handle._cancelled:
                    continue
                process = handle.process
                if process is not None and process.state is not _RUNNING:
                    if process.state is _PAUSED:
                        process.held.append(handle)
                    continue
                # As `Handle._run` does, which would be a call more for each event.
                try:
                    handle._context.run(handle._callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self._callback_failed(handle, error)
                self.event_count += 1
                if process is not None and self.after_event is not None:
                    self.after_event(process)
            handle = None  # what nobody else holds ends with its turn
            if self._failures:
                self._raise_failure()
        return True

    def _callback_failed(self, handle: _Handle | _TimerHandle, error: BaseException) -> None:
        what = format_helpers._format_callback_source(handle._callback, handle._args)
        context = {"message": f"Exception in callback {what}", "exception": error, "handle": handle}
        self.call_exception_handler(context)

    def _take_due_timers(self) -> None:
        timers, now_s = self._timers, self._now_s
        first = heappop(timers)[2]
        if not timers or timers[0][0] > now_s:  # mostly it is one
            if first._cancelled:
                self._cancelled_timers -= 1
            else:
                self._ready.append(first)
            return
        due = [first]
        while timers and timers[0][0] <= now_s:
            due.append(heappop(timers)[2])
        alive = [timer for timer in due if not timer._cancelled]
        self._cancelled_timers -= len(due) - len(alive)
        if self._random is not None and len(alive) > 1:
            self._random.shuffle(alive)
            alive.sort(key=TimerHandle.when)
        self._ready.extend(alive)

    def _raise_failure(self) -> None:
        if self._failures:
            failures, self._failures = self._failures, []
            raise failures[0]

    # Processes

    def resume(self, process: Process) -> None:
        """Let a paused process go on: first what became due while it was away."""
        if process.state is ProcessState.PAUSED:
            process.state = ProcessState.RUNNING
            held, process.held = process.held, []
            self._ready.extend(held)  # type: ignore[arg-type]

    # Callbacks

    def time(self) -> float:
        process = current_process.get()
        if process is None or process.clock is None:
            return self._now_s
        clock = process.clock
        return clock._local_s + (self._now_s - clock._world_s) * clock.rate  # `local_s`, without a call

    def world_time(self) -> float:
        """The time that no clock shows."""
        return self._now_s

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        handle = _Handle(callback, args, self, context)
        if not self._closed:
            self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> TimerHandle:
        process = _process_of(context)
        if process is not None and process.clock is not None:
            delay /= process.clock.rate
        return self._set_timer(self._now_s + delay, process, callback, args, context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> TimerHandle:
        process = _process_of(context)
        if process is not None and process.clock is not None:
            when = process.clock.world_s(when)
        return self._set_timer(when, process, callback, args, context)

    def call_in_world(
        self, when_s: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> TimerHandle:
        """As `call_at`, in the world's time: for what happens to a process and not by it."""
        return self._set_timer(when_s, _process_of(context), callback, args, context)

    def _set_timer(
        self,
        when: float,
        process: Process | None,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
    ) -> TimerHandle:
        timer = _TimerHandle(when, process, callback, args, self, context)
        if not self._closed:
            self._numbers = number = self._numbers + 1
            heappush(self._timers, (when, number, timer))
        return timer

    def _timer_handle_cancelled(self, _: TimerHandle) -> None:
        """Called by `_TimerHandle.cancel`. Most timeouts are cancelled; they must not pile up until they are due."""
        self._cancelled_timers += 1
        if self._cancelled_timers > 1000 and self._cancelled_timers * 2 > len(self._timers):
            self._timers[:] = [entry for entry in self._timers if not entry[2]._cancelled]
            heapify(self._timers)
            self._cancelled_timers = 0

    # Tasks

    def create_future(self) -> SimulatedFuture[Any]:
        future: SimulatedFuture[Any] = SimulatedFuture(loop=self)
        self._numbers = future._number = self._numbers + 1
        future.process = current_process.get()
        return future

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> Task[T]:
        self._check_open()
        task: SimulatedTask[T] = SimulatedTask(coro, loop=self, name=name, context=context)
        if name is None:
            task.set_name(f"Task-{task._number}")  # asyncio's own numbers count over all loops of a process
        self._tasks[task._number] = task
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: Task[Any]) -> None:
        self._tasks.pop(hash(task), None)

    def tasks(self) -> list[Task[Any]]:
        """What has not ended, oldest first."""
        return [task for task in self._tasks.values() if not task.done()]

    # Failures

    def set_exception_handler(self, handler: Callable[[AbstractEventLoop, dict[str, Any]], object] | None) -> None:
        self._exception_handler = handler

    def get_exception_handler(self) -> Callable[[AbstractEventLoop, dict[str, Any]], object] | None:
        return self._exception_handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        failure = SimulationError(f"{context.get('message')}: {error!r}")
        failure.__cause__ = error
        self._failures.append(failure)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        for key in ("handle", "task", "future"):
            process = getattr(context.get(key), "process", None)
            if process is not None and process.is_dead:
                return  # the dead complain of nothing
        if self._closed:
            return
        if self._exception_handler is not None:
            self._exception_handler(self, context)
        else:
            self.default_exception_handler(context)

    # The world outside

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        return await self._network().create_server(protocol_factory, host, port, **options)

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        return await self._network().create_connection(protocol_factory, host, port, **options)

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> list[Any]:
        address = self._network().resolve(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, int(port or 0)))]

    def _network(self) -> NetworkBehind:
        if self.network is None:
            raise SimulationError("this loop has no network")
        return self.network

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> NoReturn:  # type: ignore[override]
        raise SimulationError(
            f"{func!r} would run in a thread, whose moments no seed decides; use Runtime.offload instead"
        )

    # The rest of what asyncio asks of a loop

    def stop(self) -> None:
        self._stopping = True

    def is_running(self) -> bool:
        return self._thread_id is not None

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Nothing runs any more, also not what is still being scheduled. Coroutines that wait are closed here, in a
        fixed order, instead of by the garbage collector at some moment in another test."""
        if self.is_running():
            raise RuntimeError("a running loop cannot be closed")
        if self._closed:
            return
        self._closed = True
        self._ready.clear()
        self._timers.clear()
        for task in list(self._tasks.values()):
            _bury(task)
        self._tasks.clear()

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the loop is closed")

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        """There is no debug mode: nothing is slow in virtual time."""

    add_signal_handler = remove_signal_handler = _not_simulated
    add_reader = remove_reader = add_writer = remove_writer = _not_simulated
    sock_accept = sock_connect = sock_recv = sock_recv_into = sock_recvfrom = sock_recvfrom_into = _not_simulated
    sock_sendall = sock_sendto = sock_sendfile = sendfile = start_tls = getnameinfo = _not_simulated
    connect_accepted_socket = create_unix_connection = create_unix_server = create_datagram_endpoint = _not_simulated
    connect_read_pipe = connect_write_pipe = subprocess_exec = subprocess_shell = _not_simulated
    set_default_executor = set_task_factory = _not_simulated

    def get_task_factory(self) -> None:
        return None

    async def shutdown_asyncgens(self) -> None:
        """Nothing to do: asynchronous generators are not tracked."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Nothing to do: there is no executor."""


def _bury(task: Task[Any]) -> None:
    """Forget a task that never ends."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    if task.done():
        return
    for _ in range(MAX_CLOSINGS):
        waiting = _innermost(task.get_coro())
        if waiting is None:
            return
        # Code of a world that has ended; what it says is of no interest. What waits even now, in a `finally`, is still
        # there the next time.
        with contextlib.suppress(BaseException):
            waiting.close()


def _innermost(coroutine: object) -> CoroutineType[Any, Any, Any] | None:
    """Of coroutines that wait for each other, the last that has not ended. Closed from without, one that waits again
    would be left alone."""
    found = None
    while isinstance(coroutine, CoroutineType):
        if coroutine.cr_frame is not None:
            found = coroutine
        coroutine = coroutine.cr_await
    return found
