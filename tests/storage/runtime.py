"""A runtime that does blocking work at once, on a clock that is moved by hand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

from barnabas.base.runtime import ManualClock
from tests.storage.logs import NOW_MS

T = TypeVar("T")


class InlineRuntime:
    """`before` and `after` are called once, while work waits for its thread, or while its result waits for the loop."""

    def __init__(self, seed: int = 1) -> None:
        self.clock = ManualClock(NOW_MS)
        self.randomness = Random(seed)
        self.before: Callable[[], object] | None = None
        self.after: Callable[[], object] | None = None

    def offload(self, work: Callable[[], T]) -> Awaitable[T]:
        async def done() -> T:
            before, self.before = self.before, None
            if before is not None:
                before()
            try:
                return work()
            finally:
                after, self.after = self.after, None
                if after is not None:
                    after()

        return done()
