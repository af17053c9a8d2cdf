"""Ranges are divided without loss, and as the connector's documentation says."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Decimal
from itertools import groupby, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.base.ids import TopicPartition
from barnabas.spark.core.ranges import OffsetRange, between, split, split_by_bytes

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))

partitions = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 3))


@st.composite
def ranges_of_partitions(draw: st.DrawFn, most: int = 2000) -> list[OffsetRange]:
    chosen = draw(st.lists(partitions, max_size=6, unique=True))
    starts = [draw(st.integers(0, 10**6)) for _ in chosen]
    return [
        OffsetRange(tp, start, start + draw(st.integers(-5, most))) for tp, start in zip(chosen, starts, strict=True)
    ]


minimum = st.none() | st.integers(1, 60)
maximum = st.none() | st.integers(1, 500)


def tiles(whole: list[OffsetRange], parts: list[OffsetRange]) -> bool:
    """Whether the parts cover exactly what is not empty, in order, each part not empty."""
    joined = []
    for tp, group in groupby(parts, key=lambda part: part.topic_partition):
        in_order = list(group)
        if any(one.until_offset != other.from_offset for one, other in pairwise(in_order)):
            return False
        joined.append(OffsetRange(tp, in_order[0].from_offset, in_order[-1].until_offset))
    return all(part.size > 0 for part in parts) and joined == [one for one in whole if one.size > 0]


def restated(
    ranges: list[OffsetRange], min_partitions: int | None, max_records: int | None
) -> list[tuple[TopicPartition, int]]:
    """The documented rules, step by step: for every partition, the sizes of its parts."""
    sizes = [(one.topic_partition, one.size) for one in ranges if one.size > 0]
    if max_records is not None:
        sizes = [(tp, part) for tp, size in sizes for part in evenly(size, -(-size // max_records))]
    if min_partitions is None or min_partitions <= len(sizes):
        return sizes
    total = sum(size for _, size in sizes)
    kept_whole = [(tp, size) for tp, size in sizes if half_up(size / total * min_partitions) <= 1]
    names_kept_whole = [tp for tp, _ in kept_whole]
    rest_total = total - sum(size for _, size in kept_whole)
    rest_parts = max(min_partitions - len(kept_whole), 1)
    return [
        (tp, part)
        for tp, size in sizes
        for part in (
            [size] if tp in names_kept_whole else evenly(size, max(half_up(size / rest_total * rest_parts), 1))
        )
    ]


def half_up(number: float) -> int:
    return int(Decimal(number).quantize(Decimal(1), ROUND_HALF_UP))


def evenly(size: int, parts: int) -> list[int]:
    """As equal as can be, the larger ones last."""
    small, larger = divmod(size, parts)
    return [part for part in [small] * (parts - larger) + [small + 1] * larger if part > 0]


@settings(deadline=None)
@given(ranges_of_partitions(), minimum, maximum)
def test_parts_cover_every_offset_once(ranges: list[OffsetRange], fewest: int | None, most: int | None) -> None:
    assert tiles(ranges, split(ranges, min_partitions=fewest, max_records_per_partition=most))


@settings(deadline=None)
@given(ranges_of_partitions(), minimum, maximum)
def test_parts_are_those_of_the_documented_rules(
    ranges: list[OffsetRange], fewest: int | None, most: int | None
) -> None:
    parts = split(ranges, min_partitions=fewest, max_records_per_partition=most)
    assert [(part.topic_partition, part.size) for part in parts] == restated(ranges, fewest, most)


@settings(deadline=None)
@given(ranges_of_partitions(), minimum, st.integers(1, 500))
def test_no_part_has_more_records_than_allowed(ranges: list[OffsetRange], fewest: int | None, most: int) -> None:
    parts = split(ranges, min_partitions=fewest, max_records_per_partition=most)
    assert all(part.size <= most for part in parts)


def test_without_options_a_partition_is_a_task_and_empty_ones_are_none() -> None:
    ranges = [OffsetRange(T0, 5, 10), OffsetRange(T1, 5, 5), OffsetRange(T2, 9, 4)]
    assert split(ranges) == [OffsetRange(T0, 5, 10)]


def test_only_large_partitions_are_divided_to_reach_the_minimum() -> None:
    parts = split([OffsetRange(T0, 0, 10_000), OffsetRange(T1, 0, 3)], min_partitions=5)
    assert [(part.topic_partition, part.size) for part in parts] == [(T0, 2500)] * 4 + [(T1, 3)]


def test_halves_are_rounded_up_as_in_java() -> None:
    """Each side's share of 5 parts is 2.5: Java makes 3 of it, and Python's round would make 2."""
    parts = split([OffsetRange(T0, 0, 100), OffsetRange(T1, 0, 100)], min_partitions=5)
    assert [part.size for part in parts] == [33, 33, 34] * 2


def test_enough_partitions_stay_as_they_are() -> None:
    ranges = [OffsetRange(T0, 0, 100), OffsetRange(T1, 0, 1)]
    assert split(ranges, min_partitions=2) == ranges


@settings(deadline=None)
@given(
    ranges_of_partitions(),
    st.dictionaries(partitions, st.floats(0, 5000)),
    st.integers(1, 100_000),
)
def test_parts_by_bytes_cover_every_offset_once_and_stay_near_the_limit(
    ranges: list[OffsetRange], density: dict[TopicPartition, float], max_bytes: int
) -> None:
    parts = split_by_bytes(ranges, density, max_bytes)
    assert tiles(ranges, parts)
    for part in parts:
        bytes_per_offset = density.get(part.topic_partition, 0.0)
        # Parts are whole offsets, so one may be an offset larger than its share.
        assert part.size == 1 or (part.size - 1) * bytes_per_offset <= max_bytes
        assert bytes_per_offset > 0 or part in ranges


def test_ranges_by_bytes_stay_whole_where_they_are_small_or_unknown() -> None:
    ranges = [OffsetRange(T0, 0, 100), OffsetRange(T1, 0, 100), OffsetRange(T2, 7, 17)]
    parts = split_by_bytes(ranges, {T0: 10.0, T2: math.pi * 100}, 1000)
    assert parts == [*ranges[:2], *(OffsetRange(T2, *bounds) for bounds in ((7, 9), (9, 11), (11, 14), (14, 17)))]


def test_ranges_between_positions_leave_out_what_has_no_begin() -> None:
    assert between({T0: 1, T1: 5}, {T2: 9, T1: 4, T0: 3}) == [OffsetRange(T0, 1, 3), OffsetRange(T1, 5, 4)]
