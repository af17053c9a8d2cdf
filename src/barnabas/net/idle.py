"""Closing connections on which nothing happens: one timer, for the one that has been silent longest."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.net.connection import Connection


class IdleWatch:
    """The connections in the order in which something last happened on them."""

    __slots__ = ("_limit_s", "_loop", "_order", "_timer", "expired_count")

    def __init__(self, loop: asyncio.AbstractEventLoop, limit_ms: int) -> None:
        self._loop = loop
        self._limit_s = limit_ms / 1000
        self._order: OrderedDict[Connection, None] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None
        self.expired_count = 0

    def __iter__(self) -> Iterator[Connection]:
        """The one that has been silent longest first."""
        return iter(self._order)

    def set_limit(self, limit_ms: int) -> None:
        """A negative limit means that silence is never too long."""
        self._limit_s = limit_ms / 1000
        self.close()
        self._watch_first()

    def add(self, connection: Connection) -> None:
        self._order[connection] = None
        connection.active_at_s = self._loop.time()
        if self._timer is None:
            self._watch_first()

    def touch(self, connection: Connection) -> None:
        """Something happened on it."""
        self._order.move_to_end(connection)
        connection.active_at_s = self._loop.time()

    def remove(self, connection: Connection) -> None:
        self._order.pop(connection, None)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch_first(self) -> None:
        first = next(iter(self._order), None)
        if first is not None and self._limit_s >= 0:
            silent_s = self._loop.time() - first.active_at_s
            self._timer = self._loop.call_later(max(0.001, self._limit_s - silent_s), self._close_the_silent)

    def _close_the_silent(self) -> None:
        self._timer = None
        latest_s = self._loop.time() - self._limit_s
        # Each connection at most once: with a limit of 0 a busy one would come up again and again.
        for _ in range(len(self._order)):
            first = next(iter(self._order))
            if first.active_at_s > latest_s:
                break
            if first.is_idle():
                self.expired_count += 1
                first.abort(f"nothing happened on it for {self._limit_s:g} s")
                self.remove(first)
            else:
                self.touch(first)
        self._watch_first()
