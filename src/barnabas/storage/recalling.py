"""Batches that a snapshot of producers did not keep, read from the log: their clients may send them again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from barnabas.records.batch import BatchView
from barnabas.storage.segment import Segment

#: How much of a log is read for them: the last few of each producer are not far from the end.
RECALLED_BYTES: Final = 1024 * 1024


def batches_before(segments: Sequence[Segment], offset: int) -> Iterator[BatchView]:
    """The last batches before an offset, as many as lie in a bounded stretch of the segments that begin before it."""
    parts: list[tuple[Segment, int]] = []
    left_bytes = RECALLED_BYTES
    for segment in reversed(segments):
        end = segment.end_position(offset)
        entry = segment.offset_index.entry_at(max(0, end - left_bytes))
        position = entry.position if entry.position and segment.bears_out(entry) else 0
        parts.append((segment, position))
        left_bytes -= end - position
        if left_bytes <= 0 or position:
            break
    for segment, position in reversed(parts):
        for batch in segment.entries(position):
            if batch.next_offset > offset:
                return
            if isinstance(batch, BatchView):
                yield batch
