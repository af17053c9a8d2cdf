"""A disk that is full, or descriptors that have run out: told when it begins, while it lasts, and when it is over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from barnabas.base.log_context import logger

_log = logger("barnabas.storage")

TELL_AGAIN_MS: Final = 60_000


class PassingTrouble:
    """What one directory refuses for a reason that passes.

    Its partitions answer with an error each time, which only clients see; here it is told once in a minute for all of
    them. That it is over is known by the next thing that was written. May be called from any thread: two that meet
    may tell the same twice, or count one less.
    """

    def __init__(self, directory: str, monotonic_ms: Callable[[], int]) -> None:
        self._directory = directory
        self._monotonic_ms = monotonic_ms
        self.is_there = False
        self._count = 0
        self._told_ms: int | None = None
        self._is_told = False

    def refused(self, reason: str, what: str) -> None:
        """Something could not be done now."""
        self.is_there = True
        self._count += 1
        now_ms = self._monotonic_ms()
        if self._told_ms is None or now_ms - self._told_ms >= TELL_AGAIN_MS:
            self._told_ms = now_ms
            self._is_told = True
            _log.error(
                "log directory %s: %s; refused until that has passed: %s", self._directory, reason, self._all(what)
            )

    def _all(self, what: str) -> str:
        return what if self._count == 1 else f"{what}, and {self._count - 1:,} times before"

    def passed(self) -> None:
        """Something was written."""
        if not self.is_there:
            return
        self.is_there = False
        if self._is_told:
            # On a disk with hardly any room small writes succeed between large ones: what was not told needs no end.
            self._is_told = False
            _log.warning(
                "log directory %s works again; %s times something was refused", self._directory, f"{self._count:,}"
            )
            self._count = 0
