"""What can go wrong in a query over topics, in words for the person whose query it is.

Spark shows of a Python source's error only its text. So the text begins with the error class that the JVM connector
has for the same trouble (monitoring looks for it), names the partitions and offsets concerned, and says what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition

#: Longer lists of partitions are cut: a message of a thousand partitions is read by nobody.
_MOST_SHOWN: Final = 20

_IF_LOSS_IS_FINE: Final = "If the query should go on without what is lost, set the option failOnDataLoss to false."


class SparkConnectorError(BarnabasError):
    """A query cannot go on. `error_class` is the name of the JVM connector's error condition, where it has one."""

    def __init__(self, explanation: str, error_class: str | None = None) -> None:
        # These are the arguments that pickling gives back to the constructor; the text is made in `__str__`.
        super().__init__(explanation, error_class)
        self.explanation = explanation
        self.error_class = error_class

    def __str__(self) -> str:
        return f"[{self.error_class}] {self.explanation}" if self.error_class else self.explanation


class OptionError(SparkConnectorError, ValueError):
    """An option, or an offset that Spark handed in, is not what it should be."""


class DataLossError(SparkConnectorError):
    """Records that the query should have read are not there any more. Raised unless failOnDataLoss is false.

    Where it is false, `explanation` is the warning: it goes without the advice.
    """

    def __str__(self) -> str:
        return f"{super().__str__()} {_IF_LOSS_IS_FINE}"


def _loss(subclass: str, explanation: str) -> DataLossError:
    return DataLossError(explanation, f"KAFKA_DATA_LOSS.{subclass}")


def partitions_text(partitions: Iterable[TopicPartition]) -> str:
    """The partitions in order, cut where there are very many.

    >>> partitions_text([TopicPartition("t", 10), TopicPartition("t", 2)])
    't-2, t-10'
    """
    return _cut([str(partition) for partition in sorted(partitions)])


def positions_text(positions: Mapping[TopicPartition, int]) -> str:
    """`t-0: 5, t-1: 7`."""
    return _cut([f"{partition}: {positions[partition]}" for partition in sorted(positions)])


def _cut(items: list[str]) -> str:
    if not items:
        return "none"
    more = len(items) - _MOST_SHOWN
    return ", ".join(items[:_MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")


# Records that are gone.


def partitions_deleted(
    partitions: Iterable[TopicPartition],
    positions: Mapping[TopicPartition, int] | None = None,
    *,
    group_id: str | None = None,
) -> DataLossError:
    """Partitions that the query was reading do not exist any more. `positions` says how far it had read them."""
    partitions = list(partitions)
    known = {partition: positions[partition] for partition in partitions if positions and partition in positions}
    text = f"These partitions were deleted: {partitions_text(partitions)}."
    if known:
        text += f" What they held from these offsets on is lost: {positions_text(known)}."
    if group_id is None:
        return _loss("PARTITIONS_DELETED", text)
    text += f" That the query sets kafka.group.id to {group_id!r} is not the cause: it reads without a group."
    return _loss("PARTITIONS_DELETED_AND_GROUP_ID_CONFIG_PRESENT", text)


def initial_offsets_not_found(partitions: Iterable[TopicPartition]) -> DataLossError:
    """New partitions vanished before their first offset could be asked for."""
    return _loss(
        "INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS",
        f"The first offsets of these new partitions cannot be found: {partitions_text(partitions)}. They may have been"
        " deleted since the query saw them.",
    )


def added_partition_does_not_start_from_zero(partition: TopicPartition, earliest: int) -> DataLossError:
    """A new partition had lost records before the query saw it."""
    return _loss(
        "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO",
        f"The new partition {partition} begins at offset {earliest}. Its offsets 0 to {earliest - 1} were deleted"
        " before the query could read them.",
    )


def partition_offset_changed(partition: TopicPartition, previous: int, now: int) -> DataLossError:
    """The end of a partition lies before what was read already."""
    return _loss(
        "PARTITION_OFFSET_CHANGED",
        f"{partition} was to be read from offset {previous}, but ends at {now}. Either the topic was deleted and"
        " created again, or the query was started at an offset that does not exist yet: look at startingOffsets,"
        " or begin with a new checkpoint.",
    )


def topic_created_again(topic: str) -> DataLossError:
    """A topic is another one than the query was reading."""
    return _loss(
        "PARTITIONS_DELETED",
        f"The topic {topic!r} was deleted and created again while the query was running. What the query had not read of"
        " the old one is lost; the new one is read from its beginning if the query goes on.",
    )


def could_not_read_offset_range(
    partition: TopicPartition, start: int, end: int, *, group_id: str | None = None, reason: str = ""
) -> DataLossError:
    """A range that the driver planned cannot be read on the executor: it expired, or the topic is another one now."""
    group = f" (group {group_id})" if group_id else ""
    because = f": {reason.rstrip('.')}" if reason else ""
    return _loss(
        "COULD_NOT_READ_OFFSET_RANGE",
        f"The offsets {start} to {end - 1} of {partition} cannot be read{group}{because}. Keep records for longer"
        " (retention.ms, retention.bytes), or read more often.",
    )


# Trigger.AvailableNow: the target is taken once, and what it is checked against later.

_TRY_AGAIN: Final = "It may pass: start the query again, and look at the brokers if it comes back."


def mismatched_topic_partitions_between_end_offset_and_prefetched(
    prefetched: Iterable[TopicPartition], end: Iterable[TopicPartition]
) -> SparkConnectorError:
    return SparkConnectorError(
        "A run with availableNow reads what was there when it began, but this batch has other partitions. At the"
        f" beginning: {partitions_text(prefetched)}. In the batch: {partitions_text(end)}. {_TRY_AGAIN}",
        "MISMATCHED_TOPIC_PARTITIONS_BETWEEN_END_OFFSET_AND_PREFETCHED",
    )


def end_offset_greater_than_prefetched(
    prefetched: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> SparkConnectorError:
    beyond = {partition: offset for partition, offset in end.items() if offset > prefetched.get(partition, offset)}
    return SparkConnectorError(
        "A run with availableNow reads what was there when it began, but this batch would go beyond it:"
        f" {positions_text(beyond)}, while these were the ends: {positions_text(prefetched)}. {_TRY_AGAIN}",
        "END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_PREFETCHED",
    )


def end_offset_greater_than_latest_with_available_now(
    latest: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> SparkConnectorError:
    beyond = {partition: offset for partition, offset in end.items() if offset > latest.get(partition, offset)}
    return SparkConnectorError(
        f"A run with availableNow is to read up to {positions_text(beyond)}, but the partitions end before:"
        f" {positions_text({partition: latest[partition] for partition in beyond})}. {_TRY_AGAIN}",
        "END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_LATEST_WITH_TRIGGER_AVAILABLENOW",
    )


# What the options ask for, and what there is.


def start_offset_does_not_match_assigned(
    specified: Iterable[TopicPartition], assigned: Iterable[TopicPartition]
) -> SparkConnectorError:
    return SparkConnectorError(
        f"The offsets in the options are not those of the partitions that the query reads. {_two(specified, assigned)}"
        " Give every partition an offset: -1 for latest, -2 for earliest.",
        "KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED",
    )


def timestamp_offset_does_not_match_assigned(
    specified: Iterable[TopicPartition], assigned: Iterable[TopicPartition], *, is_start: bool
) -> SparkConnectorError:
    option = "startingOffsetsByTimestamp" if is_start else "endingOffsetsByTimestamp"
    single = "startingTimestamp" if is_start else "endingTimestamp"
    return SparkConnectorError(
        f"The timestamps of {option} are not those of the partitions that the query reads."
        f" {_two(specified, assigned)} Give every partition a timestamp, or one for all with {single}.",
        "KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED",
    )


def _two(specified: Iterable[TopicPartition], assigned: Iterable[TopicPartition]) -> str:
    given, there = set(specified), set(assigned)
    parts = [f"Read are: {partitions_text(there)}."]
    if there - given:
        parts.append(f"Not given: {partitions_text(there - given)}.")
    if given - there:
        parts.append(f"Given, but not there: {partitions_text(given - there)}.")
    return " ".join(parts)


def no_offset_for_timestamp(partition: TopicPartition, timestamp_ms: int) -> OptionError:
    """Every record is older than the timestamp to begin at. The JVM connector has no error class for it."""
    return OptionError(
        f"{partition} has no record with a timestamp of {timestamp_ms} or later to begin at. Choose an earlier"
        " timestamp, or set startingOffsetsByTimestampStrategy to latest to begin at the end of such partitions."
    )


def mismatched_topic_partitions_between_start_and_end(
    start: Iterable[TopicPartition], end: Iterable[TopicPartition]
) -> OptionError:
    return OptionError(
        f"The options give a start and an end for different partitions. Start: {partitions_text(start)}."
        f" End: {partitions_text(end)}. Name the same partitions in both.",
        "MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET",
    )


def unresolved_start_offset_greater_than_end_offset(
    partition: TopicPartition, start: int, end: int, *, kind: str = "offset"
) -> OptionError:
    """`kind` is offset or timestamp: the options contradict each other before any broker was asked."""
    return OptionError(
        f"The options ask for {partition} from {kind} {start} to {kind} {end}, which lies before it. Correct one of"
        " the two.",
        "UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET",
    )


def resolved_start_offset_greater_than_end_offset(
    partition: TopicPartition, start: int, end: int
) -> SparkConnectorError:
    return SparkConnectorError(
        f"{partition} would be read from offset {start} to {end}, which lies before it. Look at the start and the end"
        " in the options: one may be a timestamp and the other an offset, or the start lies beyond the end of the"
        " partition. Otherwise the topic may have been deleted and created again.",
        "RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET",
    )


def first_batch_without_start() -> SparkConnectorError:
    """A batch that another connector planned and did not finish begins at a place that cannot be found again."""
    return SparkConnectorError(
        "The checkpoint's first batch was planned by another connector and never finished, and it does not say where it"
        " began; with this start (latest, or a timestamp) asking again could skip records. Either finish that batch"
        " with the connector that planned it, or give the offsets in the checkpoint's file sources/0/0 as"
        " startingOffsets.",
    )


# Single records.


def null_topic_in_data() -> SparkConnectorError:
    return SparkConnectorError(
        "A row to write has null in its column topic. Fill the column, or give one topic for all rows with the option"
        " topic.",
        "KAFKA_NULL_TOPIC_IN_DATA",
    )


def malformed_record_timestamp(partition: TopicPartition, offset: int, timestamp_ms: int) -> SparkConnectorError:
    return SparkConnectorError(
        f"The record at offset {offset} of {partition} has the timestamp {timestamp_ms}, which is too large for a Spark"
        " timestamp. Timestamps of records count milliseconds since 1970; the producer probably gave microseconds or"
        " nanoseconds.",
        "KAFKA_MALFORMED_RECORD_TIMESTAMP",
    )
