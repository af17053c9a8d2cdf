"""The real world for a node: the machine's clock, real randomness, a bounded pool of threads, a fast event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any, Final, TypeVar

from barnabas.base.runtime import SystemClock

T = TypeVar("T")

_SEED_BYTES: Final = 32
#: Enough for a sync to go on beside a compaction and a compression; more threads only fight for the same cores.
_MAX_THREADS: Final = 4


class SystemRuntime:
    """The `Runtime` of a node that is not simulated."""

    def __init__(self, max_threads: int = _MAX_THREADS) -> None:
        self._clock = SystemClock()
        self._randomness = Random(int.from_bytes(os.urandom(_SEED_BYTES), "big"))
        self._pool = ThreadPoolExecutor(max_threads, thread_name_prefix="barnabas")

    @property
    def clock(self) -> SystemClock:
        return self._clock

    @property
    def randomness(self) -> Random:
        return self._randomness

    def offload(self, work: Callable[[], T]) -> Awaitable[T]:
        return asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        """Wait for the work that was begun; what waits for a thread is not begun any more."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's, or asyncio's where uvloop is not installed, as on Windows."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run(main: Awaitable[Any]) -> None:
    """Run to the end on an event loop of our own, then close it with all that is left on it."""

    async def whole() -> None:
        await main

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(whole())
