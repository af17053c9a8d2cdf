"""How far groups are behind, in records and in seconds.

The coordinator of a group tells it, of the partitions of which this node has a replica: no exporter need be run. What a
group has read up to is what it has committed. Seconds are since the first record that it has not read was written, by
the timestamp of the batch that holds it; nothing that lies on a disk only is waited for on the event loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeVar

from barnabas.base.ids import TopicPartition
from barnabas.base.metrics.exposition import Exposition, labels
from barnabas.broker.metrics.naming import own
from barnabas.broker.metrics.sources import NodeParts
from barnabas.replication.partition import Partition

T = TypeVar("T")

COMMITTED: Final = own("group_committed_offset", "gauge", "What a group has committed for a partition.")
LAG: Final = own("group_lag", "gauge", "Records that a group has not read, by partition.")
LAG_SECONDS: Final = own(
    "group_lag_seconds", "gauge", "Since the first record that a group has not read was written, by partition."
)
TOTAL: Final = own("group_lag_sum", "gauge", "Records that a group has not read, of all its partitions here.")
LONGEST: Final = own(
    "group_lag_seconds_max",
    "gauge",
    "The longest of its seconds; not told unless those of all its partitions are known.",
)
UNKNOWN: Final = own(
    "group_partitions_elsewhere",
    "gauge",
    "Partitions of a group without a replica here: their lag is not told.",
)
FAMILIES: Final = (COMMITTED, LAG, LAG_SECONDS, TOTAL, LONGEST, UNKNOWN)

#: Together a millisecond or two, if all are looked up.
_PER_STEP: Final = 10
#: So many timestamps are looked up for one scrape, and the next goes on there; of the others, records alone are told.
_MOST_LOOKUPS: Final = 2_000


class LagReader:
    """Remembers when records were written, as long as a group stays in front of them."""

    def __init__(self) -> None:
        self._written_ms: dict[tuple[TopicPartition, int], int] = {}
        #: With which group and partition the next scrape begins: everybody's turn comes to be looked up.
        self._first: tuple[str | None, TopicPartition | None] = None, None

    def collect(self, parts: NodeParts, out: Exposition) -> Iterator[None]:
        services = parts.services
        if services is None:
            return
        now_ms = parts.runtime.clock.now_ms()
        found = _Found(now_ms, out)
        shards = {}
        for shard in services.groups.shards:
            yield
            shards.update(dict.fromkeys(shard.groups.ids(), shard))
        first_group, first_partition = self._first
        for groups, group_id in enumerate(_rotated(list(shards), first_group)):
            if groups % _PER_STEP == 0:
                yield
            found.begin(group_id)
            # A copy: while others have a turn, more is committed.
            committed = dict(shards[group_id].offsets.committed(group_id))
            for number, name in enumerate(_rotated(list(committed), first_partition)):
                if number % _PER_STEP == 0:
                    yield
                partition = services.replica_manager.get(name)
                self._look(found, name, committed[name].offset, partition)
            found.end()
        self._written_ms = found.seen
        self._first = found.left_out or self._first

    def _look(self, found: _Found, name: TopicPartition, offset: int, partition: Partition | None) -> None:
        out, label = found.out, labels(group=found.group_id, topic=name.topic, partition=name.partition)
        out.add(COMMITTED, offset, label)
        if partition is None or partition.log is None:
            found.elsewhere += 1
            found.is_known = False
            return
        lag = max(0, partition.log.high_watermark - max(offset, partition.log.log_start_offset))
        found.total += lag
        out.add(LAG, lag, label)
        if not lag:
            out.add(LAG_SECONDS, 0, label)
            return
        written_ms = self._written_ms.get((name, offset))
        if written_ms is None:
            if found.lookups < _MOST_LOOKUPS:
                found.lookups += 1
                written_ms = _written_ms(partition, offset)
            elif found.left_out is None:
                found.left_out = found.group_id, name
        if written_ms is None:
            found.is_known = False
            return
        found.seen[name, offset] = written_ms
        seconds = max(0, found.now_ms - written_ms) / 1000
        found.longest_s = max(found.longest_s, seconds)
        out.add(LAG_SECONDS, seconds, label)


def _rotated(names: list[T], first: T | None) -> list[T]:
    """All of them, `first` first if it is there."""
    at = names.index(first) if first in names else 0
    return names[at:] + names[:at]


class _Found:
    """What one scrape has found."""

    def __init__(self, now_ms: int, out: Exposition) -> None:
        self.now_ms = now_ms
        self.out = out
        self.seen: dict[tuple[TopicPartition, int], int] = {}
        self.lookups = 0
        #: The first for which there was no look-up left.
        self.left_out: tuple[str, TopicPartition] | None = None

    def begin(self, group_id: str) -> None:
        self.group_id = group_id
        self.total = self.elsewhere = 0
        self.longest_s = 0.0
        #: Whether the seconds of all partitions so far are.
        self.is_known = True

    def end(self) -> None:
        label = labels(group=self.group_id)
        self.out.add(TOTAL, self.total, label)
        if self.is_known:
            self.out.add(LONGEST, self.longest_s, label)
        self.out.add(UNKNOWN, self.elsewhere, label)


def _written_ms(partition: Partition, offset: int) -> int | None:
    """When the first record from an offset on was written; None if that cannot be seen without waiting for a disk, or
    if nobody has said."""
    log = partition.log
    written_ms = None if log is None else log.timestamp_now(max(offset, log.log_start_offset))
    return written_ms if written_ms is not None and written_ms > 0 else None
