"""The same query through our format and through the JVM connector's, with what came of it in a form to compare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

JVM: Final = "kafka"
OURS: Final = "barnabas"

#: A driver that asks again waits a second by default; tests of what fails have no time for that.
IMPATIENT: Final = {"fetchOffset.retryIntervalMs": "10"}


@dataclass(frozen=True, slots=True)
class Seen:
    """What a batch read gave: its schema, its rows by place, and the rows of each task, as ranges."""

    schema: StructType
    rows: list[tuple[object, ...]]
    #: For each task that had rows: topic, partition, first and last offset, number of rows.
    tasks: list[tuple[str, int, int, int, int]]


def read(spark: SparkSession, source: str, options: Mapping[str, str]) -> Seen:
    """All rows of a batch read."""
    from pyspark.sql.functions import spark_partition_id

    frame = spark.read.format(source).options(**{**IMPATIENT, **options}).load()
    columns = frame.columns
    ranges: dict[tuple[int, str, int], list[int]] = {}
    rows: list[tuple[object, ...]] = []
    for row in frame.withColumn("task", spark_partition_id()).collect():
        ranges.setdefault((row["task"], row["topic"], row["partition"]), []).append(row["offset"])
        rows.append(tuple(_plain(row[name]) for name in columns))
    place = [columns.index(name) for name in ("topic", "partition", "offset")]
    rows.sort(key=lambda row: tuple(str(row[at]).zfill(12) for at in place))
    tasks = [(topic, at, min(seen), max(seen), len(seen)) for (_, topic, at), seen in ranges.items()]
    return Seen(frame.schema, rows, sorted(tasks))


def _plain(value: object) -> object:
    """Values that can be compared and read in a failure: tuples for rows and lists, bytes for byte arrays."""
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, list | tuple):
        return tuple(_plain(each) for each in value)
    return value


def stream(spark: SparkSession, source: str, options: Mapping[str, str], name: str | None = None) -> DataFrame:
    """`name` is that of the source in the checkpoint, where Spark is set to have one."""
    reader = spark.readStream.format(source).options(**{**IMPATIENT, **options})
    return (reader if name is None else reader.name(name)).load()


def drain(frame: DataFrame, checkpoint: Path, table: Path | None = None) -> None:
    """Read all that is there now into a Parquet table, or into nothing; returns when it is done."""
    writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    writer = writer.format("noop") if table is None else writer.format("parquet").option("path", str(table))
    query = writer.start()
    try:
        query.awaitTermination()
    finally:
        query.stop()


def values(spark: SparkSession, table: Path) -> list[str]:
    """The values in a table, sorted, with whatever is there twice twice."""
    return sorted(bytes(row["value"]).decode() for row in spark.read.parquet(str(table)).select("value").collect())
