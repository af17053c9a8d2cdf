"""An event loop turned by hand, and a connection that only remembers what was done to it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from barnabas.net import Connection
from barnabas.net._kernel.metering import RequestFields
from barnabas.net.pace import Standing
from barnabas.net.request_channel import Dispatch


class HandTimer:
    def __init__(self, when_s: float, callback: Callable[..., object]) -> None:
        self.when_s = when_s
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class HandLoop:
    """The part of an event loop that schedulers need."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.soon: deque[Callable[..., object]] = deque()
        self.timers: list[HandTimer] = []

    @property
    def as_loop(self) -> asyncio.AbstractEventLoop:
        return cast(asyncio.AbstractEventLoop, self)

    def time(self) -> float:
        return self.now_s

    def call_soon(self, callback: Callable[..., object]) -> None:
        self.soon.append(callback)

    def call_later(self, delay_s: float, callback: Callable[..., object]) -> HandTimer:
        timer = HandTimer(self.now_s + delay_s, callback)
        self.timers.append(timer)
        return timer

    def turn(self) -> None:
        """What one turn of a loop runs."""
        for _ in range(len(self.soon)):
            self.soon.popleft()()

    def pass_time(self, duration_s: float) -> None:
        end_s = self.now_s + duration_s
        while True:
            self.timers = [timer for timer in self.timers if not timer.is_cancelled]
            due = min((timer for timer in self.timers if timer.when_s <= end_s), key=lambda t: t.when_s, default=None)
            if due is None:
                self.now_s = end_s
                return
            self.now_s = due.when_s
            self.timers.remove(due)
            due.callback()


class StubConnection(RequestFields):
    """Looks like a connection to the request channel, memory and admission."""

    def __init__(self, name: str = "", *, listener: str = "A", host: str = "1.1.1.1", is_privileged: bool = False):
        self.name = name
        self.dispatch: Dispatch = lambda connection, frame: None
        self.listener = listener
        self.peer_host = host
        self.peer = f"{host}:1"
        self.is_privileged = is_privileged
        self.is_closed = False
        self.is_in_process = False
        self.received_bytes = 0
        self.unsent_bytes = 0
        self.active_at_s = 0.0
        #: What it holds of memory for requests, and how far its peer has come.
        self.memory: object = None
        self.held: dict[object, int] = {}
        self.peer_standing: Standing | None = None
        self.log: list[str] = []
        self.on_abort: Callable[[], None] = lambda: None

    @property
    def as_connection(self) -> Connection:
        return cast(Connection, self)

    def __repr__(self) -> str:
        return self.name

    def __getattr__(self, name: str) -> Any:
        if name in ("hold_back", "read_on", "admit", "finish_without_response"):
            return lambda: self.log.append(name)
        raise AttributeError(name)

    def held_of(self, share: object) -> int:
        return self.held.get(share, 0)

    def standing(self) -> Standing | None:
        return self.peer_standing

    def memory_granted(self, more_bytes: int) -> None:
        self.log.append(f"granted {more_bytes}")

    def close(self, reason: str | None = None) -> None:
        self.is_closed = True
        self.log.append(f"close: {reason}")

    def abort(self, reason: str) -> None:
        self.is_closed = True
        self.log.append(f"abort: {reason}")
        self.on_abort()
