"""Where a read begins and ends: three options for each, of which the first that is given counts."""

from __future__ import annotations

from typing import Final

from barnabas.base.ids import TopicPartition
from barnabas.spark.core import errors
from barnabas.spark.core.admission_limits import (
    EARLIEST,
    LATEST,
    Earliest,
    LatestOffsets,
    Limit,
    Offsets,
    OnNoMatch,
    Timestamp,
    Timestamps,
)
from barnabas.spark.core.errors import OptionError
from barnabas.spark.core.given import SparkOptions
from barnabas.spark.core.values import numbers_by_partition, trimmed, whole

_OFFSETS: Final = '{"topicA": {"0": 23, "1": -1}, "topicB": {"0": -2}}'
_TIMESTAMPS: Final = '{"topicA": {"0": 1700000000000, "1": 1700000000000}}'

_ERROR: Final[OnNoMatch] = "error"


def limits_of_stream(given: SparkOptions) -> tuple[Limit, Limit]:
    """A stream has a start and no end."""
    for name in "endingOffsets", "endingOffsetsByTimestamp":
        if name in given:
            raise OptionError(f"Option {name} is for batches: a stream has no end. Remove it, or use spark.read.")
    return _start(given, LatestOffsets()), LatestOffsets()


def limits_of_batch(given: SparkOptions) -> tuple[Limit, Limit]:
    # Where no record is as late as the end, all are before it.
    start, end = _start(given, Earliest()), _limit(given, "ending", LatestOffsets(), "latest")
    _refuse_latest_start(start)
    _refuse_earliest_end(end)
    _refuse_end_before_start(start, end)
    return start, end


def _start(given: SparkOptions, default: Limit) -> Limit:
    return _limit(given, "starting", default, given.read("startingOffsetsByTimestampStrategy", _strategy, _ERROR))


def _limit(given: SparkOptions, side: str, default: Limit, on_no_match: OnNoMatch) -> Limit:
    timestamp_ms = given.read(f"{side}Timestamp", lambda name, text: whole(0)(name, trimmed(text)), None)
    if timestamp_ms is not None:
        return Timestamp(timestamp_ms, on_no_match)
    timestamps_ms = given.read(f"{side}OffsetsByTimestamp", _timestamps, None)
    if timestamps_ms is not None:
        return Timestamps(timestamps_ms, on_no_match)
    return given.read(f"{side}Offsets", _earliest_latest_or_offsets, default)


def _strategy(name: str, text: str) -> OnNoMatch:
    match text.lower():
        case "error":
            return "error"
        case "latest":
            return "latest"
    raise OptionError(f"Option {name} is {text!r}; allowed are error and latest.")


def _timestamps(name: str, text: str) -> dict[TopicPartition, int]:
    return numbers_by_partition(name, trimmed(text), least=0, example=_TIMESTAMPS)


def _earliest_latest_or_offsets(name: str, text: str) -> Limit:
    text = trimmed(text)
    if text.lower() == "earliest":
        return Earliest()
    if text.lower() == "latest":
        return LatestOffsets()
    if not text.startswith("{"):
        raise OptionError(f"Option {name} is {text!r}; allowed are earliest, latest, and JSON such as {_OFFSETS}.")
    return Offsets(numbers_by_partition(name, text, least=EARLIEST, example=_OFFSETS))


def _refuse_latest_start(start: Limit) -> None:
    if isinstance(start, LatestOffsets):
        raise OptionError(
            "Option startingOffsets is 'latest', where a batch would find nothing; use earliest or offsets."
        )
    if isinstance(start, Offsets):
        for partition, offset in start.offsets.items():
            if offset == LATEST:
                raise OptionError(
                    f"Option startingOffsets has -1 (latest) for {partition}, where a batch would find nothing; use -2"
                    " (earliest) or an offset."
                )


def _refuse_earliest_end(end: Limit) -> None:
    if isinstance(end, Earliest):
        raise OptionError("Option endingOffsets is 'earliest', before which a batch would find nothing; use latest.")
    if isinstance(end, Offsets):
        for partition, offset in end.offsets.items():
            if offset == EARLIEST:
                raise OptionError(
                    f"Option endingOffsets has -2 (earliest) for {partition}, before which a batch would find nothing;"
                    " use -1 (latest) or an offset."
                )


def _refuse_end_before_start(start: Limit, end: Limit) -> None:
    """As far as it can be seen without asking the cluster: both in offsets, or both in timestamps."""
    if isinstance(start, Offsets) and isinstance(end, Offsets):
        kind, starts, ends = "offset", start.offsets, end.offsets
    elif isinstance(start, Timestamps) and isinstance(end, Timestamps):
        kind, starts, ends = "timestamp", start.timestamps_ms, end.timestamps_ms
    else:
        return
    if starts.keys() != ends.keys():
        raise errors.mismatched_topic_partitions_between_start_and_end(starts, ends)
    for partition, first in starts.items():
        if first > ends[partition] >= 0:
            raise errors.unresolved_start_offset_greater_than_end_offset(partition, first, ends[partition], kind=kind)
