"""The garbage collector rests while a seed is run: a world is garbage only once it is over."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from barnabas.testing.sim.world import unwarned

__all__ = ["resting_collector"]


@contextmanager
def resting_collector() -> Iterator[None]:
    """Nothing is collected within the block, which would be looking in vain, a fifth of the time. At its end goes what
    was made in it and nobody holds any more: all of that is young, so nothing older is looked through for it."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        with unwarned():
            gc.collect(0)
        if was_enabled:
            gc.enable()
