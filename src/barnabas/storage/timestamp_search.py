"""Searches of a log by time. Segments may go, or be cut, while one is looked into elsewhere (see `searching`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from barnabas.storage.errors import LogError
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.searching import Search
from barnabas.storage.segment import Segment

T = TypeVar("T")


class TimestampAndOffset(NamedTuple):
    timestamp_ms: int
    offset: int
    leader_epoch: int


class SearchedLog(Protocol):
    """What a search must know of a log, and what the log makes of an error of its disk."""

    log_start_offset: int
    epochs: LeaderEpochs

    @property
    def segments(self) -> Sequence[Segment]: ...

    def failed(self, failure: OSError) -> LogError: ...


def search_timestamp(log: SearchedLog, timestamp_ms: int) -> Search[TimestampAndOffset | None]:
    """The first record that is not older than `timestamp_ms`."""
    segments = deque(log.segments)
    while segments:
        segment = segments.popleft()
        found = yield from _search_in(log, segment, segment.find_timestamp(timestamp_ms, log.log_start_offset))
        if found is not None:
            return _with_epoch(log, *found)
        if segment not in log.segments:
            # It went while it was looked into; what it held may be in another.
            segments = deque(log.segments)
    return None


def search_max_timestamp(log: SearchedLog) -> Search[TimestampAndOffset | None]:
    """The first record with the highest timestamp of all."""
    best: tuple[int, int] | None = None
    for segment in _youngest_first(log):
        if best is not None and segment.max_timestamp[0] <= best[0]:
            break
        found = yield from _search_in(log, segment, segment.find_max_timestamp(log.log_start_offset))
        if found is not None and (best is None or found[0] > best[0]):
            best = found
    return None if best is None else _with_epoch(log, *best)


def _search_in(log: SearchedLog, segment: Segment, search: Search[T]) -> Search[T | None]:
    """What is in a segment; nothing if it goes meanwhile, or is cut."""
    cut_count = segment.cut_count
    outcome: Any = None
    while segment in log.segments and segment.cut_count == cut_count:
        try:
            work = search.send(outcome)
        except StopIteration as end:
            found: T = end.value
            return found
        except OSError as failure:
            raise log.failed(failure) from failure
        outcome = yield work
    return None


def _youngest_first(log: SearchedLog) -> list[Segment]:
    try:
        return sorted(log.segments, key=lambda segment: segment.max_timestamp[0], reverse=True)
    except OSError as failure:
        raise log.failed(failure) from failure


def _with_epoch(log: SearchedLog, timestamp_ms: int, offset: int) -> TimestampAndOffset:
    epoch = log.epochs.epoch_for_offset(offset)
    return TimestampAndOffset(timestamp_ms, offset, -1 if epoch is None else epoch)
