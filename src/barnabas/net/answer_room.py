"""The bound on what the answers to all connections take, from before they are made until peers have taken them.

Whoever makes an answer that may be large asks for room first, and waits in line if there is none. A fetch does not
ask: it takes what room there is, and says so (`expect`). What is asked for may take three quarters together, so that
fetches always find some; what waits in line is left out of what fetches find, so that they do not overtake it. While
there is no room, peers that take their answers too slowly are cut (see `pace`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from barnabas.base.errors import check
from barnabas.net.errors import AnswerTooLargeError
from barnabas.net.pace import Doing, Pace, Standing

if TYPE_CHECKING:
    from barnabas.net.connection import Connection

Granted = Callable[[], None]


class _Answer:
    """What one answer takes: as much as was said of it, and once it was sent what its peer has not taken at once."""

    __slots__ = ("is_asked", "is_sent", "size_bytes")

    def __init__(self) -> None:
        self.size_bytes = 0
        self.is_asked = False
        self.is_sent = False


class AnswerRoom:
    """Who holds how much for answers, and who waits.

    Guarantees: room that is asked for is given in the order of asking, and never beyond the limit. What is sent without
    having asked is counted, and may exceed the limit; then no room is given until it has left.
    """

    __slots__ = (
        "_answers",
        "_loop",
        "_timer",
        "_waiters",
        "_waiting_bytes",
        "asked_bytes",
        "held_bytes",
        "limit_bytes",
        "pace",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, limit_bytes: int, window_s: float) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        #: The part of it that was asked for.
        self.asked_bytes = 0
        self.pace = Pace(window_s)
        self._loop = loop
        self._answers: dict[Connection, _Answer] = {}
        self._waiters: dict[Connection, tuple[int, Granted]] = {}
        self._waiting_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def largest_bytes(self) -> int:
        """The most that can be asked for."""
        return self.limit_bytes * 3 // 4

    def left_bytes(self) -> int:
        """How much answers may take that do not wait in line. Never negative.

        The last bit counts as nothing: the first batch of a fetch comes whole, however large.
        """
        kept_bytes = max(0, min(self._waiting_bytes, self.largest_bytes - self.asked_bytes))
        left_bytes = self.limit_bytes - self.held_bytes - kept_bytes
        return left_bytes if left_bytes > self.limit_bytes // 64 else 0

    def ask(self, connection: Connection, size_bytes: int, granted: Granted) -> bool:
        """Take room for an answer, once per answer. If there is none, `granted` is called soon after there is."""
        check(connection not in self._waiters, "room is asked for once per answer")
        answer = self._answers.get(connection)
        check(answer is None or not answer.is_asked, "room is asked for once per answer")
        if size_bytes > self.largest_bytes:
            raise AnswerTooLargeError(size_bytes, self.largest_bytes)
        if not self._waiters and self._fits(size_bytes):
            self._take(connection, size_bytes)
            return True
        self._waiters[connection] = size_bytes, granted
        self._waiting_bytes += size_bytes
        self._watch()
        return False

    def expect(self, connection: Connection, size_bytes: int) -> None:
        """Count an answer that is being made without having asked."""
        answer = self._answers.setdefault(connection, _Answer())
        answer.size_bytes += size_bytes
        self._count(answer, size_bytes)

    def sent(self, connection: Connection, unsent_bytes: int) -> None:
        """An answer was sent, and its peer has not taken all of it at once: from now on the rest is what it takes."""
        answer = self._answers.setdefault(connection, _Answer())
        self._count(answer, unsent_bytes - answer.size_bytes)
        answer.size_bytes = unsent_bytes
        answer.is_sent = True
        self._grant_waiting()
        self._watch()

    def made(self, connection: Connection) -> None:
        """The answer was handed over, or nobody works on it any more: what was said of it counts no longer."""
        answer = self._answers.get(connection)
        if answer is not None and not answer.is_sent:
            self._drop(connection, answer)

    def taken(self, connection: Connection) -> None:
        """The peer has taken its answer, or is gone; nothing happens if none was sent."""
        answer = self._answers.get(connection)
        if answer is not None and answer.is_sent:
            self._drop(connection, answer)

    def stop_waiting(self, connection: Connection) -> None:
        """The connection has ended: who waits for room is told, and sees that."""
        waiter = self._waiters.pop(connection, None)
        if waiter is not None:
            self._waiting_bytes -= waiter[0]
            self._loop.call_soon(waiter[1])
            self._grant_waiting()

    def set_limit(self, limit_bytes: int) -> None:
        """What waits and has become too large ever to fit gets its room when it is alone."""
        self.limit_bytes = limit_bytes
        self._grant_waiting()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fits(self, size_bytes: int) -> bool:
        if self.held_bytes + size_bytes > self.limit_bytes:
            return not self.held_bytes
        return self.asked_bytes + size_bytes <= self.largest_bytes or not self.asked_bytes

    def _take(self, connection: Connection, size_bytes: int) -> None:
        answer = self._answers.setdefault(connection, _Answer())
        self._count(answer, -answer.size_bytes)
        answer.is_asked = True
        answer.size_bytes += size_bytes
        self._count(answer, answer.size_bytes)

    def _count(self, answer: _Answer, more_bytes: int) -> None:
        self.held_bytes += more_bytes
        if answer.is_asked:
            self.asked_bytes += more_bytes

    def _drop(self, connection: Connection, answer: _Answer) -> None:
        del self._answers[connection]
        self._count(answer, -answer.size_bytes)
        self._grant_waiting()

    def _grant_waiting(self) -> None:
        while self._waiters:
            connection, (size_bytes, granted) = next(iter(self._waiters.items()))
            if not self._fits(size_bytes):
                return
            del self._waiters[connection]
            self._waiting_bytes -= size_bytes
            self._take(connection, size_bytes)
            # Not at once: whoever made the room is in the middle of something.
            self._loop.call_soon(granted)

    # While there is no room

    def _is_short(self) -> bool:
        return bool(self._waiters) or not self.left_bytes()

    def _watch(self) -> None:
        if self._timer is None and self._is_short():
            self._timer = self._loop.call_later(self.pace.check_interval_s, self._cut_off_the_slow)

    def _cut_off_the_slow(self) -> None:
        self._timer = None
        if self._is_short():
            for connection, reason in self.pace.too_slow(self._measured(), self._loop.time()):
                connection.abort(reason)
        else:
            self.pace.forget_all()
        self._watch()

    def _measured(self) -> Iterator[tuple[Connection, Standing]]:
        for connection, answer in self._answers.items():
            if answer.is_sent and not connection.is_closed:
                done_bytes = answer.size_bytes - connection.unsent_bytes
                yield connection, Standing(Doing.TAKING_ANSWER, answer.size_bytes, done_bytes)
