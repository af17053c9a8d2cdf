"""The real world behind a `Runtime`: the machine's clock, real randomness, a bounded pool of threads."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from random import Random
from typing import Final, TypeVar

from barnabas.base.runtime import SystemClock

T = TypeVar("T")

_SEED_BYTES: Final = 32
#: Enough for a sync to go on beside a compaction and a compression; more threads only fight for the same cores.
_MAX_THREADS: Final = 4


class SystemRuntime:
    """The `Runtime` of a node that is not simulated."""

    def __init__(self, max_threads: int = _MAX_THREADS) -> None:
        self._clock = SystemClock()
        self._randomness = new_randomness()
        self._pool = ThreadPoolExecutor(max_threads, thread_name_prefix="barnabas")

    @property
    def clock(self) -> SystemClock:
        return self._clock

    @property
    def randomness(self) -> Random:
        return self._randomness

    def offload(self, work: Callable[[], T]) -> Awaitable[T]:
        # What it logs says whose it is, as elsewhere.
        return asyncio.get_running_loop().run_in_executor(self._pool, copy_context().run, work)

    def close(self) -> None:
        """Wait for the work that was begun; what waits for a thread is not begun any more."""
        self._pool.shutdown(wait=True, cancel_futures=True)


class SystemRandomness(Random):
    """Chance that nobody can foresee the beginning of; its bytes, of which secrets are made, not at any time. Numbers
    are drawn often and give nothing away, so they come from a faster source, which whoever sees many could foresee."""

    def randbytes(self, n: int) -> bytes:
        return os.urandom(n)


def new_randomness() -> Random:
    return SystemRandomness(int.from_bytes(os.urandom(_SEED_BYTES), "big"))
