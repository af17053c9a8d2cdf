"""The process of a node: a fast event loop, and memory that suits it. Its `Runtime` is in `base.system_runtime`."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import sys
from collections.abc import Awaitable
from typing import Any, Final

# Of glibc's mallopt: from which size on memory comes fresh from the kernel, and how much is kept when it is freed.
# Larger buffers than these are rare, and would leave holes that nobody fills.
_MALLOPT_TRIM_THRESHOLD: Final = -1
_MALLOPT_MMAP_THRESHOLD: Final = -3
_REUSED_BYTES: Final = 8 * 1024 * 1024
_KEPT_BYTES: Final = 32 * 1024 * 1024
#: How many collections of younger objects come between two of all.
_OLD_COLLECTIONS_APART: Final = 1000


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's, or asyncio's where uvloop is not installed, as on Windows."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def reuse_large_buffers() -> bool:
    """Have memory for frames and reads used again instead of returned; whether this machine's allocator can be told.

    By default glibc takes each buffer of a megabyte or so from the kernel, which clears every page of it, and gives it
    back at once: that costs twice as much as all else that a large fetch needs. What is kept is bounded.
    """
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have none
    if mallopt is None:
        return False
    return bool(mallopt(_MALLOPT_MMAP_THRESHOLD, _REUSED_BYTES) and mallopt(_MALLOPT_TRIM_THRESHOLD, _KEPT_BYTES))


def collect_garbage_rarely() -> None:
    """For a process that serves: what has been made until now stays, and all objects are looked through seldom.

    By default Python does that after some 70,000 new objects, and everybody waits meanwhile: a tenth of a second while
    a request with very many elements is in memory. Cycles are rare here, and nearly all of them die young, which the
    frequent collections of young objects see.
    """
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _OLD_COLLECTIONS_APART)


def run(main: Awaitable[Any]) -> None:
    """Run to the end on an event loop of our own, then close it with all that is left on it."""
    reuse_large_buffers()

    async def whole() -> None:
        await main

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(whole())
