"""One task of a write that is exactly once: its rows in a transaction, which is left open for the driver to end."""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.client.core.consuming.membership_steps import GroupMetadata
from barnabas.client.core.consuming.offsets import OffsetAndMetadata
from barnabas.spark.core.exactly_once import Attempt, Stream, Written
from barnabas.spark.core.exactly_once.refusals import DeliveryError, batch_too_long
from barnabas.spark.sink.advice import longest_timeout_ms, with_advice
from barnabas.spark.sink.control_topic import ensure_control_topic, is_deleted
from barnabas.spark.sink.messages import TransactionWritten
from barnabas.spark.sink.settings import needed_ms, transaction_timeout_ms
from barnabas.spark.sink.writing import RowsUnderWay, WriteError, WritePlan, by_topic

if TYPE_CHECKING:
    import pyarrow as pa

    from barnabas import Producer

#: Under these names Spark tells a task whose it is.
_QUERY: Final = "sql.streaming.queryId"
_RUN: Final = "spark.jobGroup.id"
_BATCH: Final = "streaming.sql.batchId"

#: One time that a batch is written: its run, its number and Spark's stage, which is another one if a function for
#: `foreachBatch` tries again.
_Writing: TypeAlias = tuple[str, int, int]


def attempt_of_this_task(plan: WritePlan) -> Attempt:
    """Who this is, as Spark tells it; raises outside of a streaming query."""
    from pyspark import TaskContext

    assert plan.exactly_once is not None
    context = TaskContext.get()
    told = [] if context is None else [context.getLocalProperty(name) for name in (_QUERY, _RUN, _BATCH)]
    if context is None or not all(told):
        raise DeliveryError(
            "delivery is exactly-once, and this task belongs to no streaming query that Spark tells of: only batches of"
            " a stream have the numbers by which a repeated one is known. Use writeStream, or topic_writer in"
            " foreachBatch of a session that is not one of Spark Connect."
        )
    query, run, batch = (each or "" for each in told)
    _check_run(run)
    return Attempt(
        Stream(query, plan.exactly_once.sink),
        run,
        int(batch),
        context.partitionId(),
        context.attemptNumber(),
        context.taskAttemptId(),
        context.stageId(),
    )


def _check_run(run: str) -> None:
    """No two runs have one name: by it a driver that was superseded is known, and transactions of the dead."""
    try:
        is_own = str(uuid.UUID(run)) == run.lower()
    except ValueError:
        is_own = False
    if not is_own:
        raise DeliveryError(
            f"delivery is exactly-once, and the run of this query cannot be told: its jobs are in the group {run!r},"
            " where Spark has put the id of the run. Leave setJobGroup out of foreachBatch; setJobDescription and"
            " addTag do no harm."
        )


#: When the first transaction began that a task of this process wrote in the newest batch of each stream: with it the
#: batch is as old as that, at least, for the tasks which come after.
_begun_s: Final[dict[Stream, tuple[_Writing, float]]] = {}


def write_in_transaction(
    plan: WritePlan,
    batches: Iterable[pa.RecordBatch],
    attempt: Attempt,
    now_s: Callable[[], float] = time.monotonic,
) -> TransactionWritten:
    """Write all batches, and return once every row is acknowledged; without rows there is no transaction."""
    filled = (batch for batch in batches if batch.num_rows)
    first, topic = next(filled, None), plan.topic or ""
    if first is None:
        return TransactionWritten(written=Written(attempt, topic=topic))
    with _transaction(plan, attempt) as producer:
        begun_ms, size_bytes, fingerprint = int(time.time() * 1000), 0, 0
        begin_s = _batch_begin_s(attempt, now_s())
        task = RowsUnderWay(plan, producer)
        for batch in _with_first(first, filled):
            task.send(batch)
            size_bytes += _size_bytes(plan, batch)
            fingerprint += _fingerprint(plan, batch)
            _check_time(plan, attempt, int((now_s() - begin_s) * 1000))
        rows = task.finish()
        _check_time(plan, attempt, int((now_s() - begin_s) * 1000))
        written = Written(attempt, rows.row_count, size_bytes, None, begun_ms, fingerprint, topic)
        written = _hand_over(plan, producer, attempt, written)
        _begun_s[attempt.stream] = _writing(attempt), begin_s
    return TransactionWritten(rows.partitions, written=written)


def _batch_begin_s(attempt: Attempt, now_s: float) -> float:
    writing, begin_s = _begun_s.get(attempt.stream, (None, 0.0))
    return min(begin_s, now_s) if writing == _writing(attempt) else now_s


def _writing(attempt: Attempt) -> _Writing:
    return attempt.run, attempt.batch, attempt.stage


def _with_first(first: pa.RecordBatch, others: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from others


@contextmanager
def _transaction(plan: WritePlan, attempt: Attempt) -> Iterator[Producer]:
    """A producer in a transaction. If the task fails, so does the transaction, at once if that is possible."""
    from barnabas import Producer

    assert plan.exactly_once is not None
    ensure_control_topic(plan.client, plan.exactly_once.control_topic)
    producer = Producer({**plan.client, "transactional.id": attempt.transactional_id})
    try:
        with _told(plan, attempt):
            producer.init_transactions()
            producer.begin_transaction()
        yield producer
    finally:
        # Aborts what is open, but not what was handed over.
        producer.close()


def _hand_over(plan: WritePlan, producer: Producer, attempt: Attempt, written: Written) -> Written:
    assert plan.exactly_once is not None
    place = TopicPartition(plan.exactly_once.control_topic, 0)
    receipt = OffsetAndMetadata(attempt.batch, attempt.transactional_id)
    with _told(plan, attempt):
        producer.send_offsets_to_transaction({place: receipt}, GroupMetadata(attempt.stream.group_of(attempt.task)))
        return replace(written, handle=producer.transaction_handle())


@contextmanager
def _told(plan: WritePlan, attempt: Attempt) -> Iterator[None]:
    try:
        yield
    except BarnabasError as error:
        assert plan.exactly_once is not None
        servers, control_topic = plan.client.get("bootstrap.servers", ""), plan.exactly_once.control_topic
        if is_deleted(plan.client, control_topic):
            # Other workers of this Spark believe in it, too. Once it is there they go on, and the driver sees the loss.
            ensure_control_topic(plan.client, control_topic)
            raise WriteError(
                f"task {attempt.task} of batch {attempt.batch} cannot write exactly once: the control topic"
                f" '{control_topic}', where decisions are kept, was deleted while the query ran. Nothing of the task is"
                " seen. When it starts again the query says what is not known of the batches before."
            ) from error
        told = with_advice(error, attempt.stream, control_topic)
        if getattr(error, "code", None) is ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            most_ms = longest_timeout_ms(plan.client)
            told += f" It is {transaction_timeout_ms(plan.client)}" + (
                "." if most_ms is None else f", and that {most_ms}."
            )
        raise WriteError(
            f"task {attempt.task} of batch {attempt.batch} got no transaction of the brokers at {servers}, which"
            f" delivery=exactly-once needs: {told}"
        ) from error


def _check_time(plan: WritePlan, attempt: Attempt, age_ms: int) -> None:
    timeout_ms = transaction_timeout_ms(plan.client)
    if age_ms > timeout_ms - needed_ms(plan.client):
        most_ms = longest_timeout_ms(plan.client)
        raise batch_too_long(attempt.stream, attempt.batch, attempt.task, age_ms, timeout_ms, most_ms)


def _size_bytes(plan: WritePlan, batch: pa.RecordBatch) -> int:
    """The size of keys and values, however the rows lie in tasks and batches."""
    import pyarrow.compute as pc

    places = (plan.columns.key, plan.columns.value)
    sizes = (pc.sum(pc.binary_length(batch.column(place))).as_py() for place in places if place is not None)
    return sum(size or 0 for size in sizes)


def _fingerprint(plan: WritePlan, batch: pa.RecordBatch) -> int:
    """That of keys and values, and of the topics that rows name, however the rows lie in tasks and batches."""
    from barnabas.records.arrow import fingerprint

    if plan.topic is not None:
        return fingerprint(plan.columns.keys_and_values(batch))
    parts = by_topic(plan, batch, plan.columns.keys_and_values(batch))
    return sum(_number_of(topic) * fingerprint(rows) for topic, rows in parts)


def _number_of(topic: str) -> int:
    """An odd one: by it no two fingerprints become the same."""
    return int.from_bytes(hashlib.blake2b(topic.encode(), digest_size=8).digest(), "big") | 1
