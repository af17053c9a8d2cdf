"""Sending at a given pace."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

#: Shorter sleeps cost more than they are worth: what is due meanwhile is sent in one go.
_SHORTEST_SLEEP_S: Final = 0.002


class ThroughputThrottler:
    """How many records are due by now, counted from the start, so that what a pause held up is caught up with.

    A rate below 0 means as fast as possible, and 0 never.
    """

    def __init__(self, per_second: float, sleep: Callable[[float], object] = time.sleep) -> None:
        self._per_second = per_second
        self._sleep = sleep
        self._start = time.monotonic()

    def due(self, sent: int, most: int) -> int:
        """How many may go now, at most `most`; sleeps first if there is none, and may still give 0 after that."""
        if self._per_second < 0:
            return most
        if self._per_second == 0:
            self._sleep(1.0)
            return 0
        elapsed = time.monotonic() - self._start
        count = int(elapsed * self._per_second) + 1 - sent
        if count <= 0:
            self._sleep(max(_SHORTEST_SLEEP_S, sent / self._per_second - elapsed))
            return 0
        return min(count, most)
