"""Averages, extremes and rates over samples, against a story told by hand and against Kafka's own arithmetic."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles import needs_kafka, run_java

from barnabas.base.metrics.samples import (
    AVG,
    COUNT_PER_HOUR,
    COUNT_RATE,
    COUNT_TOTAL,
    MAX,
    MIN,
    RATE,
    RATIO_OF_NS,
    TOTAL,
    Sampled,
    Windows,
)

ALL = (AVG, MAX, MIN, RATE, COUNT_RATE, TOTAL, COUNT_TOTAL)
Story = tuple[Windows, int, list[tuple[int, float]]]


def measured(story: Story) -> list[float]:
    windows, read_at_ms, recordings = story
    sampled = Sampled(windows)
    for now_ms, value in recordings:
        sampled.record(value, now_ms)
    return [stat.measure(sampled, read_at_ms) for stat in ALL]


def test_of_nothing_there_is_no_average_and_the_rate_is_zero() -> None:
    *middle, rate, count_rate, total, count = measured((Windows(), 5, []))
    assert all(math.isnan(each) for each in middle)
    assert [rate, count_rate, total, count] == [0.0, 0.0, 0.0, 0.0]


def test_a_first_recording_is_spread_over_a_window() -> None:
    sampled = Sampled(Windows(num_samples=2, window_ms=30_000))
    sampled.record(60, 1_000_000)
    assert RATE.measure(sampled, 1_000_000) == pytest.approx(2)
    assert RATE.measure(sampled, 1_030_000) == pytest.approx(2)
    assert RATE.measure(sampled, 1_050_000) == pytest.approx(60 / 50)


def test_samples_fade_and_totals_stay() -> None:
    sampled = Sampled(Windows(num_samples=2, window_ms=1000))
    for now_ms, value in ((0, 100), (1000, 1), (2000, 2), (3000, 3)):
        sampled.record(value, now_ms)
    assert MAX.measure(sampled, 3000) == 3
    assert MIN.measure(sampled, 3000) == 2
    assert AVG.measure(sampled, 3999) == 2.5
    assert AVG.measure(sampled, 4000) == 3
    assert math.isnan(AVG.measure(sampled, 5000))
    assert TOTAL.measure(sampled, 5000) == 106
    assert COUNT_TOTAL.measure(sampled, 5000) == 4


def test_rates_in_other_units() -> None:
    sampled = Sampled(Windows(num_samples=1, window_ms=1000))
    sampled.record(500_000_000, 0)
    assert RATIO_OF_NS.measure(sampled, 999) == pytest.approx(500 / 999)
    assert COUNT_PER_HOUR.measure(sampled, 500) == pytest.approx(3600 * 2)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(-100, 100)), max_size=40),
    st.lists(st.integers(0, 2000), max_size=5),
    st.integers(1, 4),
    st.integers(0, 60),
)
def test_reading_changes_nothing(
    steps: list[tuple[int, int]], reads_ms: list[int], num_samples: int, window_ms: int
) -> None:
    alone, read = Sampled(Windows(num_samples, window_ms)), Sampled(Windows(num_samples, window_ms))
    now_ms = 0
    for step_ms, value in steps:
        now_ms += step_ms
        for sampled in (alone, read):
            sampled.record(value, now_ms)
        for stat in ALL:
            stat.measure(read, now_ms)
    for later_ms in reads_ms:
        before = [stat.measure(read, now_ms + later_ms) for stat in ALL]
        assert repr(before) == repr([stat.measure(alone, now_ms + later_ms) for stat in ALL])


def stories(count: int) -> list[Story]:
    """Busy and quiet ones, read at once or late."""
    randomness = Random(4)
    told: list[Story] = []
    for _ in range(count):
        windows = Windows(randomness.choice((1, 2, 3, 5)), randomness.choice((1, 10, 100)))
        pace_ms = randomness.choice((1, 5, 40, 150))
        now_ms, recordings = randomness.randrange(1000), []
        for _ in range(randomness.randrange(30)):
            now_ms += randomness.randrange(pace_ms)
            recordings.append((now_ms, randomness.choice((0.0, 0.5, -3.0, 1e6, float(randomness.randrange(1000))))))
        told.append((windows, now_ms + randomness.choice((0, 1, pace_ms, 10 * pace_ms)), recordings))
    return told


@needs_kafka()
def test_the_numbers_are_those_of_kafka() -> None:
    told = stories(400)
    lines = [
        f"{windows.num_samples} {windows.window_ms} {read_at_ms} "
        + " ".join(f"{at} {value}" for at, value in recordings)
        for windows, read_at_ms, recordings in told
    ]
    printed = run_java("ClientMetrics.java", "\n".join(map(str.rstrip, lines)), arguments=("stats",)).splitlines()
    assert len(printed) == len(told)
    for story, line in zip(told, printed, strict=True):
        assert measured(story) == pytest.approx([float(number) for number in line.split()], nan_ok=True), story
