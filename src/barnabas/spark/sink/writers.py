"""The sink as Spark sees it: a writer for batches and one for streams. Checked on the driver, at work in the tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from barnabas.spark.core.errors import OptionError
from barnabas.spark.core.options import SinkOptions
from barnabas.spark.sink.columns import sink_columns
from barnabas.spark.sink.messages import RowsWritten, all_rows
from barnabas.spark.sink.settings import producer_settings
from barnabas.spark.sink.writing import WritePlan, write_rows
from barnabas.spark.telling import told_first

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_log: Final = logging.getLogger("barnabas.spark.sink")

_Messages: TypeAlias = list[WriterCommitMessage | None]


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> TopicBatchWriter:
    """The writer of `df.write`. Raises if the options or columns cannot be written."""
    if overwrite:
        raise OptionError(
            "A topic cannot be overwritten: records are only ever appended. Use mode('append'); to begin anew, "
            "delete the topic's records or the topic first"
        )
    return TopicBatchWriter(_write_plan(options, schema))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> TopicStreamWriter:
    """The writer of `df.writeStream`. `overwrite` comes with outputMode('complete'): the whole result is appended."""
    return TopicStreamWriter(_write_plan(options, schema))


def _write_plan(options: Mapping[str, str], schema: StructType) -> WritePlan:
    """Check options and columns; what is left to know for a task."""
    parsed = SinkOptions.parse(options)
    for warning in parsed.warnings:
        _log.warning("%s", warning)
    columns = sink_columns(schema, topic=parsed.topic, include_timestamp=parsed.include_timestamp)
    return WritePlan(columns, producer_settings(parsed.client), parsed.topic)


class TopicBatchWriter(DataSourceArrowWriter):
    """Appends the rows of a DataFrame to topics."""

    def __init__(self, plan: WritePlan) -> None:
        self.plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        with told_first():
            return write_rows(self.plan, iterator)

    def commit(self, messages: _Messages) -> None:
        _log.info("wrote %s", all_rows(messages))

    def abort(self, messages: _Messages) -> None:
        _log.warning("the write failed; %s", _left_behind(messages))


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Appends the rows of each micro-batch to topics."""

    def __init__(self, plan: WritePlan) -> None:
        self.plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        with told_first():
            return write_rows(self.plan, iterator)

    def commit(self, messages: _Messages, batchId: int) -> None:  # noqa: N803
        _log.info("batch %d: wrote %s", batchId, all_rows(messages))

    def abort(self, messages: _Messages, batchId: int) -> None:  # noqa: N803
        _log.warning("batch %d failed; %s", batchId, _left_behind(messages))


def _left_behind(messages: _Messages) -> str:
    """What a failed write has left in topics: it stays there, and a second try adds its own."""
    failed = sum(message is None for message in messages)
    return (
        f"{failed} of {len(messages)} tasks did not end well, the others wrote {all_rows(messages)}. These rows stay, "
        "and a new try writes them again (at least once)"
    )
