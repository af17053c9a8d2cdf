"""A runtime that does blocking work at once, on a clock that is moved by hand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

from barnabas.base.runtime import ManualClock
from tests.storage.logs import NOW_MS

T = TypeVar("T")


class InlineRuntime:
    def __init__(self, seed: int = 1) -> None:
        self.clock = ManualClock(NOW_MS)
        self.randomness = Random(seed)

    def offload(self, work: Callable[[], T]) -> Awaitable[T]:
        async def done() -> T:
            return work()

        return done()
