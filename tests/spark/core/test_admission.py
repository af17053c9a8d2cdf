"""A batch takes its share of what is there: by offsets, by bytes, and not too early."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from barnabas.base.ids import TopicPartition
from barnabas.base.settings.units import LONG_MAX
from barnabas.spark.core.admission import MinOffsetsGate, limit_bytes, rate_limit
from barnabas.spark.core.positions import Positions

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))

ALL = [TopicPartition(topic, number) for topic in ("a", "b") for number in range(4)]

partitions = st.sampled_from(ALL)
offsets = st.integers(0, 10_000)
positions = st.dictionaries(partitions, offsets, max_size=6)


@st.composite
def backlogs(draw: st.DrawFn) -> tuple[Positions, Positions]:
    """Where partitions stand, and where they end; some are new, some gone, some went backwards."""
    begin = draw(positions)
    end = {tp: position + draw(st.integers(-5, 5000)) for tp, position in begin.items() if draw(st.integers(0, 9))}
    return begin, {**draw(positions), **end}


def backlog(begin: Positions, end: Positions) -> Positions:
    return {tp: end[tp] - begin[tp] for tp in end if tp in begin and end[tp] > begin[tp]}


@settings(deadline=None)
@given(backlogs(), positions, st.integers(1, 20_000))
def test_a_rate_limited_batch_stays_within_its_bounds(
    begin_and_end: tuple[Positions, Positions], new: Positions, limit: int
) -> None:
    begin, end = begin_and_end
    limited = rate_limit(limit, begin, end, new)
    begins = {**new, **begin}
    waiting = backlog(begins, end)
    assert limited.keys() == end.keys()
    for tp, position in limited.items():
        if tp in waiting:
            # Forward by one at least, so that none starves; never beyond the end.
            assert begins[tp] < position <= end[tp]
        else:
            assert position == end[tp]
    taken = sum(limited[tp] - begins[tp] for tp in waiting)
    # Only shares below one are rounded up.
    assert taken <= limit + len(waiting)
    assert taken >= min(limit, sum(waiting.values())) - len(waiting)


@settings(deadline=None)
@given(backlogs(), positions, st.integers(1, 20_000))
def test_shares_are_in_proportion_to_the_backlog(
    begin_and_end: tuple[Positions, Positions], new: Positions, limit: int
) -> None:
    begin, end = begin_and_end
    begins = {**new, **begin}
    waiting = backlog(begins, end)
    total = sum(waiting.values())
    limited = rate_limit(limit, begin, end, new)
    for tp, size in waiting.items():
        exact = Fraction(limit * size, total)
        taken = limited[tp] - begins[tp]
        # Doubles may fall short of a whole share by a hair; the rules are otherwise these.
        assert (
            taken == size
            if exact >= size
            else taken in {max(int(exact), 1), max(int(exact) - (exact.denominator == 1), 1)}
        )


def test_a_quiet_partition_beside_loud_ones_comes_forward() -> None:
    assert rate_limit(10, {T0: 0, T1: 0}, {T0: 1000, T1: 1}, {}) == {T0: 9, T1: 1}


def test_new_partitions_are_limited_from_their_first_offset_and_unknown_ones_are_not() -> None:
    assert rate_limit(10, {T0: 0}, {T0: 100, T1: 150, T2: 7}, {T1: 50}) == {T0: 5, T1: 55, T2: 7}


def test_a_limit_beyond_all_offsets_does_not_overflow() -> None:
    end = {T0: LONG_MAX, T1: LONG_MAX - 3}
    assert rate_limit(LONG_MAX, {T0: LONG_MAX - 5, T1: LONG_MAX - 9}, end, {}) == end


@settings(deadline=None)
@given(backlogs(), st.fixed_dictionaries({tp: st.floats(0, 10_000) for tp in ALL}), st.integers(1, 10_000_000))
def test_a_batch_limited_in_bytes_stays_within_its_bounds(
    begin_and_end: tuple[Positions, Positions], density: dict[TopicPartition, float], max_bytes: int
) -> None:
    begin, end = begin_and_end
    waiting = backlog(begin, end)
    limited = limit_bytes(max_bytes, begin, end, density)
    assert limited.keys() == end.keys()
    assert all(limited[tp] == end[tp] for tp in end if tp not in waiting)
    assert all(begin[tp] < limited[tp] <= end[tp] for tp in waiting)
    taken = {tp: (limited[tp] - begin[tp]) * density[tp] for tp in waiting}
    # Beyond the limit goes at most the one offset that every partition has for certain.
    surplus = sum(density[tp] for tp in waiting)
    assert sum(taken.values()) <= (max_bytes + surplus) * (1 + 1e-9)


@settings(deadline=None)
@given(backlogs(), st.fixed_dictionaries({tp: st.floats(1, 10_000) for tp in ALL}), st.integers(1, 10_000_000))
def test_batches_limited_in_bytes_come_to_the_end_of_what_was_there(
    begin_and_end: tuple[Positions, Positions], density: dict[TopicPartition, float], max_bytes: int
) -> None:
    begin, end = begin_and_end
    assume(sum(backlog(begin, end).values()) < 2000)
    at = {tp: min(begin.get(tp, position), position) for tp, position in end.items()}
    for _ in range(2001):
        if at == end:
            break
        at = limit_bytes(max_bytes, at, end, density)
    assert at == end


def test_bytes_are_shared_in_proportion_to_the_bytes_that_wait() -> None:
    # 100 kB and 900 kB wait, 100 kB may be taken: a tenth of each.
    assert limit_bytes(100_000, {T0: 0, T1: 0}, {T0: 1000, T1: 100}, {T0: 100.0, T1: 9000.0}) == {T0: 100, T1: 10}


def test_a_partition_of_which_nothing_is_left_need_not_wait() -> None:
    assert limit_bytes(10, {T0: 0, T1: 0}, {T0: 1000, T1: 1000}, {T0: 10.0, T1: 0.0}) == {T0: 1, T1: 1000}


steps = st.lists(st.tuples(st.integers(0, 200), positions, positions), max_size=12)


@settings(deadline=None)
@given(st.integers(0, 5000), st.integers(0, 500), st.integers(0, 2000), steps)
def test_the_gate_opens_for_enough_offsets_or_after_the_delay(
    min_offsets: int, max_delay_ms: int, now_ms: int, waits: list[tuple[int, Positions, Positions]]
) -> None:
    gate = MinOffsetsGate(min_offsets, max_delay_ms)
    last_ms = 0
    for wait_ms, begin, end in waits:
        now_ms += wait_ms
        new = sum(end.values()) - sum(begin[tp] for tp in end if tp in begin)
        is_open = now_ms - last_ms >= max_delay_ms or new >= min_offsets
        assert gate.may_run(now_ms, begin, end) == is_open
        last_ms = now_ms if is_open else last_ms


def test_the_first_batch_of_a_query_is_not_held_back() -> None:
    gate = MinOffsetsGate(1000, 15 * 60_000)
    assert gate.may_run(1_700_000_000_000, {T0: 0}, {T0: 1})
    assert not gate.may_run(1_700_000_001_000, {T0: 1}, {T0: 2})
    assert gate.may_run(1_700_000_001_000, {T0: 1}, {T0: 1001})
