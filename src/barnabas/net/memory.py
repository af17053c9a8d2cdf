"""The bound on what all connections together keep in memory, held by not reading.

A frame above 64 KiB needs a reservation before more than its beginning is read; who gets none waits in line. Responses
that are being made, or that peers are slow to take, are counted, so that those who make large ones can stop. Nobody
holds either for ever: who makes no progress while memory is short is cut off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from barnabas.base.errors import check
from barnabas.net.limits import PROGRESS_BYTES

if TYPE_CHECKING:
    from barnabas.net.connection import Connection

_CHECKS_PER_TIMEOUT: Final = 6


class _Progress:
    """How far a peer had come when it was last seen to move."""

    __slots__ = ("at_s", "done_bytes", "size_bytes")

    def __init__(self, size_bytes: int, done_bytes: int, at_s: float) -> None:
        self.size_bytes = size_bytes
        self.done_bytes = done_bytes
        self.at_s = at_s

    def is_stalled(self, done_bytes: int, now_s: float, timeout_s: float) -> bool:
        if done_bytes - self.done_bytes >= PROGRESS_BYTES:
            self.done_bytes, self.at_s = done_bytes, now_s
        return now_s - self.at_s >= timeout_s


class MemoryBudget:
    """Who holds how much, and who waits.

    Guarantees: reservations never exceed the limit, except for a single frame that is larger than the limit itself and
    then is alone; they are granted in the order in which they were asked for.
    """

    __slots__ = (
        "_expected",
        "_holders",
        "_loop",
        "_outgoing",
        "_timer",
        "_waiters",
        "limit_bytes",
        "outgoing_bytes",
        "outgoing_limit_bytes",
        "reserved_bytes",
        "stall_timeout_s",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limit_bytes: int,
        outgoing_limit_bytes: int,
        stall_timeout_s: float = 30.0,
    ) -> None:
        self.limit_bytes = limit_bytes
        self.outgoing_limit_bytes = outgoing_limit_bytes
        self.stall_timeout_s = stall_timeout_s
        self.reserved_bytes = 0
        #: Responses that are being made, and what peers have not taken when they were handed over.
        self.outgoing_bytes = 0
        self._loop = loop
        self._holders: dict[Connection, _Progress] = {}
        self._waiters: dict[Connection, int] = {}
        self._outgoing: dict[Connection, _Progress] = {}
        self._expected: dict[Connection, int] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiter_count(self) -> int:
        return len(self._waiters)

    def room_for_responses(self) -> int:
        """How many bytes of responses fit before slow peers hold too much. Never negative."""
        return max(0, self.outgoing_limit_bytes - self.outgoing_bytes)

    def reserve(self, connection: Connection, size_bytes: int) -> bool:
        """Take memory for a frame. If there is none, `connection.memory_granted()` is called once there is."""
        check(connection not in self._holders and connection not in self._waiters, "one frame at a time needs memory")
        if not self._waiters and self._fits(size_bytes):
            self._grant(connection, size_bytes)
            return True
        self._waiters[connection] = size_bytes
        self._watch()
        return False

    def release(self, connection: Connection) -> None:
        """Give back what a connection holds or waits for; nothing happens if that is nothing."""
        self._waiters.pop(connection, None)
        held = self._holders.pop(connection, None)
        if held is not None:
            self.reserved_bytes -= held.size_bytes
        self.outgoing_bytes -= self._expected.pop(connection, 0)
        self.grant_waiting()

    def grant_waiting(self) -> None:
        while self._waiters:
            connection, size_bytes = next(iter(self._waiters.items()))
            if not self._fits(size_bytes):
                return
            del self._waiters[connection]
            self._grant(connection, size_bytes)
            connection.memory_granted()

    def expect_response(self, connection: Connection, size_bytes: int) -> None:
        """Count a response that is being made, until `release`."""
        self.outgoing_bytes += size_bytes
        self._expected[connection] = self._expected.get(connection, 0) + size_bytes

    def outgoing_began(self, connection: Connection, size_bytes: int) -> None:
        """A peer has not taken a response at once."""
        self.outgoing_bytes += size_bytes
        self._outgoing[connection] = _Progress(size_bytes, 0, self._loop.time())
        self._watch()

    def outgoing_ended(self, connection: Connection) -> None:
        """A peer has taken its response, or is gone; nothing happens if none was counted."""
        outgoing = self._outgoing.pop(connection, None)
        if outgoing is not None:
            self.outgoing_bytes -= outgoing.size_bytes

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fits(self, size_bytes: int) -> bool:
        return self.reserved_bytes + size_bytes <= self.limit_bytes or not self.reserved_bytes

    def _grant(self, connection: Connection, size_bytes: int) -> None:
        self.reserved_bytes += size_bytes
        self._holders[connection] = _Progress(size_bytes, connection.received_bytes, self._loop.time())

    def _is_short(self) -> bool:
        return bool(self._waiters) or self.outgoing_bytes > self.outgoing_limit_bytes // 2

    def _watch(self) -> None:
        if self._timer is None and self._is_short():
            self._timer = self._loop.call_later(self.stall_timeout_s / _CHECKS_PER_TIMEOUT, self._cut_off_the_stalled)

    def _cut_off_the_stalled(self) -> None:
        self._timer = None
        if self._waiters:
            self._cut_off(self._holders, lambda holder, _: holder.received_bytes)
        if self.outgoing_bytes > self.outgoing_limit_bytes // 2:
            self._cut_off(self._outgoing, lambda taker, progress: progress.size_bytes - taker.unsent_bytes)
        self._watch()

    def _cut_off(self, table: dict[Connection, _Progress], done_bytes: Callable[[Connection, _Progress], int]) -> None:
        now_s = self._loop.time()
        stalled = [
            connection
            for connection, progress in table.items()
            if not connection.is_in_process
            and progress.is_stalled(done_bytes(connection, progress), now_s, self.stall_timeout_s)
        ]
        for connection in stalled:
            connection.abort(f"no progress in {self.stall_timeout_s:g} s while others wait for memory")
