"""Errors carry the classes of the JVM connector, the places concerned, and what to do."""

from __future__ import annotations

import pickle

import pytest

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.spark.core import errors
from barnabas.spark.core.errors import DataLossError, OptionError, SparkConnectorError

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))

#: The conditions of the connector's kafka-error-conditions.json, with what the message has to name. Partitions that are
#: lost in a run with availableNow have none of their own here: they are deleted, as in any other run.
CONDITIONS: dict[str, tuple[SparkConnectorError, list[str]]] = {
    "MISMATCHED_TOPIC_PARTITIONS_BETWEEN_END_OFFSET_AND_PREFETCHED": (
        errors.mismatched_topic_partitions_between_end_offset_and_prefetched({T0}, {T0, T1}),
        ["t-0, t-1", "again"],
    ),
    "MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET": (
        errors.mismatched_topic_partitions_between_start_and_end({T0}, {T0, T1}),
        ["t-0, t-1"],
    ),
    "END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_PREFETCHED": (
        errors.end_offset_greater_than_prefetched({T0: 5, T1: 9}, {T0: 7, T1: 9}),
        ["t-0: 7,", "t-0: 5"],
    ),
    "END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_LATEST_WITH_TRIGGER_AVAILABLENOW": (
        errors.end_offset_greater_than_latest_with_available_now({T0: 5, T1: 9}, {T0: 7, T1: 9}),
        ["t-0: 7,", "t-0: 5."],
    ),
    "KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED": (
        errors.start_offset_does_not_match_assigned({T0, T2}, {T0, T1}),
        ["Not given: t-1.", "not there: t-2.", "-2 for earliest"],
    ),
    "KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED": (
        errors.timestamp_offset_does_not_match_assigned({T0}, {T0, T1}, is_start=False),
        ["endingOffsetsByTimestamp", "Not given: t-1.", "endingTimestamp"],
    ),
    "KAFKA_NULL_TOPIC_IN_DATA": (errors.null_topic_in_data(), ["option topic"]),
    "KAFKA_DATA_LOSS.ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO": (
        errors.added_partition_does_not_start_from_zero(T0, 5),
        ["t-0", "0 to 4"],
    ),
    "KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE": (
        errors.could_not_read_offset_range(T0, 5, 10, group_id="g", reason="the log starts at 7."),
        ["5 to 9 of t-0", "group g", ": the log starts at 7. Keep"],
    ),
    "KAFKA_DATA_LOSS.INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS": (errors.initial_offsets_not_found({T0}), ["t-0"]),
    "KAFKA_DATA_LOSS.PARTITIONS_DELETED": (errors.partitions_deleted({T1, T0}, {T0: 5}), ["t-0, t-1.", "t-0: 5."]),
    "KAFKA_DATA_LOSS.PARTITIONS_DELETED_AND_GROUP_ID_CONFIG_PRESENT": (
        errors.partitions_deleted({T0}, group_id="g"),
        ["t-0", "kafka.group.id to 'g'"],
    ),
    "KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED": (errors.partition_offset_changed(T0, 9, 5), ["t-0", "9", "ends at 5"]),
    "RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET": (
        errors.resolved_start_offset_greater_than_end_offset(T0, 9, 5),
        ["t-0", "offset 9 to 5"],
    ),
    "UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET": (
        errors.unresolved_start_offset_greater_than_end_offset(T0, 9, 5, kind="timestamp"),
        ["t-0", "timestamp 9 to timestamp 5"],
    ),
    "KAFKA_MALFORMED_RECORD_TIMESTAMP": (
        errors.malformed_record_timestamp(T0, 5, 2**62),
        ["offset 5 of t-0", str(2**62), "milliseconds"],
    ),
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_every_condition_has_its_class_and_its_places(condition: str) -> None:
    error, words = CONDITIONS[condition]
    assert error.error_class == condition
    assert str(error).startswith(f"[{condition}] ")
    for word in words:
        assert word in str(error)
    assert isinstance(error, BarnabasError)
    assert isinstance(error, DataLossError) == condition.startswith("KAFKA_DATA_LOSS.")


@pytest.mark.parametrize("error", [*(error for error, _ in CONDITIONS.values()), errors.first_batch_without_start()])
def test_errors_survive_pickling(error: SparkConnectorError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.error_class) == (type(error), str(error), error.error_class)


def test_a_loss_says_how_to_go_on_and_as_a_warning_does_not() -> None:
    error = errors.partitions_deleted({T0})
    assert "failOnDataLoss to false" in str(error)
    assert error.explanation == "These partitions were deleted: t-0."


def test_what_the_connector_has_no_class_for_has_none() -> None:
    error = errors.no_offset_for_timestamp(T0, 5)
    assert isinstance(error, OptionError)
    assert error.error_class is None
    assert str(error).startswith("t-0 has no record with a timestamp of 5 or later")


def test_long_lists_of_partitions_are_cut() -> None:
    text = str(errors.partitions_deleted(TopicPartition("t", number) for number in range(100)))
    assert "t-0, t-1, t-2" in text
    assert "t-19 and 80 more" in text
