"""Ranges of offsets, one for each Spark task, and how large ones are divided.

`split` comes to exactly the ranges of the JVM connector: whoever tuned `minPartitions` or `maxRecordsPerPartition`
there has the same tasks here. Hence its floating-point arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from barnabas.base.ids import TopicPartition
from barnabas.base.settings.units import INT_MAX


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The offsets from `from_offset` to before `until_offset`. Some may hold nothing: compaction, markers."""

    topic_partition: TopicPartition
    from_offset: int
    until_offset: int

    @property
    def size(self) -> int:
        return self.until_offset - self.from_offset


def between(begin: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """The ranges of partitions that have both a begin and an end, in order; empty and negative ones too."""
    return [OffsetRange(partition, begin[partition], end[partition]) for partition in sorted(end) if partition in begin]


def split(
    ranges: Iterable[OffsetRange], *, min_partitions: int | None = None, max_records_per_partition: int | None = None
) -> list[OffsetRange]:
    """Drop what is empty; divide so that no range has more than the maximum; then towards the minimal number.

    Small ranges stay whole: only those that are large beside the others are divided further, each in proportion.
    """
    divided = [offsets for offsets in ranges if offsets.size > 0]
    if max_records_per_partition is not None:
        divided = [
            part
            for offsets in divided
            for part in _divide(offsets, min(math.ceil(offsets.size / float(max_records_per_partition)), INT_MAX))
        ]
    if min_partitions is None or min_partitions <= len(divided):
        return divided
    return _towards(divided, min_partitions)


def _towards(ranges: Sequence[OffsetRange], min_partitions: int) -> list[OffsetRange]:
    total = sum(offsets.size for offsets in ranges)
    small = [offsets for offsets in ranges if _part_count(offsets.size, total, min_partitions) == 1]
    # By partition, not by range: where the maximum has divided a partition, one small part keeps all of it whole.
    whole = {offsets.topic_partition for offsets in small}
    total_of_large = total - sum(offsets.size for offsets in small)
    parts_of_large = max(min_partitions - len(small), 1)
    return [
        part
        for offsets in ranges
        for part in _divide(
            offsets,
            1 if offsets.topic_partition in whole else _part_count(offsets.size, total_of_large, parts_of_large),
        )
    ]


def split_by_bytes(
    ranges: Iterable[OffsetRange], bytes_per_offset: Mapping[TopicPartition, float], max_bytes: int
) -> list[OffsetRange]:
    """Divide ranges that hold more than `max_bytes` by estimate. One offset is the least; unknown ones stay whole."""
    divided: list[OffsetRange] = []
    for offsets in ranges:
        if offsets.size > 0:
            estimate = offsets.size * bytes_per_offset.get(offsets.topic_partition, 0.0)
            parts = math.ceil(min(estimate / max_bytes, offsets.size)) if estimate > max_bytes else 1
            divided += _divide(offsets, parts)
    return divided


def _divide(offsets: OffsetRange, parts: int) -> list[OffsetRange]:
    """Into equal parts, of which the later ones take what does not divide; parts without an offset are left out."""
    divided = []
    start, remaining = offsets.from_offset, offsets.size
    for left in range(parts, 0, -1):
        size = remaining // left
        if size > 0:
            divided.append(OffsetRange(offsets.topic_partition, start, start + size))
        start += size
        remaining -= size
    return divided


def _part_count(size: int, total: int, parts: int) -> int:
    return max(_round(float(size) / float(total) * parts), 1)


def _round(number: float) -> int:
    """To the nearest whole number, halves upwards, as Java does it. Python's `round` goes to the even one."""
    whole = math.floor(number)
    return whole + (number - whole >= 0.5)
