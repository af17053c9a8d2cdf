"""Counts what a node does in one callback of the event loop: calls of functions, and bytes that it comes to hold.

The counts do not rely on what the node's own parts say of their work: the interpreter reports every call, and every
allocation. Calls in another thread do not count, since nobody waits for them; bytes do.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from barnabas.testing.sim import loop as loop_module
from barnabas.testing.sim.runtime import SimulatedRuntime


class Meter:
    """The most that was done in one callback since `reset`, and all of it together."""

    def __init__(self) -> None:
        self.most_calls = 0
        self.total_calls = 0
        self._calls = 0

    def reset(self) -> None:
        self.most_calls = self.total_calls = 0

    def note(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" or event == "c_call":
            self._calls += 1

    def run(self, callback: Callable[[], object]) -> None:
        self._calls = 0
        sys.setprofile(self.note)
        try:
            callback()
        finally:
            sys.setprofile(None)
            self.most_calls = max(self.most_calls, self._calls)
            self.total_calls += self._calls

    @contextmanager
    def pausing(self) -> Iterator[None]:
        profile = sys.getprofile()
        sys.setprofile(None)
        try:
            yield
        finally:
            sys.setprofile(profile)


@contextmanager
def metered() -> Iterator[Meter]:
    """Count every callback of simulated processes."""
    meter = Meter()
    offload = SimulatedRuntime.offload
    with pytest.MonkeyPatch.context() as patch:
        _watch_processes(patch, meter.run)

        def uncounted(runtime: SimulatedRuntime, work: Callable[[], Any]) -> Any:
            def elsewhere() -> Any:
                with meter.pausing():
                    return work()

            return offload(runtime, elsewhere)

        patch.setattr(SimulatedRuntime, "offload", uncounted)
        yield meter


class MemoryMeter:
    """The most bytes that nodes held at a time since `reset`, beyond what they held then.

    What a node makes and its peer lets go of counts as held: an answer that was sent, once more.
    """

    def __init__(self) -> None:
        self.most_bytes = 0
        self._held_bytes = 0

    def reset(self) -> None:
        self.most_bytes = self._held_bytes = 0

    def run(self, callback: Callable[[], None]) -> None:
        before_bytes, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        try:
            callback()
        finally:
            after_bytes, peak_bytes = tracemalloc.get_traced_memory()
            self.most_bytes = max(self.most_bytes, self._held_bytes + peak_bytes - before_bytes)
            self._held_bytes += after_bytes - before_bytes


@contextmanager
def memory_metered() -> Iterator[MemoryMeter]:
    """Count the bytes of all simulated processes."""
    meter = MemoryMeter()
    tracemalloc.start(1)
    try:
        with pytest.MonkeyPatch.context() as patch:
            _watch_processes(patch, meter.run)
            yield meter
    finally:
        tracemalloc.stop()


def _watch_processes(patch: pytest.MonkeyPatch, watched: Callable[[Callable[[], None]], None]) -> None:
    """Have every callback of a simulated process run by `watched`."""
    for kind in (loop_module._Handle, loop_module._TimerHandle):
        run = kind._run

        def counted(handle: Any, run: Callable[[Any], None] = run) -> None:
            if handle.process is None:
                run(handle)
            else:
                watched(lambda: run(handle))

        patch.setattr(kind, "_run", counted)
