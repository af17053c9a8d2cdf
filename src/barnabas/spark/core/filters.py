"""Conditions on columns that say which partitions and offsets need not be read at all.

Of a batch's filters, those on `topic`, `partition` and `offset` are known before anything is read.

Times are another matter. Brokers find the first offset whose timestamp is not before a given one: all offsets before
it are older, so a read may begin there. But records of one partition are not in the order of their timestamps, as far
as producers set these: behind that offset older ones may follow, and behind the first that is too late others may be
in time. So a lower bound moves the start, and an upper bound moves nothing. Spark has to look at all filters again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeVar, runtime_checkable

from barnabas.base.ids import TopicPartition

_T = TypeVar("_T", str, int)

_UNIX_EPOCH_DAY: Final = 719_163  # as `date.toordinal` counts
_DAY_S: Final = 86_400
_EQUAL: Final = ("EqualTo", "EqualNullSafe")


class _Duration(Protocol):
    """What is needed of a `timedelta`."""

    days: int
    seconds: int
    microseconds: int


@runtime_checkable
class _Time(Protocol):
    """What is needed of a `datetime`."""

    hour: int
    minute: int
    second: int
    microsecond: int

    def toordinal(self) -> int: ...
    def utcoffset(self) -> _Duration | None: ...


@dataclass(frozen=True, slots=True)
class Narrowing:
    """What a read can be narrowed to. Bounds called `until` are exclusive; `None` is no bound."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    excluded_topics: frozenset[str] = frozenset()
    excluded_partitions: frozenset[int] = frozenset()
    prefixes: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ()
    infixes: tuple[str, ...] = ()
    from_partition: int = 0
    until_partition: int | None = None
    from_offset: int = 0
    until_offset: int | None = None
    #: Begin at the first offset whose timestamp is not less. Never zero or below, which brokers take for other things.
    min_timestamp_ms: int | None = None
    #: Says only that nothing is left if it is not above the minimum. A read must not end by it.
    until_timestamp_ms: int | None = None
    is_impossible: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether no record can be left."""
        return (
            self.is_impossible
            or self.topics == frozenset()
            or self.partitions == frozenset()
            or (self.until_partition is not None and self.until_partition <= self.from_partition)
            or (self.until_offset is not None and self.until_offset <= self.from_offset)
            or (self.until_timestamp_ms is not None and self.until_timestamp_ms <= (self.min_timestamp_ms or -1))
        )

    def keeps(self, partition: TopicPartition) -> bool:
        """Whether a partition has to be read."""
        topic, number = partition
        return (
            not self.is_empty
            and (self.topics is None or topic in self.topics)
            and topic not in self.excluded_topics
            and all(topic.startswith(prefix) for prefix in self.prefixes)
            and all(topic.endswith(suffix) for suffix in self.suffixes)
            and all(infix in topic for infix in self.infixes)
            and (self.partitions is None or number in self.partitions)
            and number not in self.excluded_partitions
            and number >= self.from_partition
            and (self.until_partition is None or number < self.until_partition)
        )

    def offsets(self, begin: int, end: int) -> tuple[int, int]:
        """A range of offsets, narrowed; its end may come to lie before its begin."""
        return max(begin, self.from_offset), end if self.until_offset is None else min(end, self.until_offset)


def narrow(filters: Iterable[object]) -> Narrowing:
    """What filters (PySpark's, told apart by the names of their classes) come to. All of them hold together."""
    narrowing = Narrowing()
    for condition in filters:
        narrowing = _apply(narrowing, condition)
    return narrowing


def _apply(narrowing: Narrowing, condition: object) -> Narrowing:
    """With one more condition; as it was if that says nothing to us."""
    kind = type(condition).__name__
    is_negated = kind == "Not"
    if is_negated:
        condition = getattr(condition, "child", None)
        kind = type(condition).__name__
    column: object = getattr(condition, "attribute", None)
    value: object = getattr(condition, "value", None)
    if is_negated and isinstance(value, tuple | list) and None in value:
        # Whether something is not among values of which one is unknown, nobody can say: Spark knows what to make of it.
        return narrowing
    if column in (("topic",), ("partition",), ("offset",)) and kind in ("IsNull", "IsNotNull"):
        # These columns are never null.
        return replace(narrowing, is_impossible=narrowing.is_impossible or (kind == "IsNull") != is_negated)
    if column == ("topic",):
        return _apply_to_topic(narrowing, kind, value, is_negated=is_negated)
    if column == ("partition",):
        return _apply_to_partition(narrowing, kind, value, is_negated=is_negated)
    if is_negated:
        return narrowing
    if column == ("offset",):
        return _apply_to_offset(narrowing, kind, value)
    if column == ("timestamp",):
        return _apply_to_timestamp(narrowing, kind, value)
    return narrowing


def _apply_to_topic(narrowing: Narrowing, kind: str, value: object, *, is_negated: bool) -> Narrowing:
    values = _values(kind, value, str)
    if values is not None and is_negated:
        return replace(narrowing, excluded_topics=narrowing.excluded_topics | values)
    if values is not None:
        return replace(narrowing, topics=values if narrowing.topics is None else narrowing.topics & values)
    if is_negated or not isinstance(value, str):
        return narrowing
    if kind == "StringStartsWith":
        return replace(narrowing, prefixes=(*narrowing.prefixes, value))
    if kind == "StringEndsWith":
        return replace(narrowing, suffixes=(*narrowing.suffixes, value))
    if kind == "StringContains":
        return replace(narrowing, infixes=(*narrowing.infixes, value))
    return narrowing


def _apply_to_partition(narrowing: Narrowing, kind: str, value: object, *, is_negated: bool) -> Narrowing:
    values = _values(kind, value, int)
    if values is not None and is_negated:
        return replace(narrowing, excluded_partitions=narrowing.excluded_partitions | values)
    if values is not None:
        common = values if narrowing.partitions is None else narrowing.partitions & values
        return replace(narrowing, partitions=common)
    bounds = _bounds(kind, value)
    if bounds is None or is_negated:
        return narrowing
    return replace(
        narrowing,
        from_partition=max(narrowing.from_partition, bounds[0] or 0),
        until_partition=_lower(narrowing.until_partition, bounds[1]),
    )


def _apply_to_offset(narrowing: Narrowing, kind: str, value: object) -> Narrowing:
    values = _values(kind, value, int)
    bounds = (min(values), max(values) + 1) if values else _bounds(kind, value)
    if bounds is None:
        return replace(narrowing, is_impossible=True) if values is not None else narrowing
    # Between listed offsets there may be others, which Spark has to take out.
    return replace(
        narrowing,
        from_offset=max(narrowing.from_offset, bounds[0] or 0),
        until_offset=_lower(narrowing.until_offset, bounds[1]),
    )


def _apply_to_timestamp(narrowing: Narrowing, kind: str, value: object) -> Narrowing:
    listed = value if isinstance(value, tuple | list) else [value]
    times_us = [_microseconds(time) for time in listed if time is not None]
    known_us = [time_us for time_us in times_us if time_us is not None]
    if not known_us or len(known_us) < len(times_us):
        return narrowing
    from_ms, until_ms = None, None
    if kind in (*_EQUAL, "In", "GreaterThanOrEqual"):
        from_ms = -(-min(known_us) // 1000)
    elif kind == "GreaterThan":
        from_ms = min(known_us) // 1000 + 1
    if kind in (*_EQUAL, "In", "LessThanOrEqual"):
        until_ms = max(known_us) // 1000 + 1
    elif kind == "LessThan":
        until_ms = -(-max(known_us) // 1000)
    if from_ms is None and until_ms is None:
        return narrowing
    earliest_ms = max(narrowing.min_timestamp_ms or 0, from_ms or 0)
    return replace(
        narrowing,
        min_timestamp_ms=earliest_ms if earliest_ms > 0 else None,
        until_timestamp_ms=_lower(narrowing.until_timestamp_ms, until_ms),
    )


def _values(kind: str, value: object, of: type[_T]) -> frozenset[_T] | None:
    """The values that a column may have, if a condition lists them. Null in a list is equal to nothing."""
    if kind == "In" and isinstance(value, tuple | list):
        listed = [item for item in value if item is not None]
    elif kind in _EQUAL:
        listed = [value]
    else:
        return None
    found = [item for item in listed if isinstance(item, of) and not isinstance(item, bool)]
    return frozenset(found) if len(found) == len(listed) else None


def _bounds(kind: str, value: object) -> tuple[int | None, int | None] | None:
    """From where until where a comparison with a whole number goes."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return {
        "GreaterThan": (value + 1, None),
        "GreaterThanOrEqual": (value, None),
        "LessThan": (None, value),
        "LessThanOrEqual": (None, value + 1),
    }.get(kind)


def _lower(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


def _microseconds(time: object) -> int | None:
    """A point in time since 1970. One without a time zone is left to Spark, which knows the session's."""
    if not isinstance(time, _Time) or (offset := time.utcoffset()) is None:
        return None
    seconds = (time.toordinal() - _UNIX_EPOCH_DAY - offset.days) * _DAY_S - offset.seconds
    seconds += time.hour * 3600 + time.minute * 60 + time.second
    return seconds * 1_000_000 + time.microsecond - offset.microseconds
