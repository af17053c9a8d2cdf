"""What readers hand to executors: how to read a range, and how to decode it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from barnabas.base.ids import TopicPartition
from barnabas.spark.core.ranges import OffsetRange, split, split_by_bytes
from barnabas.spark.reading import RangePartition, ReadPlan, read_range

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

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RangePartition):
            # Spark makes one task of no tasks.
            return
        if self.decoding is None:
            yield from read_range(self.plan, partition)
            return
        from barnabas.spark.decoding import Decoder

        # Dead letters keep the headers of their records, whether or not the query sees them.
        keeps_headers = self.plan.include_headers
        plan = replace(self.plan, include_headers=keeps_headers or self.decoding.needs_headers)
        with Decoder(self.decoding, client=plan.client, keep_headers=keeps_headers) as decoder:
            for batch in read_range(plan, partition):
                yield decoder.apply(batch)
            decoder.finish()


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
        parts = split_by_bytes(parts, density(client, parts), options.max_bytes_per_partition)
    return [
        RangePartition(
            part.topic_partition.topic,
            part.topic_partition.partition,
            part.from_offset,
            part.until_offset,
            topic_ids.get(part.topic_partition.topic),
        )
        for part in parts
    ]


def density(client: Mapping[str, str], ranges: list[OffsetRange]) -> dict[TopicPartition, float]:
    """Bytes per offset, sampled between the first and the last offset of each partition."""
    from barnabas.spark.density import bytes_per_offset

    begin: dict[TopicPartition, int] = {}
    end: dict[TopicPartition, int] = {}
    for each in ranges:
        partition = each.topic_partition
        begin[partition] = min(begin.get(partition, each.from_offset), each.from_offset)
        end[partition] = max(end.get(partition, each.until_offset), each.until_offset)
    return bytes_per_offset(client, begin, end)
