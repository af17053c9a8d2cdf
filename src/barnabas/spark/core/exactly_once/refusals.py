"""What is said where the protocol goes no further: which query, which batch, what is there, what to do."""

from __future__ import annotations

from typing import Final

from barnabas.spark.core.errors import SparkConnectorError
from barnabas.spark.core.exactly_once.control import BatchDecision, Control, LostControl, TaskPart
from barnabas.spark.core.exactly_once.names import Stream
from barnabas.spark.core.exactly_once.steps import LONGEST_NEEDED_MS

_MOST_SHOWN: Final = 20
#: What runs are called that only finish what others left.
FINISHING: Final = "finish-"
_LONG_ENOUGH: Final = f"at least {LONGEST_NEEDED_MS // 1000} s longer than a batch takes"
_LONGER: Final = (
    f"make kafka.transaction.timeout.ms {_LONG_ENOUGH} (and transaction.max.timeout.ms of the brokers, if need be), or"
    " batches shorter with maxOffsetsPerTrigger."
)


class DeliveryError(SparkConnectorError):
    """A batch cannot be written exactly once."""


class TornBatchError(DeliveryError):
    """A batch was decided, and not all of it can be found."""


class ForgottenBatchError(DeliveryError):
    """A batch was decided, and nobody remembers whether it was committed."""


class SupersededError(DeliveryError):
    """Another run of the query has taken over."""


class OtherPastError(DeliveryError):
    """The checkpoint and the control topic tell of different pasts."""


class NotAliveError(DeliveryError):
    """Transactions were gone, or would have been soon, before the batch was decided. It is only to be repeated."""


def rows_text(rows: int, kind: str = "") -> str:
    return f"1{kind} row" if rows == 1 else f"{rows:,}{kind} rows"


def torn(stream: Stream, decision: BatchDecision, missing: list[TaskPart]) -> TornBatchError:
    lost = sum(part.rows for part in missing)
    return TornBatchError(
        f"Batch {decision.batch} of query {stream.query} was decided by run {decision.run}, with {_whole(decision)},"
        f" and then nobody ended its transactions before their transaction.timeout.ms was over. There is no proof of"
        f" {rows_text(lost)} in the topics: those of {_parts(missing)}; the others are there. If this was decided"
        " longer ago than offsets.retention.minutes, they may be there as well. Compare the topics with the source; the"
        " query goes on with a new checkpoint only, and startingOffsets that say from where."
    )


def forgotten(stream: Stream, decision: BatchDecision, parts: list[TaskPart]) -> ForgottenBatchError:
    rows = sum(part.rows for part in parts)
    return ForgottenBatchError(
        f"Batch {decision.batch} of query {stream.query} was decided by run {decision.run}, with {_whole(decision)}, so"
        " long ago that the brokers have forgotten what became of it (transactional.id.expiration.ms and"
        f" offsets.retention.minutes), and its checkpoint does not say that it is done. Nobody can tell whether the"
        f" topics have {rows_text(rows)}, those of {_parts(parts)}: compare them with the source. The query goes on"
        " with a new checkpoint only, and startingOffsets that say from where."
    )


def superseded(stream: Stream, run: str, control: Control) -> SupersededError:
    if control.owner.startswith(FINISHING):
        return SupersededError(
            f"Run {run} of query {stream.query} was ended by barnabas transactions --finish: it has written nothing"
            " that counts since. Start the query again."
        )
    return SupersededError(
        f"Run {run} of query {stream.query} was superseded by run {control.owner}: two drivers use one checkpoint, or"
        " copies of it. This one has written nothing that counts since. Stop one of them."
    )


def gone(stream: Stream, batch: int, newest: BatchDecision | None) -> OtherPastError:
    found = "has no decision of this query" if newest is None else f"ends with batch {newest.batch}"
    return OtherPastError(
        f"Batch {batch} of query {stream.query} follows a decision that is not there: the control topic {found}. Either"
        " the query did not write exactly once before, or with another sinkName, or its function for foreachBatch left"
        " batches out, where its writer must be called in each, also with an empty frame: then set the option"
        f" exactlyOnceFrom to {batch}, if all batches before are in the topics. Or decisions were deleted: then nobody"
        f" knows what of batch {max(0, batch - 1)} is in the topics."
    )


def deleted(stream: Stream) -> OtherPastError:
    return OtherPastError(
        f"The control topic has no decision of query {stream.query}, whose tasks have committed before, as the brokers"
        " remember: decisions were deleted, or the option controlTopic named another topic then. In that case name it"
        " again. Else nobody knows what of the newest batch is in the topics: compare them with the source, and begin"
        " with a new checkpoint, or with another sinkName and exactlyOnceFrom, the first batch to be written."
    )


def lost(stream: Stream, control: LostControl) -> OtherPastError:
    return OtherPastError(
        f"The newest decision of query {stream.query} stood at offset {control.offset} of the control topic"
        f" '{control.topic}', and is not there any more: the topic was made anew, or a broker lost its end. Nobody"
        " knows what of the newest batch is in the topics: compare them with the source, and begin with a new"
        " checkpoint, or with another sinkName and exactlyOnceFrom, the first batch to be written."
    )


def other_batch(stream: Stream, given: int, batch: int) -> OtherPastError:
    return OtherPastError(
        f"A writer of query {stream.query} was called with batch {given} in batch {batch}: give it the number that"
        " foreachBatch gives."
    )


def other_topic(stream: Stream, newest: BatchDecision, now: BatchDecision) -> OtherPastError:
    return OtherPastError(
        f"Batch {newest.batch} of query {stream.query} was decided by run {newest.run} for {_topic_text(newest)}, and"
        f" now is to be written to {_topic_text(now)}. It stays as it was decided. {_several_writers(stream)} If the"
        " option topic was changed, end the batch with the former one first."
    )


def rewound(stream: Stream, batch: int, newest: BatchDecision) -> OtherPastError:
    return OtherPastError(
        f"Batch {batch} of query {stream.query} was written before: the newest decision is that of batch"
        f" {newest.batch}, by run {newest.run}, with {_whole(newest)}. The checkpoint was rewound, is a copy whose"
        " original went on, or another driver uses it. To write these rows again begin with a new checkpoint; otherwise"
        " go on with the newest one, with one driver."
    )


def renamed(stream: Stream, batch: int, sink: str, newest: BatchDecision) -> OtherPastError:
    return OtherPastError(
        f"Batch {batch} of query {stream.query} is to be written to {_topic_text(newest)} with sinkName={stream.sink},"
        f" and with sinkName={sink} run {newest.run} has written batch {newest.batch} there before, with"
        f" {_whole(newest)}. The rows would be there twice: give this writer its former sinkName, {sink}, again."
    )


def written_before(stream: Stream, batch: int) -> OtherPastError:
    return OtherPastError(
        f"Batch {batch} of query {stream.query} was written to its end by this run before. It stays as it is."
        f" {_several_writers(stream)} One writer is called once in a batch."
    )


def other_rows(
    stream: Stream, newest: BatchDecision, now: BatchDecision, tasks: int, *, is_ours: bool
) -> OtherPastError:
    kind = " other" if (now.rows, now.size_bytes) == (newest.rows, newest.size_bytes) else ""
    was = (
        f"Batch {newest.batch} of query {stream.query} was decided by run {newest.run} with {_whole(newest)}, and now"
        f" has {rows_text(now.rows, kind)} with {now.size_bytes:,} bytes in {tasks} tasks. It stays as it was decided."
    )
    if is_ours:
        return OtherPastError(
            f"{was} This run has written it, or ended it, before. {_several_writers(stream)} If it catches what a"
            " writer raises, and tries again, let that pass instead: Spark repeats the batch when the query starts"
            " again, and with the option repeatedBatches=keep it may have other rows then."
        )
    return OtherPastError(
        f"{was} Either the checkpoint was rewound or copied, so that the batch covers other offsets now: then go on"
        " with the newest checkpoint. Or the query does not give the same rows twice, as with random numbers, sums of"
        " floating-point numbers, or a join with a table that changes: then set the option repeatedBatches to keep."
        f" {_several_writers(stream)}"
    )


def not_alive(stream: Stream, batch: int, parts: list[TaskPart]) -> NotAliveError:
    return NotAliveError(
        f"Batch {batch} of query {stream.query} was not decided: the transactions of {_parts(parts)} are not open any"
        " more. Another driver may have aborted them, or their time was over. Nothing of the batch is in the topics,"
        f" and it is written again when the query starts again. If it happens again: {_LONGER}"
    )


def too_late(stream: Stream, batch: int, left_ms: int, needed_ms: int) -> NotAliveError:
    return NotAliveError(
        f"Batch {batch} of query {stream.query} was not decided: its first transaction is aborted in {left_ms:,} ms,"
        f" and {needed_ms:,} ms are needed to end all of them safely. Nothing of the batch is in the topics."
        f" {_LONGER[0].upper()}{_LONGER[1:]}"
    )


def batch_too_long(
    stream: Stream, batch: int, task: int, age_ms: int, timeout_ms: int, most_ms: int | None
) -> NotAliveError:
    """`most_ms` is how long brokers let a transaction be, if they tell."""
    if most_ms is None:
        helps = f"{_LONGER[0].upper()}{_LONGER[1:]}"
    elif timeout_ms < most_ms:
        helps = (
            f"Make kafka.transaction.timeout.ms {_LONG_ENOUGH}: it is {timeout_ms}, and the brokers allow {most_ms}."
            " Or make batches shorter with maxOffsetsPerTrigger."
        )
    else:
        helps = (
            "Make batches shorter with maxOffsetsPerTrigger: kafka.transaction.timeout.ms is as long as the brokers"
            f" allow. Or make their transaction.max.timeout.ms, which is {most_ms}, longer, and then this:"
            f" {_LONG_ENOUGH}."
        )
    return NotAliveError(
        f"Batch {batch} of query {stream.query} has been written for {age_ms / 1000:,.0f} s at task {task}, and the"
        f" cluster aborts its transactions after {timeout_ms / 1000:,.0f} s: it could not be committed safely any more."
        f" {helps}"
    )


def _several_writers(stream: Stream) -> str:
    return (
        f"If a function for foreachBatch has several writers, leave the first its sinkName, {stream.sink}, and give"
        " each other one of its own."
    )


def _whole(decision: BatchDecision) -> str:
    parts = len(decision.parts)
    transactions = "1 transaction" if parts == 1 else f"{parts} transactions"
    return f"{rows_text(decision.rows)} and {decision.size_bytes:,} bytes in {transactions}"


def _topic_text(decision: BatchDecision) -> str:
    return f"topic '{decision.topic}'" if decision.topic else "the topics that its rows name"


def _parts(parts: list[TaskPart]) -> str:
    shown = [f"task {part.task} ({rows_text(part.rows)})" for part in parts[:_MOST_SHOWN]]
    more = len(parts) - _MOST_SHOWN
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
