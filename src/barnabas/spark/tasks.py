"""What readers hand to executors: how to read a range, and how to decode it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from barnabas.base.ids import TopicPartition
from barnabas.spark.core.admission_limits import EARLIEST, LATEST, Earliest, LatestOffsets, Limit, Offsets
from barnabas.spark.core.ranges import OffsetRange, split, split_by_bytes
from barnabas.spark.density import bytes_per_offset
from barnabas.spark.reading import RangePartition, ReadPlan, read_range
from barnabas.spark.telling import told_first

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition

    from barnabas.spark.core.options import SourceOptions
    from barnabas.spark.decoding import DecodingOptions


@dataclass(frozen=True, slots=True)
class Tasks:
    """All that an executor needs, beside its range. Small and picklable: it goes along with every task."""

    plan: ReadPlan
    decoding: DecodingOptions | None = None
    #: Settings of the producer that writes dead letters. May hold passwords.
    letters: dict[str, str] = field(default_factory=dict, repr=False)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RangePartition):
            # Spark makes one task of no tasks.
            return
        with told_first():
            yield from self._batches(partition)

    def _batches(self, partition: RangePartition) -> Iterator[pa.RecordBatch]:
        if self.decoding is None:
            yield from read_range(self.plan, partition)
            return
        from barnabas.spark.decoding import Decoder

        # Dead letters keep the headers of their records, whether or not the query sees them.
        keeps_headers = self.plan.include_headers
        plan = replace(self.plan, include_headers=keeps_headers or self.decoding.needs_headers)
        decoder = Decoder(self.decoding, client=self.letters, keep_headers=keeps_headers)
        for batch in read_range(plan, partition):
            yield decoder.apply(batch)


def input_partitions(
    ranges: list[OffsetRange], options: SourceOptions, client: Mapping[str, str], topic_ids: Mapping[str, str]
) -> list[RangePartition]:
    """One for each task, split as the options ask for."""
    parts = split(
        ranges,
        min_partitions=options.min_partitions,
        max_records_per_partition=options.max_records_per_partition,
    )
    if options.max_bytes_per_partition is not None and parts:
        parts = split_by_bytes(parts, bytes_per_offset(client, parts), options.max_bytes_per_partition)
    return [_task(part, topic_ids) for part in parts]


def _task(part: OffsetRange, topic_ids: Mapping[str, str]) -> RangePartition:
    topic, partition = part.topic_partition
    return RangePartition(topic, partition, part.from_offset, part.until_offset, topic_ids.get(topic))


def left_open(
    parts: list[RangePartition], ranges: list[OffsetRange], options: SourceOptions, topic_ids: Mapping[str, str]
) -> list[RangePartition]:
    """What is to begin at the earliest or end at the latest offset: that is found out when the task begins.

    Spark keeps the tasks of a loaded DataFrame for as long as that lives. A table that a stream is joined with, or a
    view, would show for ever what was there when it was first used, and fail when that expires.
    """
    whole = {each.topic_partition: each for each in ranges}
    # What is empty now need not stay so.
    empty = [_task(each, topic_ids) for each in ranges if not each.size]
    opened = []
    for part in (*parts, *empty):
        partition = TopicPartition(part.topic, part.partition)
        planned, start, end = whole[partition], part.from_offset, part.until_offset
        if start == planned.from_offset and _is_at(options.starting, partition, EARLIEST):
            start = EARLIEST
        if end == planned.until_offset and _is_at(options.ending, partition, LATEST):
            end = LATEST
        if start < end or end == LATEST:
            # All that is there, whichever topic has the name by then; a part of one is a part of no other.
            topic_id = None if (start, end) == (EARLIEST, LATEST) else part.topic_id
            opened.append(RangePartition(*partition, start, end, topic_id))
    return opened


def _is_at(limit: Limit, partition: TopicPartition, place: int) -> bool:
    match limit:
        case Earliest():
            return place == EARLIEST
        case LatestOffsets():
            return place == LATEST
        case Offsets(offsets):
            return offsets[partition] == place
        case _:
            return False
