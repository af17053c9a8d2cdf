"""When a log is compacted, over which offsets, and which segments become one. Pure: facts in, a plan out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_MAX_RELATIVE_OFFSET: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class CleanableSegment:
    """What a plan needs to know of a segment. Timestamps are -1 where there is none."""

    base_offset: int
    size_bytes: int
    index_size_bytes: int = 0
    time_index_size_bytes: int = 0
    #: Of the first batch its highest timestamp, and the highest of all (of the file, where no record has one).
    first_timestamp_ms: int = -1
    largest_timestamp_ms: int = -1


@dataclass(frozen=True, slots=True)
class CleaningPlan:
    """What compaction would do with a log now."""

    #: Where the part begins that was never compacted, and the base of the first segment that must not be.
    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    dirty_bytes: int
    #: By how much the oldest dirty segment has passed the longest lag; 0 if it has not.
    delay_ms: int
    #: Whether the checkpoint was missing from the log's range, so that it must be written anew even without cleaning.
    checkpoint_is_invalid: bool
    min_dirty_ratio: float

    @property
    def dirty_ratio(self) -> float:
        total_bytes = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total_bytes if total_bytes else 0.0

    @property
    def is_due(self) -> bool:
        """Of several logs that are due, the one with the highest `dirty_ratio` comes first."""
        return bool(self.dirty_bytes) and (self.delay_ms > 0 or self.dirty_ratio > self.min_dirty_ratio)


def plan_cleaning(
    segments: Sequence[CleanableSegment],
    *,
    checkpoint_offset: int | None,
    log_start_offset: int,
    log_end_offset: int,
    last_stable_offset: int,
    now_ms: int,
    min_compaction_lag_ms: int,
    max_compaction_lag_ms: int,
    min_cleanable_dirty_ratio: float,
) -> CleaningPlan:
    """The plan for a log of these segments, the last of which is still written to and never touched."""
    active = segments[-1]
    first_dirty_offset = log_start_offset if checkpoint_offset is None else checkpoint_offset
    # A checkpoint above the end is a sign of lost data, so what it says of the rest cannot be trusted either.
    is_invalid = not log_start_offset <= first_dirty_offset <= log_end_offset
    if is_invalid:
        first_dirty_offset = log_start_offset
    dirty = _covering(segments, first_dirty_offset, active.base_offset)
    limits = [last_stable_offset, active.base_offset]
    if min_compaction_lag_ms > 0:
        limits += [
            segment.base_offset for segment in dirty if segment.largest_timestamp_ms > now_ms - min_compaction_lag_ms
        ][:1]
    end_offset = max(first_dirty_offset, min(limits))
    # Segments are compacted whole: one that is cut by the limit does not count.
    beyond = _covering(segments, end_offset, active.base_offset)
    first_uncleanable_offset = beyond[0].base_offset if beyond else active.base_offset
    cleanable = _covering(segments, min(first_dirty_offset, first_uncleanable_offset), first_uncleanable_offset)
    oldest_ms = min((segment.first_timestamp_ms for segment in dirty if segment.first_timestamp_ms > 0), default=now_ms)
    return CleaningPlan(
        first_dirty_offset=first_dirty_offset,
        first_uncleanable_offset=first_uncleanable_offset,
        clean_bytes=sum(segment.size_bytes for segment in segments if segment.base_offset < first_dirty_offset),
        dirty_bytes=sum(segment.size_bytes for segment in cleanable),
        delay_ms=max(0, now_ms - max(max_compaction_lag_ms, 0) - oldest_ms),
        checkpoint_is_invalid=is_invalid,
        min_dirty_ratio=min_cleanable_dirty_ratio,
    )


def _covering(segments: Sequence[CleanableSegment], first_offset: int, end_offset: int) -> list[CleanableSegment]:
    """The segments that hold offsets from `first_offset` on and begin below `end_offset`."""
    if first_offset >= end_offset:
        return []
    return [
        segment
        for segment, following in zip(segments, [*segments[1:], None], strict=True)
        if segment.base_offset < end_offset and (following is None or following.base_offset > first_offset)
    ]


def group_segments(
    segments: Sequence[CleanableSegment],
    *,
    end_offset: int,
    first_uncleanable_offset: int,
    max_segment_bytes: int,
    max_index_bytes: int,
) -> list[list[CleanableSegment]]:
    """Which segments below `end_offset` (that of the key map) are written into one: neighbours, while all that they
    hold fits.

    A group's offsets must stay within what an index can say. How far a segment reaches is taken from where the next
    one begins.
    """
    chosen = [segment for segment in segments if segment.base_offset < end_offset]
    ends = [segment.base_offset for segment in chosen[1:]] + [first_uncleanable_offset]
    groups: list[list[CleanableSegment]] = []
    log_bytes = index_bytes = time_index_bytes = 0
    for segment, next_base_offset in zip(chosen, ends, strict=False):
        log_bytes += segment.size_bytes
        index_bytes += segment.index_size_bytes
        time_index_bytes += segment.time_index_size_bytes
        if (
            groups
            and log_bytes <= max_segment_bytes
            and index_bytes <= max_index_bytes
            and time_index_bytes <= max_index_bytes
            # An empty segment holds no offsets, so its range does not matter; else one would be left for ever.
            and (not segment.size_bytes or next_base_offset - 1 - groups[-1][0].base_offset <= _MAX_RELATIVE_OFFSET)
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            log_bytes = segment.size_bytes
            index_bytes = segment.index_size_bytes
            time_index_bytes = segment.time_index_size_bytes
    return groups
