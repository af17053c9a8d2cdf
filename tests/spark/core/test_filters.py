"""Filters leave out only what Spark would have left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.base.ids import TopicPartition
from barnabas.spark.core.filters import Narrowing, narrow

datasource = pytest.importorskip("pyspark.sql.datasource")
EqualTo, EqualNullSafe, In, Not = (getattr(datasource, name) for name in ("EqualTo", "EqualNullSafe", "In", "Not"))
GreaterThan, GreaterThanOrEqual = datasource.GreaterThan, datasource.GreaterThanOrEqual
LessThan, LessThanOrEqual = datasource.LessThan, datasource.LessThanOrEqual

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def at(timestamp_ms: float, zone: timezone = UTC) -> datetime:
    return (EPOCH + timedelta(milliseconds=timestamp_ms)).astimezone(zone)


@dataclass(frozen=True)
class Row:
    topic: str
    partition: int
    offset: int
    timestamp_ms: int

    def __getitem__(self, column: str) -> Any:
        return at(self.timestamp_ms) if column == "timestamp" else getattr(self, column)


#: Timestamps are not in the order of offsets, as producers may well have it.
ROWS = [
    Row(topic, partition, offset, timestamp_ms)
    for topic, partition in product(["clicks", "orders", "or"], range(3))
    for offset, timestamp_ms in enumerate([5, 7, 6, 1, 9, 0, 7, 3])
]

PASSES: dict[str, Callable[[Any, Any], bool]] = {
    "EqualTo": lambda found, value: found == value,
    "EqualNullSafe": lambda found, value: found == value,
    "GreaterThan": lambda found, value: found > value,
    "GreaterThanOrEqual": lambda found, value: found >= value,
    "LessThan": lambda found, value: found < value,
    "LessThanOrEqual": lambda found, value: found <= value,
    "In": lambda found, value: found in value,
    "StringStartsWith": lambda found, value: found.startswith(value),
    "StringEndsWith": lambda found, value: found.endswith(value),
    "StringContains": lambda found, value: value in found,
    "IsNull": lambda found, value: False,
    "IsNotNull": lambda found, value: True,
}


def passes(row: Row, condition: Any) -> bool:
    """What Spark would say. With null among listed values, to be none of them is unknown, which does not pass."""
    kind = type(condition).__name__
    if kind == "Not":
        child = condition.child
        return not passes(row, child) and not (type(child).__name__ == "In" and None in child.value)
    return PASSES[kind](row[condition.attribute[0]], getattr(condition, "value", None))


def read(narrowing: Narrowing) -> list[Row]:
    """What a reader reads that narrows as it may: partitions, offsets, and the start by the time."""
    rows = []
    for partition in sorted({TopicPartition(row.topic, row.partition) for row in ROWS}):
        if narrowing.keeps(partition):
            inside = [row for row in ROWS if (row.topic, row.partition) == partition]
            begin, end = narrowing.offsets(0, len(inside))
            if narrowing.min_timestamp_ms is not None:
                late = [row.offset for row in inside if row.timestamp_ms >= narrowing.min_timestamp_ms]
                begin = max(begin, min(late, default=end))
            rows += [row for row in inside if begin <= row.offset < end]
    return rows


topics = st.sampled_from(["clicks", "orders", "or", "x", ""])
numbers = st.integers(-1, 9)
moments = st.builds(
    at, st.floats(-2, 11).map(lambda ms: round(ms * 4) / 4), st.sampled_from([UTC, timezone(timedelta(hours=-7))])
)
values = {"topic": topics, "partition": numbers, "offset": numbers, "timestamp": moments}
COMPARISONS = ["EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual"]
AFFIXES = ["StringStartsWith", "StringEndsWith", "StringContains"]


@st.composite
def conditions(draw: st.DrawFn) -> Any:
    column = draw(st.sampled_from(sorted(values)))
    kind = draw(st.sampled_from([*COMPARISONS, "In", "IsNull", "IsNotNull", *(AFFIXES if column == "topic" else [])]))
    made = getattr(datasource, kind)
    if kind in ("IsNull", "IsNotNull"):
        condition = made((column,))
    elif kind == "In":
        condition = made((column,), tuple(draw(st.lists(values[column] | st.none(), min_size=1, max_size=4))))
    else:
        condition = made((column,), draw(values[column]))
    return Not(condition) if draw(st.integers(0, 3)) == 0 else condition


@settings(deadline=None)
@given(st.lists(conditions(), max_size=4))
def test_no_row_is_lost(filters: list[Any]) -> None:
    narrowing = narrow(filters)
    wanted = [
        row
        for row in sorted(ROWS, key=lambda row: (row.topic, row.partition, row.offset))
        if all(passes(row, one) for one in filters)
    ]
    found = read(narrowing)
    assert [row for row in found if all(passes(row, one) for one in filters)] == wanted
    if narrowing.is_empty:
        assert not wanted


def test_partitions_topics_and_offsets_narrow_exactly() -> None:
    filters = [
        EqualTo(("topic",), "t"),
        In(("partition",), (1, 2, None)),
        GreaterThan(("offset",), 5),
        LessThanOrEqual(("offset",), 9),
    ]
    narrowing = narrow(filters)
    assert narrowing == Narrowing(topics=frozenset({"t"}), partitions=frozenset({1, 2}), from_offset=6, until_offset=10)
    assert narrowing.offsets(0, 100) == (6, 10)


def test_a_lower_bound_in_time_moves_the_start() -> None:
    expected = Narrowing(min_timestamp_ms=1700000000001)
    assert narrow([GreaterThanOrEqual(("timestamp",), at(1700000000000.5))]) == expected
    assert narrow([GreaterThan(("timestamp",), at(1700000000000))]) == expected


def test_an_upper_bound_in_time_moves_nothing() -> None:
    narrowing = narrow([LessThan(("timestamp",), at(5))])
    assert (narrowing.min_timestamp_ms, narrowing.offsets(0, 100)) == (None, (0, 100))
    assert narrow([LessThan(("timestamp",), at(5)), GreaterThan(("timestamp",), at(5))]).is_empty


def test_times_before_1970_do_not_become_the_stand_ins_of_the_protocol() -> None:
    assert narrow([GreaterThan(("timestamp",), at(-3))]) == Narrowing()


def test_what_says_nothing_to_us_stays_with_spark() -> None:
    filters = [
        EqualTo(("value",), b"x"),
        EqualTo(("value", "partition"), 5),
        EqualTo(("partition",), True),
        EqualTo(("partition",), 1.5),
        EqualNullSafe(("topic",), None),
        GreaterThan(("timestamp",), datetime(2026, 1, 1)),  # noqa: DTZ001 - without a zone on purpose
        Not(GreaterThan(("partition",), 5)),
        Not(In(("partition",), (1, None))),
        Not(EqualTo(("offset",), 5)),
        object(),
    ]
    assert narrow(filters) == Narrowing()
