"""Data sources that do no work of their own: what Spark can take and give at best, through Python and Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

from barnabas.spark.schema import arrow_schema, source_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

#: Batches as large as Spark likes them best.
BATCH_ROWS: Final = 65_536
BATCH_BYTES: Final = 8 << 20
PARTITIONS: Final = 2
_TIME_US: Final = 1_700_000_000_000_000


class InMemory(DataSource):
    """The rows that a topic would give, made from memory: options `rows` and `size`."""

    @classmethod
    def name(cls) -> str:
        return "in-memory"

    def schema(self) -> StructType:
        return source_schema(include_headers=False)

    def reader(self, schema: StructType) -> DataSourceReader:
        return InMemoryReader(int(self.options["rows"]), int(self.options["size"]))


@dataclass
class InMemoryReader(DataSourceReader):
    rows: int
    size: int

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.compute as pc

        count = min(BATCH_ROWS, BATCH_BYTES // self.size)
        value = pa.repeat(pa.scalar(b"x" * self.size, pa.binary()), count)
        key = pa.nulls(count, pa.binary())
        topic = pa.repeat(pa.scalar("in-memory"), count)
        number = pa.repeat(pa.scalar(partition.value, pa.int32()), count)
        kind = pa.repeat(pa.scalar(0, pa.int32()), count)
        offsets = pa.array(range(count), pa.int64())
        stamps = pc.add(offsets, _TIME_US).view(pa.timestamp("us", tz="UTC"))
        left, first = self.rows // PARTITIONS, 0
        while left > 0:
            columns = [key, value, topic, number, pc.add(offsets, first), stamps, kind]
            batch = pa.RecordBatch.from_arrays(columns, schema=arrow_schema(include_headers=False))
            yield batch.slice(0, left)
            left -= count
            first += count


class Discarding(DataSource):
    """Takes rows as a sink does, and forgets them."""

    @classmethod
    def name(cls) -> str:
        return "discarding"

    def schema(self) -> StructType:
        return source_schema(include_headers=False)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return DiscardingWriter()


class DiscardingWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()
