"""The data source `barnabas`: options in, readers and writers out. The work is done by the modules that it names."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)

from barnabas.base.errors import BarnabasError
from barnabas.client.settings import ADMIN_SETTINGS, CONSUMER_SETTINGS, PRODUCER_SETTINGS
from barnabas.spark.client_settings import settings_for, warn_of_unknown
from barnabas.spark.cluster import SparkCluster
from barnabas.spark.core import errors
from barnabas.spark.core.filters import Narrowing, narrow
from barnabas.spark.core.given import SparkOptions
from barnabas.spark.core.options import SELECTIONS, SourceOptions
from barnabas.spark.core.ranges import OffsetRange, between
from barnabas.spark.core.values import boolean
from barnabas.spark.reading import RangePartition, ReadPlan
from barnabas.spark.schema import source_schema
from barnabas.spark.streaming import RefusedStream, StreamReader
from barnabas.spark.tasks import Tasks, input_partitions, left_open
from barnabas.spark.telling import tells_first

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

NAME: Final = "barnabas"


class BarnabasDataSource(DataSource):
    """Topics as tables and streams. Made anew by Spark for each use, so it keeps the options and nothing else."""

    @classmethod
    def name(cls) -> str:
        return NAME

    @tells_first
    def schema(self) -> StructType:
        """The columns of a read. Asked for by `load`: what is wrong in any case is told here, not at the first row."""
        given = self._given
        # Where topics are selected, or seem to be, it is a read: Spark asks for the columns of a write as well.
        if any(name.lower() in given for name in SELECTIONS) or any(SparkOptions(given, SELECTIONS).slips()):
            _check_options(given)
        return _columns(given)

    @tells_first
    def reader(self, schema: StructType) -> BatchReader:
        kind = NarrowingReader if _is_on(self._given, "pushFilters") else BatchReader
        return kind(*self._prepare(schema, is_streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        try:
            return StreamReader(*self._prepare(schema, is_streaming=True))
        except BarnabasError as error:
            return RefusedStream(error)

    @tells_first
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from barnabas.spark.sink import batch_writer

        return batch_writer(self._given, schema, overwrite)

    @tells_first
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        from barnabas.spark.sink import stream_writer

        return stream_writer(self._given, schema, overwrite)

    @property
    def _given(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self.options.items()}

    def _prepare(self, schema: StructType, *, is_streaming: bool) -> tuple[SourceOptions, Tasks, dict[str, str]]:
        given = self._given
        options = SourceOptions.parse(given, is_streaming=is_streaming)
        for warning in options.warnings:
            log.warning("%s", warning)
        _check_schema(schema, _columns(given))
        return options, _tasks(options, given), settings_for(options.client, ADMIN_SETTINGS)


class BatchReader(DataSourceReader):
    """Reads from the start to the end that the options give.

    Spark plans a loaded DataFrame once. So which partitions there are is as it was then, and so are offsets by time;
    `earliest` and `latest` are what they are each time that it is used, as in the JVM connector.
    """

    def __init__(self, options: SourceOptions, tasks: Tasks, admin_client: dict[str, str]) -> None:
        self._options = options
        self._tasks = tasks
        self._admin_client = admin_client

    @tells_first
    def partitions(self) -> list[InputPartition]:
        cluster = SparkCluster(self._options, self._admin_client)
        try:
            return [*self._planned(cluster)]
        finally:
            cluster.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._tasks.read(partition)

    def _planned(self, cluster: SparkCluster) -> list[RangePartition]:
        ranges = self._ranges(cluster)
        return left_open(self._split(ranges, cluster), ranges, self._options, cluster.topic_ids())

    def _split(self, ranges: list[OffsetRange], cluster: SparkCluster) -> list[RangePartition]:
        return input_partitions(ranges, self._options, self._tasks.plan.client, cluster.topic_ids())

    def _ranges(self, cluster: SparkCluster) -> list[OffsetRange]:
        begin = cluster.resolve(self._options.starting, is_start=True)
        end = cluster.resolve(self._options.ending, is_start=False)
        if begin.keys() != end.keys():
            raise errors.mismatched_topic_partitions_between_start_and_end(begin, end)
        ranges = between(begin, end)
        for each in ranges:
            if each.size < 0:
                raise errors.resolved_start_offset_greater_than_end_offset(
                    each.topic_partition, each.from_offset, each.until_offset
                )
        return ranges


class NarrowingReader(BatchReader):
    """Leaves out what the query's filters on topic, partition, offset and timestamp leave out anyway.

    Only on request (`pushFilters`), because Spark 4.3 keeps one plan for each loaded DataFrame: a second query on the
    same DataFrame, with other filters or none, would be given what the first one left. Its ends are those of the plan.
    """

    def __init__(self, options: SourceOptions, tasks: Tasks, admin_client: dict[str, str]) -> None:
        super().__init__(options, tasks, admin_client)
        self._narrowing: Narrowing | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """All filters stay with Spark as well: they cost little on the rows that are left."""
        self._narrowing = narrow(filters)
        return filters

    def _planned(self, cluster: SparkCluster) -> list[RangePartition]:
        ranges = self._ranges(cluster)
        if self._narrowing is not None:
            ranges = _narrowed(ranges, self._narrowing, cluster)
        return self._split(ranges, cluster)


def _narrowed(ranges: list[OffsetRange], narrowing: Narrowing, cluster: SparkCluster) -> list[OffsetRange]:
    kept = [
        OffsetRange(each.topic_partition, *narrowing.offsets(each.from_offset, each.until_offset))
        for each in ranges
        if narrowing.keeps(each.topic_partition)
    ]
    kept = [each for each in kept if each.size > 0]
    if narrowing.min_timestamp_ms is None or not kept:
        return kept
    # Asked when the ends are known: where no record is as young, none before the end is.
    first = cluster.at_times({each.topic_partition: narrowing.min_timestamp_ms for each in kept})
    narrowed = []
    for each in kept:
        start = first[each.topic_partition]
        if start is not None and start < each.until_offset:
            narrowed.append(OffsetRange(each.topic_partition, max(each.from_offset, start), each.until_offset))
    return narrowed


def _columns(given: Mapping[str, str]) -> StructType:
    from barnabas.spark.decoding import DecodingOptions

    base = source_schema(_is_on(given, "includeHeaders"))
    decoding = DecodingOptions.parse(given)
    return base if decoding is None else decoding.spark_schema(base)


def _is_on(given: Mapping[str, str], name: str) -> bool:
    return boolean(name, given.get(name.lower(), "false"))


def _check_options(given: Mapping[str, str]) -> None:
    """Refuse what neither a batch nor a stream takes. Which of them it will be, Spark does not tell yet."""
    try:
        SourceOptions.parse(given, is_streaming=False)
    except errors.OptionError:
        if any(name.startswith("ending") for name in given):
            raise  # who gives an end means a batch
        SourceOptions.parse(given, is_streaming=True)


def _tasks(options: SourceOptions, given: Mapping[str, str]) -> Tasks:
    from barnabas.spark.decoding import DecodingOptions, letter_settings

    kinds, letters = [CONSUMER_SETTINGS, ADMIN_SETTINGS], {}
    decoding = DecodingOptions.parse(given)
    if decoding is not None and decoding.dead_letter_topic is not None:
        if options.selection.matches(decoding.dead_letter_topic):
            raise errors.OptionError(
                f"Option deadLetterTopic is {decoding.dead_letter_topic!r}, a topic that the query itself reads: each "
                "letter would be read, found bad and written again, for ever. Name another topic."
            )
        kinds.append(PRODUCER_SETTINGS)
        letters = letter_settings(options.client)
    warn_of_unknown(options.client, *kinds)
    plan = ReadPlan(
        client=settings_for(options.client, CONSUMER_SETTINGS),
        poll_timeout_ms=options.poll_timeout_ms,
        fail_on_data_loss=options.fail_on_data_loss,
        include_headers=options.include_headers,
        group_id=options.group_id,
    )
    return Tasks(plan, decoding, letters)


def _check_schema(schema: StructType, own: StructType) -> None:
    """Spark hands in what the user gave as a schema, or else our own."""
    given = [(field.name, field.dataType.simpleString()) for field in schema]
    if given != [(field.name, field.dataType.simpleString()) for field in own]:
        raise errors.OptionError(
            "The source has fixed columns, and takes no schema of the user's. Its columns are "
            f"{own.simpleString()}; given was {schema.simpleString()}. Leave the schema out; for typed values see the "
            "options valueFormat and valueSchema."
        )
