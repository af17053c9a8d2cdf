"""Which part of a log is compacted, when, and which segments become one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.storage.compaction_plan import CleanableSegment, CleaningPlan, group_segments, plan_cleaning

NOW_MS = 1_000_000
LONG_MAX = 2**63 - 1


def segment(base_offset: int, size_bytes: int = 100, *, age_ms: int = 1000, index_bytes: int = 8) -> CleanableSegment:
    """Its batches are all of one age."""
    return CleanableSegment(base_offset, size_bytes, index_bytes, index_bytes, NOW_MS - age_ms, NOW_MS - age_ms)


LOG = [segment(0, age_ms=4000), segment(10, age_ms=3000), segment(20, age_ms=2000), segment(30, age_ms=0)]


def plan(segments: list[CleanableSegment], **changes: Any) -> CleaningPlan:
    facts: dict[str, Any] = {
        "checkpoint_offset": None,
        "log_start_offset": 0,
        "log_end_offset": 40,
        "last_stable_offset": 40,
        "now_ms": NOW_MS,
        "min_compaction_lag_ms": 0,
        "max_compaction_lag_ms": LONG_MAX,
        "min_cleanable_dirty_ratio": 0.5,
    }
    return plan_cleaning(segments, **(facts | changes))


def test_all_but_the_active_segment_is_cleanable() -> None:
    found = plan(LOG)
    assert (found.first_dirty_offset, found.first_uncleanable_offset) == (0, 30)
    assert (found.clean_bytes, found.dirty_bytes, found.dirty_ratio) == (0, 300, 1.0)
    assert found.is_due
    assert not found.checkpoint_is_invalid


def test_a_log_of_one_segment_has_nothing_to_clean() -> None:
    found = plan(LOG[:1], log_end_offset=10, min_cleanable_dirty_ratio=0.0)
    assert (found.dirty_bytes, found.dirty_ratio, found.is_due) == (0, 0.0, False)


@pytest.mark.parametrize(
    ("last_stable_offset", "end_offset"), [(40, 30), (30, 30), (29, 20), (20, 20), (15, 10), (10, 10), (9, 0), (0, 0)]
)
def test_an_open_transaction_ends_the_range_at_its_segment(last_stable_offset: int, end_offset: int) -> None:
    assert plan(LOG, last_stable_offset=last_stable_offset).first_uncleanable_offset == end_offset


@pytest.mark.parametrize(("lag_ms", "end_offset"), [(1999, 30), (2000, 30), (2001, 20), (3001, 10), (5000, 0)])
def test_young_segments_wait(lag_ms: int, end_offset: int) -> None:
    found = plan(LOG, min_compaction_lag_ms=lag_ms)
    assert found.first_uncleanable_offset == end_offset
    assert found.is_due == (end_offset > 0)


def test_the_checkpoint_divides_clean_from_dirty() -> None:
    found = plan(LOG, checkpoint_offset=20)
    assert (found.clean_bytes, found.dirty_bytes) == (200, 100)
    assert found.dirty_ratio == pytest.approx(1 / 3)
    assert not found.is_due
    assert plan(LOG, checkpoint_offset=20, min_cleanable_dirty_ratio=0.3).is_due
    # Exactly the ratio is not yet enough.
    assert not plan(LOG, checkpoint_offset=20, min_cleanable_dirty_ratio=1 / 3).is_due


def test_a_segment_that_is_clean_in_part_counts_on_both_sides() -> None:
    found = plan(LOG, checkpoint_offset=15)
    assert (found.clean_bytes, found.dirty_bytes) == (200, 200)


@pytest.mark.parametrize(("checkpoint", "is_invalid"), [(4, True), (5, False), (40, False), (41, True)])
def test_a_checkpoint_outside_of_the_log_starts_anew(checkpoint: int, is_invalid: bool) -> None:
    found = plan(LOG, checkpoint_offset=checkpoint, log_start_offset=5)
    assert found.checkpoint_is_invalid == is_invalid
    assert found.first_dirty_offset == (5 if is_invalid else checkpoint)


def test_a_range_below_the_checkpoint_is_empty() -> None:
    found = plan(LOG, checkpoint_offset=20, last_stable_offset=5, min_cleanable_dirty_ratio=0.0)
    assert (found.first_uncleanable_offset, found.dirty_bytes, found.is_due) == (20, 0, False)


def test_the_longest_lag_makes_a_log_due_below_its_ratio() -> None:
    asked = {"checkpoint_offset": 20, "min_cleanable_dirty_ratio": 0.9}
    assert plan(LOG, max_compaction_lag_ms=2000, **asked).delay_ms == 0
    late = plan(LOG, max_compaction_lag_ms=1999, **asked)
    assert (late.delay_ms, late.is_due) == (1, True)
    assert not plan(LOG, max_compaction_lag_ms=1999, last_stable_offset=20, **asked).is_due


def group(segments: list[CleanableSegment], **changes: int) -> list[list[int]]:
    facts = {"end_offset": 2**62, "first_uncleanable_offset": 2**62, "max_segment_bytes": 250, "max_index_bytes": 1000}
    return [[each.base_offset for each in some] for some in group_segments(segments, **(facts | changes))]


def test_neighbours_are_joined_while_they_fit() -> None:
    some = [segment(0), segment(10), segment(20), segment(30)]
    known = {"first_uncleanable_offset": 40}
    assert group(some, **known) == [[0, 10], [20, 30]]
    assert group(some, max_segment_bytes=300, **known) == [[0, 10, 20], [30]]
    assert group(some, max_segment_bytes=99, **known) == [[0], [10], [20], [30]]
    assert group(some, max_index_bytes=15, **known) == [[0], [10], [20], [30]]
    assert group(some, end_offset=20, **known) == [[0, 10]]
    assert group(some, end_offset=21, **known) == [[0, 10], [20]]
    assert group([], **known) == []


def test_the_time_index_counts_too() -> None:
    some = [CleanableSegment(0, 1, 8, 12), CleanableSegment(10, 1, 8, 12)]
    assert group(some, max_index_bytes=23, first_uncleanable_offset=20) == [[0], [10]]
    assert group(some, max_index_bytes=24, first_uncleanable_offset=20) == [[0, 10]]


def test_a_group_stays_within_what_an_index_can_say() -> None:
    far = 2**31
    assert group([segment(0), segment(10)], first_uncleanable_offset=far) == [[0, 10]]
    assert group([segment(0), segment(10)], first_uncleanable_offset=far + 1) == [[0], [10]]
    assert group([segment(0), segment(10), segment(far + 1)], max_segment_bytes=900) == [[0], [10], [far + 1]]
    # What is empty needs no offsets.
    assert group([segment(0), segment(far + 5, 0)], first_uncleanable_offset=far + 9) == [[0, far + 5]]


@given(
    st.lists(st.tuples(st.integers(1, 2**31), st.integers(0, 200), st.integers(0, 40)), max_size=20),
    st.integers(0, 400),
    st.integers(0, 100),
)
def test_groups_are_the_log_in_order_and_within_their_limits(
    parts: list[tuple[int, int, int]], max_segment_bytes: int, max_index_bytes: int
) -> None:
    segments, offset = [], 0
    for distance, size_bytes, index_bytes in parts:
        segments.append(CleanableSegment(offset, size_bytes, index_bytes, index_bytes))
        offset += distance
    groups = group_segments(
        segments,
        end_offset=offset,
        first_uncleanable_offset=offset,
        max_segment_bytes=max_segment_bytes,
        max_index_bytes=max_index_bytes,
    )
    assert [each for some in groups for each in some] == segments
    ends = dict(zip([each.base_offset for each in segments], [each.base_offset for each in segments[1:]], strict=False))
    for some in groups:
        if len(some) > 1:
            assert sum(each.size_bytes for each in some) <= max_segment_bytes
            assert sum(each.index_size_bytes for each in some) <= max_index_bytes
            with_data = [each for each in some[1:] if each.size_bytes]
            assert all(ends.get(each.base_offset, offset) - 1 - some[0].base_offset <= 2**31 - 1 for each in with_data)
