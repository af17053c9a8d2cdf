"""Waiting times grow with failures, within bounds."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from barnabas.net.backoff import Backoff


@given(
    base_ms=st.integers(1, 1000),
    max_ms=st.integers(1, 100_000),
    failures=st.integers(1, 100),
    seed=st.integers(0, 2**32),
)
def test_waits_stay_between_the_base_and_the_limit(base_ms: int, max_ms: int, failures: int, seed: int) -> None:
    backoff = Backoff(base_ms, max_ms, Random(seed))
    highest_ms = max(base_ms, max_ms)
    assert backoff.wait_ms(0) == 0
    for failure in range(failures):
        backoff.failed(now_ms=1000)
        exact_ms = min(base_ms * 2**failure, highest_ms)
        assert 0.8 * exact_ms <= backoff.wait_ms(1000) <= min(1.2 * exact_ms, highest_ms) + 1e-6
    assert backoff.failure_count == failures
    assert backoff.wait_ms(1000 + highest_ms) == 0


def test_a_success_starts_anew() -> None:
    backoff = Backoff(50, 1000, Random(1))
    for _ in range(10):
        backoff.failed(0)
    assert backoff.wait_ms(0) > 700
    backoff.succeeded()
    assert (backoff.wait_ms(0), backoff.failure_count) == (0, 0)
    backoff.failed(0)
    assert backoff.wait_ms(0) <= 60


def test_two_who_failed_together_do_not_come_back_together() -> None:
    waits = set()
    for seed in range(20):
        backoff = Backoff(50, 1000, Random(seed))
        backoff.failed(0)
        waits.add(backoff.wait_ms(0))
    assert len(waits) == 20


def test_no_base_means_no_wait() -> None:
    backoff = Backoff(0, 1000, Random(1))
    backoff.failed(0)
    assert backoff.wait_ms(0) == 0
