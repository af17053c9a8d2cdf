"""Up to where a partition's records are committed: the arithmetic alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping


def advanced_high_watermark(
    current: int,
    log_end_offset: int,
    follower_log_end_offsets: Mapping[int, int],
    isr: Collection[int],
    maximal_isr: Collection[int],
    min_isr: int,
) -> int:
    """The high watermark of a leader whose log ends at `log_end_offset`.

    A record is committed once all replicas have it that are in sync, or that may turn out to be: `maximal_isr` holds
    those of proposals that are not decided yet, too. While too few are in sync nothing more is committed, whatever
    they have. It never falls.
    """
    if len(isr) < min_isr:
        return current
    ends = (end for replica, end in follower_log_end_offsets.items() if replica in maximal_isr)
    return max(current, min(min(ends, default=log_end_offset), log_end_offset))
