"""Positions survive the way through Spark's checkpoint, and a first batch is the same batch after a crash."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.base.ids import TopicPartition
from barnabas.spark.core.admission_limits import Earliest, LatestOffsets, Limit, Offsets, Timestamp, Timestamps
from barnabas.spark.core.errors import OptionError, SparkConnectorError
from barnabas.spark.core.positions import (
    Positions,
    SparkOffset,
    anew_in,
    batch_start,
    end_offset,
    from_offset,
    initial_offset,
    starts_of,
    to_offset,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)

topics = st.text("abcXYZ019._-", min_size=1, max_size=12)
partitions = st.builds(TopicPartition, topics, st.integers(0, 2**31 - 1))
positions = st.dictionaries(partitions, st.integers(0, 2**63 - 1), max_size=6)


def through_spark(offset: SparkOffset) -> SparkOffset:
    """What comes back of it: PySpark hands JSON to the JVM and back."""
    found: SparkOffset = json.loads(json.dumps(offset))
    return found


@settings(deadline=None)
@given(positions, st.none() | positions, positions)
def test_positions_and_starts_come_back_from_json(at: Positions, starts: Positions | None, anew: Positions) -> None:
    offset = through_spark(to_offset(at, starts, anew))
    assert from_offset(offset) == at
    assert starts_of(offset) == starts
    assert anew_in({}, offset) == (anew if offset else {})


@settings(deadline=None)
@given(positions)
def test_the_text_does_not_depend_on_the_order_in_which_positions_were_found(at: Positions) -> None:
    backwards = dict(reversed(at.items()))
    assert json.dumps(to_offset(at, at)) == json.dumps(to_offset(backwards, backwards))


def test_partitions_are_in_the_order_of_their_numbers() -> None:
    at = {TopicPartition("b", 10): 1, TopicPartition("b", 9): 2, TopicPartition("a", 0): 3}
    assert json.dumps(to_offset(at)) == '{"a": {"0": 3}, "b": {"9": 2, "10": 1}}'


def test_the_start_of_the_first_batch_is_in_its_end() -> None:
    assert to_offset({T0: 150}, {T0: 100}) == {"t": {"0": 150}, "@start t 0 100": {}}


@pytest.mark.parametrize(
    "offset",
    [
        *(None, 5, [], {"t": 5}, {"t": None}, {"t": {"x": 1}}, {"t": {"-1": 1}}, {"t": {"0": "5"}}, {"t": {"0": -1}}),
        *(
            {"t": {"0": 1.0}},
            {"t": {"0": True}},
            {"t": {"0": None}},
            {"t": {"0": 2**63}},
            {5: {}},
            {"t": {"9" * 30: 1}},
        ),
    ],
)
def test_what_is_not_an_offset_is_refused_in_words(offset: Any) -> None:
    with pytest.raises(OptionError, match=r'expected is \{"topic": \{"0": 23, "1": 42\}\}'):
        from_offset(offset)


@pytest.mark.parametrize(
    "key", ["@start t", "@start t 0 x", "@start t 0 -1", "@start  0 1", "@startt 0 1", "@start t 0 01"]
)
def test_a_start_that_cannot_be_read_is_not_passed_over(key: str) -> None:
    with pytest.raises(OptionError, match="@start topic partition offset"):
        starts_of({key: {}})
    with pytest.raises(OptionError, match="@anew topic partition offset"):
        anew_in({}, {key.replace("@start", "@anew"): {}})


# A query and its checkpoint


class Checkpoint:
    """Spark's log of batches, and a source that is asked as Spark asks it. The topic grows; the driver may die."""

    def __init__(self, starting: Limit, latest: Positions) -> None:
        self.starting = starting
        self.latest = latest
        self.planned: list[SparkOffset] = []
        self.committed = 0
        self.read: list[tuple[Positions, Positions]] = []
        self.restart()

    def restart(self) -> None:
        """Spark knows its log and nothing else; a source without any batch is asked where to begin."""
        self.initial = through_spark(initial_offset(self.latest))

    def plan(self) -> bool:
        start = self.planned[-1] if self.planned else self.initial
        end = through_spark(end_offset(start, self.latest))
        if end == start:
            return False
        self.planned.append(end)
        return True

    def run(self) -> None:
        start = self.planned[self.committed - 1] if self.committed else self.initial
        end = self.planned[self.committed]
        self.read.append((batch_start(start, end, self.starting), from_offset(end)))
        self.committed += 1


steps = st.lists(st.sampled_from(["grow", "new partition", "trigger", "plan and crash", "crash"]), max_size=20)


@settings(deadline=None)
@given(
    steps,
    st.sampled_from([LatestOffsets(), Timestamp(5, "latest"), Timestamps({T0: 5}, "latest"), Earliest()]),
    st.booleans(),
)
def test_batches_join_whatever_happens_between_them(story: list[str], starting: Limit, begins_empty: bool) -> None:
    log = Checkpoint(starting, {} if begins_empty else {T0: 100})
    first = dict(log.latest)
    for step in story:
        if step == "grow":
            log.latest = {tp: position + 7 for tp, position in log.latest.items()}
        elif step == "new partition":
            log.latest = {**log.latest, TopicPartition("t", len(log.latest)): 3}
        elif step == "crash":
            log.restart()
            first = first if log.planned else dict(log.latest)
        elif log.committed < len(log.planned) or log.plan():
            if step == "plan and crash":
                log.restart()
            log.run()
    ends = [end for _, end in log.read]
    assert [begin for begin, _ in log.read] == [first, *ends][: len(ends)]


def test_the_end_of_a_first_batch_beats_an_initial_offset_that_was_found_later() -> None:
    end = end_offset(initial_offset({T0: 100}), {T0: 150})
    for starting in LatestOffsets(), Offsets({T0: 170}):
        assert batch_start(initial_offset({T0: 170}), end, starting) == {T0: 100}


def test_nothing_new_is_the_same_text_also_after_the_jvm_connector() -> None:
    start: SparkOffset = {"t": {"1": 5, "0": 7}}
    assert end_offset(start, {T0: 7, T1: 5}) is start


def test_an_empty_batch_after_the_first_does_not_read_the_first_again() -> None:
    end = to_offset({T0: 150}, {T0: 100})
    assert batch_start(end, dict(end), LatestOffsets()) == {T0: 150}


def test_later_batches_do_not_carry_the_start() -> None:
    second = end_offset(to_offset({T0: 150}, {T0: 100}), {T0: 160})
    assert second == {"t": {"0": 160}}
    assert batch_start(to_offset({T0: 150}, {T0: 100}), second, LatestOffsets()) == {T0: 150}


def test_a_batch_that_begins_anew_says_so_and_the_next_one_does_not() -> None:
    start: SparkOffset = {"t": {"0": 5, "1": 7}}
    end = end_offset(start, {T0: 5, T1: 8}, {T0: 0})
    assert end == {"t": {"0": 5, "1": 8}, "@anew t 0 0": {}}
    assert batch_start(start, end, LatestOffsets()) == {T0: 0, T1: 7}
    assert batch_start(end, dict(end), LatestOffsets()) == {T0: 5, T1: 8}
    following = end_offset(end, {T0: 6, T1: 8})
    assert following == {"t": {"0": 6, "1": 8}}
    assert batch_start(end, following, LatestOffsets()) == {T0: 5, T1: 8}


def test_that_nothing_but_the_topic_is_new_is_new() -> None:
    assert end_offset({"t": {"0": 5}}, {T0: 5}, {T0: 0}) == {"t": {"0": 5}, "@anew t 0 0": {}}


def test_a_batch_that_begins_anew_is_never_taken_for_none() -> None:
    start = end_offset({"t": {"0": 5}}, {T0: 3}, {T0: 0})
    # The topic is created once more, and the batch would end in the same place.
    end = end_offset(start, {T0: 3}, {T0: 0})
    assert end == {"t": {"0": 0}, "@anew t 0 0": {}}
    assert end_offset(end, {T0: 3}) == {"t": {"0": 3}}


def test_a_first_batch_may_begin_anew() -> None:
    end = end_offset(initial_offset({T0: 5, T1: 7}), {T0: 3, T1: 8}, {T0: 0})
    assert batch_start(initial_offset({T0: 3, T1: 8}), end, LatestOffsets()) == {T0: 0, T1: 7}


@pytest.mark.parametrize(
    "starting", [LatestOffsets(), Timestamp(5, "error"), Timestamps({T0: 5}, "error"), Offsets({T0: -1})]
)
def test_another_connectors_unfinished_first_batch_is_not_begun_at_a_guess(starting: Limit) -> None:
    with pytest.raises(SparkConnectorError, match="sources/0/0"):
        batch_start(initial_offset({T0: 120}), {"t": {"0": 150}}, starting)


@pytest.mark.parametrize("starting", [Earliest(), Offsets({T0: -2}), Offsets({T0: 120})])
def test_another_connectors_first_batch_goes_on_where_asking_again_skips_nothing(starting: Limit) -> None:
    assert batch_start(initial_offset({T0: 120}), {"t": {"0": 150}}, starting) == {T0: 120}
