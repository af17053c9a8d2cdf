"""How long to wait before trying again: longer after each failure, never quite the same for two who failed together."""

from __future__ import annotations

from random import Random
from typing import Final

_JITTER: Final = 0.2


class Backoff:
    """Waiting times of one peer. Time is handed in.

    Guarantees: the first try is free; a wait is at least 80 % of `base_ms` and at most `max_ms`; a success makes the
    next failure the first one again.
    """

    __slots__ = ("_base_ms", "_failure_count", "_max_ms", "_next_at_ms", "_randomness")

    def __init__(self, base_ms: int, max_ms: int, randomness: Random) -> None:
        self._base_ms = base_ms
        self._max_ms = max(base_ms, max_ms)
        self._randomness = randomness
        self._failure_count = 0
        self._next_at_ms: float | None = None

    @property
    def failure_count(self) -> int:
        """Failures since the last success."""
        return self._failure_count

    def succeeded(self) -> None:
        self._failure_count = 0
        self._next_at_ms = None

    def failed(self, now_ms: float) -> None:
        self._next_at_ms = now_ms + self._delay_ms()
        self._failure_count += 1

    def wait_ms(self, now_ms: float) -> float:
        """How long from now until the next try may begin."""
        return 0.0 if self._next_at_ms is None else max(0.0, self._next_at_ms - now_ms)

    def _delay_ms(self) -> float:
        return grown(self._base_ms, self._max_ms, self._failure_count, self._randomness)


def grown(base_ms: int, max_ms: int, failure_count: int, randomness: Random) -> float:
    """`base_ms`, doubled for each failure, with jitter, up to `max_ms`."""
    if base_ms <= 0:
        return 0.0
    # Beyond 32 doublings nothing is below the limit, and floats would overflow.
    exact_ms = float(base_ms << min(failure_count, 32))
    return min(float(max_ms), exact_ms * randomness.uniform(1 - _JITTER, 1 + _JITTER))
