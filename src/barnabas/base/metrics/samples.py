"""A quantity that is measured again and again, and what can be told about it: averages, extremes, rates, totals.

A sample covers a span of time (`metrics.sample.window.ms`); as many full ones as `metrics.num.samples` says are kept
beside the one that is being filled. Averages and extremes are of what they hold, rates are over the time that they
span. The arithmetic is Kafka's, so numbers of both can stand on one dashboard. One thing differs: reading never changes
anything here, so any thread may read while another records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

NAN: Final = float("nan")
HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class Windows:
    """How many samples there are and how long each is."""

    num_samples: int = 2
    window_ms: int = 30_000


class _Sample(NamedTuple):
    start_ms: int
    last_ms: int
    recordings: int
    sum: float
    max: float
    min: float


class Sampled:
    """One quantity. `record` is the only thing that happens while a client works; the rest is for who reads.

    Recordings of one quantity must not overlap: they come from one thread, or under a lock of the caller.
    """

    __slots__ = (
        "_count",
        "_count_before",
        "_expiry_ms",
        "_full",
        "_last_ms",
        "_max",
        "_min",
        "_num_samples",
        "_start_ms",
        "_sum",
        "_sum_before",
        "_until_ms",
        "_window_ms",
    )

    def __init__(self, windows: Windows) -> None:
        self._num_samples = windows.num_samples
        self._window_ms = max(1, windows.window_ms)
        self._expiry_ms = self._num_samples * self._window_ms
        self._full: deque[_Sample] = deque(maxlen=self._num_samples)
        # Since the start, and what they were when the sample in hand began. So a total never falls, not even for a
        # moment, while another thread reads it.
        self._count = 0
        self._sum = 0.0
        self._count_before = 0
        self._sum_before = 0.0
        # The sample in hand lies flat in the object: a recording then touches nothing else.
        self._until_ms = -(1 << 62)
        self._start_ms = 0
        self._last_ms = 0
        self._max = 0.0
        self._min = 0.0

    def record(self, value: float, now_ms: int) -> None:
        if now_ms >= self._until_ms:
            self._begin(value, now_ms)
        self._count += 1
        self._sum += value
        self._last_ms = now_ms
        if value > self._max:
            self._max = value
        elif value < self._min:
            self._min = value

    def _begin(self, value: float, now_ms: int) -> None:
        """Put the sample in hand to the full ones and start another."""
        if self._count:
            self._full.append(self._in_hand())
            self._count_before = self._count
            self._sum_before = self._sum
        self._start_ms = now_ms
        self._until_ms = now_ms + self._window_ms
        self._max = self._min = value

    def _in_hand(self) -> _Sample:
        recordings, total = self._count - self._count_before, self._sum - self._sum_before
        return _Sample(self._start_ms, self._last_ms, recordings, total, self._max, self._min)

    def _recent(self, now_ms: int) -> list[_Sample]:
        """The samples whose last recording is young enough to count."""
        samples = [*self._full, self._in_hand()]
        return [each for each in samples if each.recordings and now_ms - each.last_ms < self._expiry_ms]

    def _span_ms(self, samples: list[_Sample], now_ms: int) -> int:
        """The time that a rate is over. Short of enough full samples it is made longer, or a first recording that is
        only a moment old would look like a flood."""
        elapsed_ms = now_ms - min((each.start_ms for each in samples), default=now_ms)
        missing = self._num_samples - 1 - elapsed_ms // self._window_ms
        return max(1, elapsed_ms + max(0, missing) * self._window_ms)

    def average(self, now_ms: int) -> float:
        samples = self._recent(now_ms)
        return sum(each.sum for each in samples) / sum(each.recordings for each in samples) if samples else NAN

    def largest(self, now_ms: int) -> float:
        return max((each.max for each in self._recent(now_ms)), default=NAN)

    def smallest(self, now_ms: int) -> float:
        return min((each.min for each in self._recent(now_ms)), default=NAN)

    def sum_per_ms(self, now_ms: int) -> float:
        samples = self._recent(now_ms)
        return sum(each.sum for each in samples) / self._span_ms(samples, now_ms)

    def count_per_ms(self, now_ms: int) -> float:
        samples = self._recent(now_ms)
        return sum(each.recordings for each in samples) / self._span_ms(samples, now_ms)

    def total(self, now_ms: int) -> float:
        return float(self._sum)

    def count(self, now_ms: int) -> float:
        return float(self._count)


class LatestValue:
    """A quantity of which also the latest value is told, such as the lag of a partition."""

    __slots__ = ("sampled", "value")

    def __init__(self, windows: Windows) -> None:
        self.sampled = Sampled(windows)
        self.value = NAN

    def record(self, value: float, now_ms: int) -> None:
        self.value = value
        self.sampled.record(value, now_ms)

    def latest(self, now_ms: int) -> float:
        return self.value


class Stat(NamedTuple):
    """One thing that can be told about a quantity."""

    measure: Callable[[Sampled, int], float]
    is_counter: bool = False


AVG: Final = Stat(Sampled.average)
MAX: Final = Stat(Sampled.largest)
MIN: Final = Stat(Sampled.smallest)
#: The sum of the values per second, and since the start.
RATE: Final = Stat(lambda sampled, now_ms: sampled.sum_per_ms(now_ms) * 1000)
TOTAL: Final = Stat(Sampled.total, is_counter=True)
#: How often something was recorded, per second, per hour, and since the start.
COUNT_RATE: Final = Stat(lambda sampled, now_ms: sampled.count_per_ms(now_ms) * 1000)
COUNT_PER_HOUR: Final = Stat(lambda sampled, now_ms: sampled.count_per_ms(now_ms) * HOUR_MS)
COUNT_TOTAL: Final = Stat(Sampled.count, is_counter=True)
#: The part of the time that something took whose values are nanoseconds.
RATIO_OF_NS: Final = Stat(lambda sampled, now_ms: sampled.sum_per_ms(now_ms) / 1_000_000)
