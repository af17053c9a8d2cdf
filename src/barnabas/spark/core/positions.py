"""Positions in partitions, and the form in which Spark keeps them: JSON that the JVM connector reads as well.

Spark stores for every batch where it ends, and takes that as the start of the next. Where the first batch starts is
stored nowhere: after a crash the source is asked for its initial offset again, and with `latest`, a timestamp, or other
options than before it could answer with a later one; the records between would be lost. So the end of the first batch
tells its start as well, in keys that cannot be topics:

    {"clicks": {"0": 150}, "@start clicks 0 100": {}}

Nor is it stored that a topic was deleted and created again, and a batch that is run again would go on in the new one
where the old one was left. So the end of such a batch tells where it begins with the new one:

    {"clicks": {"0": 9}, "@anew clicks 0 0": {}}

The JVM connector passes over topics without partitions, so it resumes from such a checkpoint too. `initial_offset`,
`end_offset` and `batch_start` are the three places where this matters; a source that uses them needs no state.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from barnabas.base.ids import TopicPartition
from barnabas.base.settings.units import INT_MAX, LONG_MAX
from barnabas.spark.core.admission_limits import Limit, may_skip_when_asked_again
from barnabas.spark.core.errors import OptionError, first_batch_without_start

#: The next offset to read of each partition.
Positions = dict[TopicPartition, int]
#: Positions as Spark stores them.
SparkOffset = dict[str, dict[str, int]]

_START: Final = "@start"
_ANEW: Final = "@anew"
_KEY: Final = re.compile(r"@[a-z]+ ([^ ]+) (0|[1-9][0-9]{0,18}) (0|[1-9][0-9]{0,18})")
_PARTITION: Final = re.compile(r"[0-9]{1,20}")
_SHAPE: Final = 'expected is {"topic": {"0": 23, "1": 42}}'


def to_offset(
    positions: Mapping[TopicPartition, int],
    starts: Mapping[TopicPartition, int] | None = None,
    anew: Mapping[TopicPartition, int] | None = None,
) -> SparkOffset:
    """Positions as Spark stores them, in an order that is always the same: Spark compares the text.

    >>> to_offset({TopicPartition("t", 10): 5, TopicPartition("t", 2): 7}, {TopicPartition("t", 2): 3})
    {'t': {'2': 7, '10': 5}, '@start t 2 3': {}}
    """
    offset: SparkOffset = {}
    for topic, partition in sorted(positions):
        offset.setdefault(topic, {})[str(partition)] = positions[TopicPartition(topic, partition)]
    if starts is not None:
        # A batch that started with no partition at all says so too, since there may be some when it is asked again.
        offset |= _keys(_START, starts) or {_START: {}}
    return offset | _keys(_ANEW, anew or {})


def from_offset(offset: object) -> Positions:
    """The positions in what Spark stored, ours or the JVM connector's."""
    positions: Positions = {}
    for topic, partitions in _topics(offset):
        if not isinstance(partitions, Mapping):
            raise OptionError(f"An offset has {partitions!r} where the partitions of {topic!r} should be: {_SHAPE}.")
        for partition, position in partitions.items():
            positions[TopicPartition(topic, _partition(topic, partition))] = _position(topic, partition, position)
    return positions


def starts_of(offset: object) -> Positions | None:
    """Where the first batch started, if this is the end of a first batch."""
    starts = _positions_in_keys(offset, _START)
    return starts if starts or _START in dict(_topics(offset)) else None


def anew_in(start: SparkOffset, end: SparkOffset) -> Positions:
    """Where a batch begins with partitions of topics that were deleted and created again since the batch before."""
    # The end of such a batch is the start of the next, and the end too, if that one is empty.
    return {} if start == end else _positions_in_keys(end, _ANEW)


def initial_offset(positions: Mapping[TopicPartition, int]) -> SparkOffset:
    """What `initialOffset` answers. It carries itself as start."""
    return to_offset(positions, positions)


def end_offset(
    start: SparkOffset, end: Mapping[TopicPartition, int], anew: Mapping[TopicPartition, int] | None = None
) -> SparkOffset:
    """What `latestOffset(start)` answers for a batch that ends there; `anew` as in `anew_in`.

    With nothing new it is `start` as it came: Spark compares text, and would run an empty batch over any difference.
    """
    begin = from_offset(start)
    if begin == end and not anew:
        return start
    starts = starts_of(start)
    starts = starts if starts == begin else None
    offset = to_offset(end, starts, anew)
    # The batch before may have begun anew as well, and ended in the same places: this one would seem to be none. So it
    # takes nothing yet, and the next one has all.
    return offset if offset != start else to_offset({**end, **(anew or {})}, starts, anew)


def batch_start(start: SparkOffset, end: SparkOffset, starting: Limit) -> Positions:
    """Where a batch really starts: where its end says so, if it is a first batch, whatever `start` was found to be;
    and so for topics that were created again.

    Raises `first_batch_without_start` for a first batch of another connector that would be begun at a guess.
    """
    begin = from_offset(start)
    if start == end:
        # An empty batch after the first one; its end still carries the start of the first.
        return begin
    starts = starts_of(end)
    if starts is None and starts_of(start) == begin and may_skip_when_asked_again(starting):
        raise first_batch_without_start()
    return {**(begin if starts is None else starts), **anew_in(start, end)}


def _keys(kind: str, positions: Mapping[TopicPartition, int]) -> SparkOffset:
    return {f"{kind} {each.topic} {each.partition} {positions[each]}": {} for each in sorted(positions)}


def _positions_in_keys(offset: object, kind: str) -> Positions:
    positions: Positions = {}
    for key, _ in _topics(offset):
        if not key.startswith(kind) or key == _START:
            continue
        match = _KEY.fullmatch(key)
        if match is None:
            raise OptionError(f"An offset has the key {key!r}, which should be '{kind} topic partition offset'.")
        positions[TopicPartition(match[1], int(match[2]))] = int(match[3])
    return positions


def _topics(offset: object) -> list[tuple[str, object]]:
    if not isinstance(offset, Mapping):
        raise OptionError(f"{offset!r} is not an offset: {_SHAPE}.")
    for topic in offset:
        if not isinstance(topic, str):
            raise OptionError(f"An offset has {topic!r} where the name of a topic should be: {_SHAPE}.")
    return list(offset.items())


def _partition(topic: str, partition: object) -> int:
    if isinstance(partition, str) and _PARTITION.fullmatch(partition) and int(partition) <= INT_MAX:
        return int(partition)
    raise OptionError(f"An offset has {partition!r} where a partition of {topic!r} should be: {_SHAPE}.")


def _position(topic: str, partition: object, position: object) -> int:
    if isinstance(position, int) and not isinstance(position, bool) and 0 <= position <= LONG_MAX:
        return position
    raise OptionError(f"An offset has {position!r} as the position of {topic}-{partition}: {_SHAPE}.")
