"""What a node is handed instead of the world: time, chance, and a door for work that blocks.

The cores take `now_ms` as an argument. What runs them takes a `Runtime`: the real one reads the machine's clock, the
simulator's moves only when told. Nothing below the shells may reach for `time`, `random` or a thread by itself.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from random import Random
from typing import Protocol, TypeVar

T = TypeVar("T")


class Clock(Protocol):
    """Two readings of time: one that people understand, one that never goes back."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, for timestamps that people and other machines see."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since some fixed moment, for timeouts."""
        ...


class Runtime(Protocol):
    """The seam between a node and the world."""

    @property
    def clock(self) -> Clock: ...

    @property
    def randomness(self) -> Random: ...

    def offload(self, work: Callable[[], T]) -> Awaitable[T]:
        """Run blocking work (an fsync, a big compression) away from the event loop, in a bounded pool."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class ManualClock:
    """A clock that stands still until it is moved; for tests and simulation."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance(self, by_ms: int) -> None:
        if by_ms < 0:
            raise ValueError(f"a clock does not go back ({by_ms} ms)")
        self._now_ms += by_ms
        self._monotonic_ms += by_ms
