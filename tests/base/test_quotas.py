"""Rates over sampled windows and buckets of tokens, by hand and against naive twins."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.quotas import MAX_THROTTLE_MS, QuotaWindow, SampledRate, TokenBucket

WINDOW = QuotaWindow(11, 1000)


def test_who_has_just_begun_is_measured_over_ten_samples() -> None:
    rate = SampledRate(WINDOW)
    rate.record(5000, 0)
    assert rate.measure(0) == 500, "10 whole samples, and nothing of the eleventh"
    assert rate.measure(500) == 5000 / 10.5
    assert rate.throttle_ms(500, 0) == 0
    assert rate.throttle_ms(400, 0) == 2500, "(500 - 400) / 400 of 10 s"


def test_after_the_throttle_time_the_rate_is_within_the_bound() -> None:
    rate = SampledRate(WINDOW)
    for now_ms in range(0, 10_000, 100):
        rate.record(100, now_ms)
    assert rate.throttle_ms(800, 10_000) == 2500
    rate.record(0, 12_500)
    assert rate.measure(12_500) <= 800


def test_the_oldest_sample_goes_when_nothing_in_it_is_in_the_window() -> None:
    rate = SampledRate(WINDOW)
    rate.record(1100, 0)
    rate.record(1100, 900)
    assert rate.measure(11_000) == 200, "it began before the window, and ended in it"
    assert rate.measure(11_899) > 0
    assert rate.measure(11_900) == 0
    assert rate.is_forgotten(11_900)


def test_what_was_not_used_can_be_taken_back() -> None:
    rate = SampledRate(WINDOW)
    rate.record(700, 100)
    rate.record(300, 100)
    rate.record(-300, 100)
    assert rate.measure(100) == 70


def test_a_throttle_time_fits_into_the_protocol() -> None:
    rate = SampledRate(WINDOW)
    rate.record(2.0**60, 0)
    assert rate.throttle_ms(1, 0) == MAX_THROTTLE_MS


class NaiveRate:
    """Every event, and samples cut from them: a sample lasts until the first event a sample's time after its begin."""

    def __init__(self, window: QuotaWindow) -> None:
        self.window = window
        self.samples: list[list[tuple[int, int]]] = []

    def record(self, value: int, now_ms: int) -> None:
        self._forget(now_ms)
        if not self.samples or now_ms - self.samples[-1][0][0] >= self.window.sample_ms:
            self.samples.append([])
        self.samples[-1].append((now_ms, value))
        del self.samples[: -(self.window.samples + 1)]

    def _forget(self, now_ms: int) -> None:
        age_ms = self.window.samples * self.window.sample_ms
        self.samples = [each for each in self.samples if now_ms - each[-1][0] < age_ms]

    def window_ms(self, now_ms: int) -> int:
        self._forget(now_ms)
        begin_ms = self.samples[0][0][0] if self.samples else now_ms
        elapsed_ms = now_ms - begin_ms
        whole, least = elapsed_ms // self.window.sample_ms, self.window.samples - 1
        return max(1, elapsed_ms + max(0, least - whole) * self.window.sample_ms)

    def measure(self, now_ms: int) -> Fraction:
        total = sum(value for sample in self.samples for _, value in sample)
        return Fraction(total * 1000, self.window_ms(now_ms))


steps = st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 10_000)), min_size=1, max_size=60)
windows = st.builds(QuotaWindow, st.integers(1, 12), st.sampled_from((100, 1000, 3000)))


@given(windows, steps, st.integers(1, 5000))
def test_a_rate_measures_what_its_naive_twin_does(
    window: QuotaWindow, events: list[tuple[int, int]], bound: int
) -> None:
    rate, twin, now_ms = SampledRate(window), NaiveRate(window), 1000
    for passed_ms, value in events:
        now_ms += passed_ms
        rate.record(value, now_ms)
        twin.record(value, now_ms)
        expected = twin.measure(now_ms)
        assert abs(rate.measure(now_ms) - expected) <= Fraction(1, 10**6)
        over = max(Fraction(0), (expected - bound) / bound * twin.window_ms(now_ms))
        assert abs(rate.throttle_ms(bound, now_ms) - over) <= 1


def test_a_bucket_gives_what_it_holds_and_more_and_refills_at_its_rate() -> None:
    bucket = TokenBucket(WINDOW)
    assert bucket.tokens(5, 123) == 55, "full, whatever time it is"
    bucket.take(60, 5, 123)
    assert bucket.tokens(5, 123) == -5
    assert bucket.throttle_ms(5, 123) == 1000
    assert bucket.throttle_ms(5, 1122) == 1
    assert bucket.throttle_ms(5, 1123) == 0
    assert bucket.tokens(5, 100_000) == 55
    assert bucket.tokens(2, 100_000) == 22, "a smaller quota makes a smaller bucket"


def test_a_bucket_is_not_changed_by_who_looks_and_is_forgotten_when_it_is_full() -> None:
    bucket = TokenBucket(WINDOW)
    assert bucket.is_forgotten(5, 0)
    bucket.take(60, 5, 0)
    for now_ms in range(100, 11_999, 100):
        assert bucket.tokens(1, now_ms) < bucket.tokens(5, now_ms)
        assert not bucket.is_forgotten(5, now_ms)
    assert not bucket.is_forgotten(5, 11_999)
    assert bucket.is_forgotten(5, 12_000)
    bucket.take(0, 5, 12_000)
    assert not bucket.is_forgotten(6, 12_000), "a larger quota has a larger bucket"


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 50)), max_size=60), st.integers(1, 20))
def test_a_bucket_holds_what_its_naive_twin_does(events: list[tuple[int, int]], rate: int) -> None:
    bucket, now_ms, full = TokenBucket(WINDOW), 0, Fraction(11 * rate)
    tokens = full
    for passed_ms, taken in events:
        now_ms += passed_ms
        tokens = min(full, tokens + Fraction(rate * passed_ms, 1000)) - taken
        bucket.take(taken, rate, now_ms)
        assert abs(bucket.tokens(rate, now_ms) - tokens) <= Fraction(1, 10**6)
        wait_ms = max(Fraction(0), -tokens / rate * 1000)
        assert abs(bucket.throttle_ms(rate, now_ms) - wait_ms) <= 1
