"""The sink as Spark sees it: a writer for batches and one for streams. Checked on the driver, at work in the tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from barnabas.spark.core.errors import OptionError
from barnabas.spark.core.exactly_once.control import Written
from barnabas.spark.core.options import BATCH_OPTION, SinkOptions
from barnabas.spark.sink.columns import sink_columns
from barnabas.spark.sink.messages import RowsWritten, TransactionWritten, all_rows
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
    plan = _write_plan(options, schema)
    if plan.exactly_once is not None and plan.exactly_once.batch is None:
        raise OptionError(
            "Option delivery is exactly-once, which is for streams: a batch that is written again has no number by "
            "which it is known. Use writeStream, or barnabas.spark.topic_writer in foreachBatch"
        )
    return TopicBatchWriter(plan)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> TopicStreamWriter:
    """The writer of `df.writeStream`. `overwrite` comes with outputMode('complete'): the whole result is appended."""
    plan = _write_plan(options, schema)
    if plan.exactly_once is not None and plan.exactly_once.batch is not None:
        raise OptionError(f"Option {BATCH_OPTION} is for foreachBatch, where topic_writer sets it. Leave it out.")
    return TopicStreamWriter(plan)


def _write_plan(options: Mapping[str, str], schema: StructType) -> WritePlan:
    """Check options and columns; what is left to know for a task."""
    parsed = SinkOptions.parse(options)
    for warning in parsed.warnings:
        _log.warning("%s", warning)
    columns = sink_columns(schema, topic=parsed.topic, include_timestamp=parsed.include_timestamp)
    client = producer_settings(parsed.client, is_exactly_once=parsed.exactly_once is not None)
    return WritePlan(columns, client, parsed.topic, parsed.exactly_once)


class TopicBatchWriter(DataSourceArrowWriter):
    """Appends the rows of a DataFrame to topics."""

    def __init__(self, plan: WritePlan) -> None:
        self.plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        return _write(self.plan, iterator)

    def commit(self, messages: _Messages) -> None:
        _commit(self.plan, messages, self._batch)
        _log.info("wrote %s", all_rows(messages))

    def abort(self, messages: _Messages) -> None:
        _abort(self.plan, messages, self._batch)
        _log.warning("the write failed; %s", _left_behind(self.plan, messages))

    @property
    def _batch(self) -> int | None:
        """In `foreachBatch`."""
        return None if self.plan.exactly_once is None else self.plan.exactly_once.batch


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Appends the rows of each micro-batch to topics."""

    def __init__(self, plan: WritePlan) -> None:
        self.plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        return _write(self.plan, iterator)

    def commit(self, messages: _Messages, batchId: int) -> None:  # noqa: N803
        _commit(self.plan, messages, batchId)
        _log.info("batch %d: wrote %s", batchId, all_rows(messages))

    def abort(self, messages: _Messages, batchId: int) -> None:  # noqa: N803
        _abort(self.plan, messages, batchId)
        _log.warning("batch %d failed; %s", batchId, _left_behind(self.plan, messages))


def _write(plan: WritePlan, batches: Iterator[pa.RecordBatch]) -> RowsWritten:
    with told_first():
        if plan.exactly_once is None:
            return write_rows(plan, batches)
        from barnabas.spark.sink.transactional import attempt_of_this_task, write_in_transaction

        return write_in_transaction(plan, batches, attempt_of_this_task(plan))


def _commit(plan: WritePlan, messages: _Messages, batch: int | None) -> None:
    if plan.exactly_once is not None and batch is not None:
        from barnabas.spark.sink.batches import commit_batch

        with told_first():
            commit_batch(plan, batch, _transactions(messages))


def _abort(plan: WritePlan, messages: _Messages, batch: int | None) -> None:
    if plan.exactly_once is not None and batch is not None:
        from barnabas.spark.sink.batches import abort_batch

        try:
            abort_batch(plan, _transactions(messages))
        except Exception as error:
            # Of an abort that fails, Spark tells that the job failed, and not why the batch was aborted.
            _log.warning("batch %d failed, and what it left open could not be ended: %s", batch, error)


def _transactions(messages: _Messages) -> list[Written]:
    return [each.written for each in messages if isinstance(each, TransactionWritten)]


def _left_behind(plan: WritePlan, messages: _Messages) -> str:
    """What a failed write has left in topics. At least once, it stays there, and a second try adds its own."""
    failed = sum(message is None for message in messages)
    done = f"{failed} of {len(messages)} tasks did not end well, the others wrote {all_rows(messages)}"
    if plan.exactly_once is not None:
        return f"{done}. These rows are seen only if the batch was decided before (exactly once)"
    return f"{done}. These rows stay, and a new try writes them again (at least once)"
