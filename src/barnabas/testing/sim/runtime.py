"""Clock, randomness and offloading of a simulated node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import TypeVar

from barnabas.testing.sim.loop import START_S, VirtualTimeLoop

__all__ = ["SimulatedClock", "SimulatedRuntime"]

T = TypeVar("T")

EPOCH_MS = 1_700_000_000_000
"""What the clocks show when a world begins."""


class SimulatedClock:
    """A clock that follows the time of the host on which it is read. `skew_ms` is how far it is off, and may change at
    any time; the monotonic reading does not care."""

    def __init__(self, loop: VirtualTimeLoop, skew_ms: int = 0) -> None:
        self._time = loop.time
        self.skew_ms = skew_ms

    def now_ms(self) -> int:
        return EPOCH_MS + self.skew_ms + round((self._time() - START_S) * 1000)

    def monotonic_ms(self) -> int:
        return int(self._time() * 1000)


class SimulatedRuntime:
    """A `Runtime`. Offloaded work is done at one drawn moment and its result seen at a later one, as with a thread that
    finishes while the loop is busy. Work that was handed over one after the other may be done in another order.
    `max_offload_delay_s` is the longest that each of the two takes; it may change at any time, as with a slow disk."""

    def __init__(
        self, loop: VirtualTimeLoop, random: Random, *, skew_ms: int = 0, max_offload_delay_s: float = 0.005
    ) -> None:
        self._loop = loop
        self._random = random
        self._delays = Random(random.getrandbits(64))
        self.max_offload_delay_s = max_offload_delay_s
        self._clock = SimulatedClock(loop, skew_ms)

    @property
    def clock(self) -> SimulatedClock:
        return self._clock

    @property
    def randomness(self) -> Random:
        return self._random

    def offload(self, work: Callable[[], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self._loop.create_future()
        self._loop.call_later(self._delays.uniform(0, self.max_offload_delay_s), self._work, work, future)
        return future

    def _work(self, work: Callable[[], T], future: asyncio.Future[T]) -> None:
        tell: Callable[[asyncio.Future[T]], None]
        try:
            result = work()
        except Exception as failure:
            error = failure
            tell = lambda future: future.set_exception(error)  # noqa: E731
        else:
            tell = lambda future: future.set_result(result)  # noqa: E731
        self._loop.call_later(self._delays.uniform(0, self.max_offload_delay_s), _unless_cancelled, tell, future)


def _unless_cancelled(tell: Callable[[asyncio.Future[T]], None], future: asyncio.Future[T]) -> None:
    if not future.done():
        tell(future)
