"""What happened in a simulated world, as a hash: two runs with the same hash did the same things at the same times."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from typing import Final

__all__ = ["Trace"]

_HASHED_TOGETHER: Final = 256


class Trace:
    """Collects events. `tail` holds the last lines, for the person who reads a failure; `keep_all` keeps every line."""

    def __init__(self, time: Callable[[], float], *, keep_all: bool = False, tail_lines: int = 40) -> None:
        self._time = time
        self._told_s = -1.0
        self._time_text = ""
        self._hash = blake2b(digest_size=16)
        #: What is not hashed yet. Some hundred lines at once cost a fraction of one by one.
        self._unhashed: list[str] = []
        self.event_count = 0
        self.tail: deque[str] = deque(maxlen=None if keep_all else tail_lines)

    def record(self, kind: str, *details: object) -> None:
        """An event: what it was, and numbers or texts that are the same in every run of the seed."""
        now_s = self._time()
        if now_s != self._told_s:  # much happens at the same instant
            self._told_s, self._time_text = now_s, f"{now_s:.9f}"
        line = f"{self._time_text} {kind} {' '.join(map(str, details))}"
        self.event_count += 1
        self.tail.append(line)
        unhashed = self._unhashed
        unhashed.append(line)
        if len(unhashed) >= _HASHED_TOGETHER:
            self._catch_up()

    def _catch_up(self) -> None:
        self._unhashed.append("")  # every line has an end
        self._hash.update("\n".join(self._unhashed).encode())
        self._unhashed.clear()

    def hexdigest(self) -> str:
        if self._unhashed:
            self._catch_up()
        return self._hash.hexdigest()


def digest(data: bytes | bytearray | memoryview) -> str:
    """A short name for bytes."""
    return blake2b(data, digest_size=6).hexdigest()
