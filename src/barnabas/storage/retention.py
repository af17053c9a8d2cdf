"""Which segments of a log the topic's settings do not keep any longer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from barnabas.storage.segment import Segment
from barnabas.storage.settings import TopicSettings


def count_expired(
    segments: Sequence[Segment],
    settings: TopicSettings,
    log_start_offset: int,
    high_watermark: int,
    next_offset: int,
    now_ms: int,
) -> int:
    """How many segments, from the first on, are to be deleted; perhaps all, then the last must be rolled before."""
    committed = list(_committed(segments, high_watermark, next_offset))
    count = _count_below(committed[: len(segments) - 1], log_start_offset)
    if "delete" in settings.cleanup_policy:
        sources = [segment for segment, _ in committed]
        size_bytes = sum(segment.size_bytes for segment in segments)
        count = max(
            count,
            _count_too_old(sources, settings.retention_ms, now_ms),
            _count_too_many(sources, size_bytes, settings.retention_bytes),
        )
    return count


def _committed(segments: Sequence[Segment], high_watermark: int, next_offset: int) -> Iterator[tuple[Segment, int]]:
    """Segments that are committed to their end, each with where it ends."""
    ends = [*(segment.base_offset for segment in segments[1:]), next_offset]
    for segment, end_offset in zip(segments, ends, strict=True):
        if end_offset > high_watermark or (segment is segments[-1] and not segment.size_bytes):
            return
        yield segment, end_offset


def _count_below(segments: Sequence[tuple[Segment, int]], log_start_offset: int) -> int:
    """Whatever the policy: what lies wholly before the start cannot be read any more."""
    return sum(end_offset <= log_start_offset for _, end_offset in segments)


def _count_too_old(segments: Sequence[Segment], retention_ms: int, now_ms: int) -> int:
    """A record from the future keeps its segment, and all after it."""
    if retention_ms < 0:
        return 0
    for count, segment in enumerate(segments):
        if now_ms - segment.largest_timestamp_ms <= retention_ms:
            return count
    return len(segments)


def _count_too_many(segments: Sequence[Segment], size_bytes: int, retention_bytes: int) -> int:
    """As long as the rest is not smaller than what may be kept."""
    if retention_bytes < 0:
        return 0
    excess_bytes = size_bytes - retention_bytes
    for count, segment in enumerate(segments):
        excess_bytes -= segment.size_bytes
        if excess_bytes < 0:
            return count
    return len(segments)
