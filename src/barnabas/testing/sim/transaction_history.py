"""The log of a partition read as a plain man would: every record, and what became of its transaction.

Nothing of a node is asked: a record of a transaction is open until the next marker of its producer, and what that says
is its outcome. So what nodes make of last stable offsets, indexes and pending offsets can be held against it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from barnabas.records.batch import BatchView
from barnabas.records.control import read_marker
from barnabas.records.reading import iter_entries

__all__ = ["LoggedMarker", "LoggedRecord", "Outcome", "PartitionHistory", "read_history"]


class Outcome(Enum):
    """What became of a record."""

    PLAIN = "outside of a transaction"
    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"

    @property
    def is_visible(self) -> bool:
        """Whether those see it who read committed data."""
        return self in (Outcome.PLAIN, Outcome.COMMITTED)


@dataclass(slots=True)
class LoggedRecord:
    """A record in a log; `ended_at` is the offset of the marker that decided about it."""

    offset: int
    key: bytes | None
    value: bytes | None
    producer_id: int
    producer_epoch: int
    outcome: Outcome
    ended_at: int | None = None


class LoggedMarker(NamedTuple):
    """A marker in a log. One that came again, or to a partition without records, has ended nothing."""

    offset: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    has_ended: bool


@dataclass(slots=True)
class PartitionHistory:
    """All that a partition has, in the order of offsets; without control records in `records`."""

    records: list[LoggedRecord] = field(default_factory=list)
    markers: list[LoggedMarker] = field(default_factory=list)

    def seen_by(self, *, read_committed: bool) -> list[LoggedRecord]:
        """What a reader is given who reads it all."""
        return [each for each in self.records if not read_committed or each.outcome.is_visible]


def read_history(data: bytes) -> PartitionHistory:
    """What the batches of a log tell."""
    history = PartitionHistory()
    open_by_producer: dict[int, list[LoggedRecord]] = {}
    for batch in iter_entries(data):
        assert isinstance(batch, BatchView)
        if batch.is_control:
            marker = read_marker(batch)
            if marker is None:
                continue
            ended = open_by_producer.pop(batch.producer_id, [])
            for record in ended:
                record.outcome = Outcome.COMMITTED if marker.committed else Outcome.ABORTED
                record.ended_at = batch.base_offset
            history.markers.append(
                LoggedMarker(
                    batch.base_offset,
                    marker.producer_id,
                    marker.producer_epoch,
                    marker.coordinator_epoch,
                    marker.committed,
                    bool(ended),
                )
            )
            continue
        outcome = Outcome.OPEN if batch.is_transactional else Outcome.PLAIN
        for each in batch.records():
            logged = LoggedRecord(each.offset, each.key, each.value, batch.producer_id, batch.producer_epoch, outcome)
            history.records.append(logged)
            if batch.is_transactional:
                open_by_producer.setdefault(batch.producer_id, []).append(logged)
    return history
