"""How much a batch may take of what is there.

`rate_limit` and `MinOffsetsGate` come to exactly what the JVM connector does, floating-point arithmetic included;
limits in bytes are ours, and share in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from barnabas.base.ids import TopicPartition
from barnabas.base.settings.units import LONG_MAX
from barnabas.spark.core.positions import Positions


def rate_limit(
    limit: int,
    begin: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    begin_of_new: Mapping[TopicPartition, int],
) -> Positions:
    """Where a batch of about `limit` offsets ends: every partition has its share in proportion to its backlog.

    A share below one offset is one, so that a quiet partition beside loud ones comes forward too. `begin_of_new` has
    the first offsets of partitions that are not in `begin`. A partition in neither is left at its end: that it cannot
    be found is told elsewhere.
    """
    begins = {**begin_of_new, **begin}
    sizes = _backlog(begins, end)
    total = float(sum(sizes.values()))
    if total < 1:
        return dict(end)
    return {
        partition: min(position, begins[partition] + _share(limit * (sizes[partition] / total)))
        if partition in sizes
        else position
        for partition, position in end.items()
    }


def limit_bytes(
    max_bytes: int,
    begin: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    bytes_per_offset: Mapping[TopicPartition, float],
) -> Positions:
    """Where a batch of about `max_bytes` ends, if offsets take the bytes that were estimated for their partition.

    Every partition has its share in proportion to the bytes that wait in it, and at least one offset: so a batch may
    exceed the limit by an offset for each partition, but always comes forward. All partitions in which something waits
    need an estimate. One that is not in `begin` is left at its end.
    """
    sizes = _backlog(begin, end)
    total_bytes = math.fsum(size * bytes_per_offset[partition] for partition, size in sizes.items())
    if total_bytes <= max_bytes:
        return dict(end)
    share = max_bytes / total_bytes
    return {
        partition: min(position, begin[partition] + _share(sizes[partition] * share))
        # What weighs nothing (all compacted away) need not wait.
        if partition in sizes and bytes_per_offset[partition] > 0
        else position
        for partition, position in end.items()
    }


class MinOffsetsGate:
    """Holds batches back until enough offsets are new, or the longest delay since the last one is over.

    The last one is taken to be very long ago at first, so the first batch is not held back.
    """

    __slots__ = ("_last_run_ms", "max_delay_ms", "min_offsets")

    def __init__(self, min_offsets: int, max_delay_ms: int) -> None:
        self.min_offsets = min_offsets
        self.max_delay_ms = max_delay_ms
        self._last_run_ms = 0

    def may_run(self, now_ms: int, begin: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> bool:
        """Whether a batch may run now; if so, the delay begins anew. New partitions count from offset zero."""
        if now_ms - self._last_run_ms < self.max_delay_ms:
            new = sum(position - begin.get(partition, 0) for partition, position in end.items())
            if float(new) < float(self.min_offsets):
                return False
        self._last_run_ms = now_ms
        return True


def _backlog(begin: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> Positions:
    return {
        partition: position - begin[partition]
        for partition, position in end.items()
        if partition in begin and position > begin[partition]
    }


def _share(offsets: float) -> int:
    """Whole offsets: less than one is one, the rest is cut off. A product beyond all offsets is as good as the last."""
    if offsets >= LONG_MAX:
        return LONG_MAX
    return math.ceil(offsets) if offsets < 1 else math.floor(offsets)
