"""How fast somebody was, and how long they must wait: the machines behind every quota.

Pure: they take `now_ms` and keep sums. Rates are over sampled windows, as in Kafka: a fixed number of samples, of which
the oldest is given up when the newest is full. Changes at the controller have a bucket of tokens instead (KIP-599): one
that is large may be followed by a long silence, which a rate over samples would forget about.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

#: Nobody waits longer: it is told in 32 bits.
MAX_THROTTLE_MS: Final = 2**31 - 1


class QuotaWindow(NamedTuple):
    """Over how many samples, of which length, a rate is measured."""

    samples: int = 11
    sample_ms: int = 1000


DEFAULT_WINDOW: Final = QuotaWindow()


class _Sample:
    __slots__ = ("last_event_ms", "start_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        self.start_ms = self.last_event_ms = now_ms
        self.value = 0.0


class SampledRate:
    """What was recorded per second. Kafka's `Rate`, to the last bit.

    Guarantee: with all samples but one empty or full, a value of `bound * (samples - 1) * sample_ms / 1000` recorded at
    once does not exceed the bound.
    """

    __slots__ = ("_current", "_samples", "_window")

    def __init__(self, window: QuotaWindow) -> None:
        self._window = window
        self._samples: list[_Sample] = []
        self._current = 0

    def record(self, value: float, now_ms: int) -> None:
        if not self._samples:
            self._samples.append(_Sample(now_ms))
        sample = self._samples[self._current]
        if now_ms - sample.start_ms >= self._window.sample_ms:
            sample = self._advance(now_ms)
        sample.value += value
        sample.last_event_ms = now_ms

    def measure(self, now_ms: int) -> float:
        """Per second."""
        return self._total(now_ms) / (self.window_ms(now_ms) / 1000)

    def window_ms(self, now_ms: int) -> int:
        """The time that counts: all but one of the samples, also if they are not there yet, and what has passed of the
        last one. Else who has just begun would be very fast."""
        self._forget_obsolete(now_ms)
        elapsed_ms = now_ms - min((each.start_ms for each in self._samples), default=now_ms)
        missing = self._window.samples - 1 - elapsed_ms // self._window.sample_ms
        return max(elapsed_ms + max(missing, 0) * self._window.sample_ms, 1)

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """How long nothing must be recorded until the rate is within the bound; 0 if it is."""
        rate = self.measure(now_ms)
        if rate <= bound:
            return 0
        return _rounded((rate - bound) / bound * self.window_ms(now_ms)) if bound > 0 else MAX_THROTTLE_MS

    def credit(self, bound: float, now_ms: int) -> tuple[float, int]:
        """How much may be recorded from now until when with no look at the samples: it does not exceed the bound for
        certain, since the time that counts is never shorter than all samples but one. It ends when a sample does, by
        its length or because it is forgotten: that has to be seen then, as it is by those who look each time."""
        window = self._window
        left = bound * (window.samples - 1) * window.sample_ms / 1000 - self._total(now_ms)
        if not self._samples:
            return left, now_ms
        forgotten_ms = min(each.last_event_ms for each in self._samples) + window.samples * window.sample_ms
        return left, min(self._samples[self._current].start_ms + window.sample_ms, forgotten_ms)

    def is_forgotten(self, now_ms: int) -> bool:
        """Whether one that has just begun would measure the same."""
        return not self._total(now_ms)

    def _advance(self, now_ms: int) -> _Sample:
        # One more than are counted: the oldest may have begun before the time that counts, and ended in it.
        self._current = (self._current + 1) % (self._window.samples + 1)
        if self._current >= len(self._samples):
            self._samples.append(_Sample(now_ms))
        else:
            self._samples[self._current].reset(now_ms)
        return self._samples[self._current]

    def _total(self, now_ms: int) -> float:
        self._forget_obsolete(now_ms)
        total = 0.0
        for each in self._samples:  # not `sum`, which has become more exact than Kafka
            total += each.value
        return total

    def _forget_obsolete(self, now_ms: int) -> None:
        obsolete_ms = self._window.samples * self._window.sample_ms
        for each in self._samples:
            if now_ms - each.last_event_ms >= obsolete_ms:
                each.reset(now_ms)


class TokenBucket:
    """Tokens that come back at a rate, up to what comes in a whole window. Kafka's `TokenBucket`.

    More may be taken than there are: then it is empty, below zero, until they have come back.
    """

    __slots__ = ("_tokens", "_updated_ms", "_window_s")

    def __init__(self, window: QuotaWindow) -> None:
        self._window_s = window.samples * (window.sample_ms / 1000)
        #: It is full when it is first used, whatever the clock began with.
        self._tokens = math.inf
        self._updated_ms = 0

    def take(self, tokens: float, rate: float, now_ms: int) -> None:
        """Also none: what came back until now came at this rate, whatever it is later."""
        self._tokens = min(self._window_s * rate, self.tokens(rate, now_ms) - tokens)
        self._updated_ms = now_ms

    def tokens(self, rate: float, now_ms: int) -> float:
        """How many there are, at this rate; negative if too many were taken."""
        passed_s = (now_ms - self._updated_ms) / 1000
        return min(self._window_s * rate, self._tokens + rate * passed_s)

    def throttle_ms(self, rate: float, now_ms: int) -> int:
        """How long until it is not below zero any more."""
        tokens = self.tokens(rate, now_ms)
        return 0 if tokens >= 0 else _rounded(-tokens / rate * 1000)

    def is_forgotten(self, rate: float, now_ms: int) -> bool:
        """Whether it is full, as is one that nothing was taken from."""
        return self.tokens(rate, now_ms) >= self._window_s * rate


def _rounded(throttle_ms: float) -> int:
    """As Java rounds: halves go up."""
    return math.floor(min(throttle_ms, MAX_THROTTLE_MS) + 0.5)
