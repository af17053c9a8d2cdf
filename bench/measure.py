"""Timing that is fair to all: contestants take turns, and each is judged by its best round."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import NamedTuple


class Result(NamedTuple):
    """One line of the table. `target` is the least ratio that we want; None where the ratio is only told. Rates of two
    processes that share two cores swing by some percent: just below the target the ratio of `cpu` time decides."""

    name: str
    ratio: float
    target: float | None
    detail: str
    cpu: float = 0.0

    @property
    def verdict(self) -> str:
        if self.target is None:
            return ""
        if self.ratio >= self.target:
            return "ok"
        return "cpu" if self.ratio >= _NEARLY * self.target and self.cpu >= self.target else "MISS"


_NEARLY = 0.95
_QUICK_ROUNDS = 3
_is_quick = False
#: The sources of another checkout of ours to measure against, if that was asked for.
against: str | None = None


def be_quick() -> None:
    """From now on few rounds have to do."""
    global _is_quick
    _is_quick = True


def best_seconds(
    *contestants: Callable[[], object], rounds: int = 15, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """The best time of each contestant, over rounds in which they alternate."""
    best = [float("inf")] * len(contestants)
    gc.collect()
    gc.disable()
    try:
        for _ in range(min(rounds, _QUICK_ROUNDS) if _is_quick else rounds):
            for index, contestant in enumerate(contestants):
                start = clock()
                contestant()
                best[index] = min(best[index], clock() - start)
    finally:
        gc.enable()
    return best
