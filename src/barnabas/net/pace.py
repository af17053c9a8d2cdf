"""Who is too slow for memory that others wait for.

A frame that takes longer than half a minute is of no use: its client gives up by then. So a peer must be fast enough
for that, and in any case do 64 KiB in a second, measured over a few seconds. Nobody is measured while nobody waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from barnabas.net.connection import Connection

#: The least that counts as progress, in a second.
MIN_BYTES_PER_S: Final = 64 * 1024
#: In this time a frame or an answer must have come over: the request timeout of Kafka's clients.
FRAME_SECONDS: Final = 30
CHECKS_PER_WINDOW: Final = 3


class Doing(Enum):
    """What a peer does that only it can bring to an end."""

    SENDING_FRAME = "sending its request"
    TAKING_ANSWER = "taking its answer"
    WAITING = "waiting with a large request"


class Standing(NamedTuple):
    """How far a peer has come."""

    doing: Doing
    size_bytes: int
    done_bytes: int


class _Mark(NamedTuple):
    at_s: float
    doing: Doing
    done_bytes: int


class Pace:
    """Measures peers from check to check; `forget_all` when memory is no longer short.

    Guarantee: nobody is too slow before it was watched for `window_s`.
    """

    __slots__ = ("_marks", "window_s")

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self._marks: dict[Connection, _Mark] = {}

    @property
    def check_interval_s(self) -> float:
        return self.window_s / CHECKS_PER_WINDOW

    def forget(self, connection: Connection) -> None:
        """It has to wait for us: its time begins anew."""
        self._marks.pop(connection, None)

    def forget_all(self) -> None:
        self._marks.clear()

    def too_slow(self, peers: Iterable[tuple[Connection, Standing]], now_s: float) -> list[tuple[Connection, str]]:
        """Those of all who are measured now that should go, each with the reason."""
        slow: list[tuple[Connection, str]] = []
        marks: dict[Connection, _Mark] = {}
        for connection, (doing, size_bytes, done_bytes) in peers:
            mark = self._marks.get(connection)
            if mark is None or mark.doing is not doing or done_bytes < mark.done_bytes:
                mark = _Mark(now_s, doing, done_bytes)
            passed_s = now_s - mark.at_s
            if passed_s >= self.window_s:
                if done_bytes - mark.done_bytes < passed_s * max(MIN_BYTES_PER_S, size_bytes / FRAME_SECONDS):
                    slow.append((connection, f"too slow in {doing.value} while others wait for memory"))
                    continue
                mark = _Mark(now_s, doing, done_bytes)
            marks[connection] = mark
        self._marks = marks
        return slow
