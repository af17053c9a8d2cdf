"""What happened in a simulated world, as a hash: two runs with the same hash did the same things at the same times."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from hashlib import blake2b

__all__ = ["Trace"]


class Trace:
    """Collects events. `tail` holds the last lines, for the person who reads a failure; `keep_all` keeps every line."""

    def __init__(self, time: Callable[[], float], *, keep_all: bool = False, tail_lines: int = 40) -> None:
        self._time = time
        self._hash = blake2b(digest_size=16)
        self.event_count = 0
        self.tail: deque[str] = deque(maxlen=None if keep_all else tail_lines)

    def record(self, kind: str, *details: object) -> None:
        """An event: what it was, and numbers or texts that are the same in every run of the seed."""
        line = f"{self._time():.9f} {kind} {' '.join(map(str, details))}"
        self._hash.update(line.encode())
        self._hash.update(b"\n")
        self.event_count += 1
        self.tail.append(line)

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


def digest(data: bytes | bytearray | memoryview) -> str:
    """A short name for bytes."""
    return blake2b(data, digest_size=6).hexdigest()
