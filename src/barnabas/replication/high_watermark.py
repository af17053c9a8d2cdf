"""Up to where a partition's records are committed: the arithmetic alone."""

from __future__ import annotations

from collections.abc import Iterable


def advanced_high_watermark(
    current: int, log_end_offset: int, counted_log_end_offsets: Iterable[int], isr_size: int, min_isr: int
) -> int:
    """The high watermark of a leader whose log ends at `log_end_offset`.

    A record is committed once all replicas have it that are in sync, or that may turn out to be: where their logs end
    is in `counted_log_end_offsets`. While too few are in sync nothing more is committed, whatever they have. It never
    falls.
    """
    if isr_size < min_isr:
        return current
    return max(current, min(min(counted_log_end_offsets, default=log_end_offset), log_end_offset))
