"""Replaying a shard from its partition.

Records are taken in as they lie in the log, by the function that replays what the shard writes itself. Whether batches
are as they were written was checked by whoever read them. A whole record that is not understood is passed over and
counted (`skipped`): it may come from a newer broker, from a kind of group that is not built, or from somebody who
writes to this topic by hand, and must not keep all groups of the partition from their coordinator.
"""

from __future__ import annotations

from typing import Protocol

from barnabas.base.errors import RemoteProtocolError
from barnabas.coordinator.skipped import Oddity, SkippedRecordError, SkippedRecords
from barnabas.coordinator.timeline import SnapshotRegistry
from barnabas.records.batch import NO_PRODUCER_ID, BatchView
from barnabas.records.control import read_marker
from barnabas.records.legacy import LegacyMessage
from barnabas.records.reading import iter_entries
from barnabas.wire.compiler import Buffer
from barnabas.wire.schema import Struct


class ReplayTarget(Protocol):
    """What replays records."""

    @property
    def snapshots(self) -> SnapshotRegistry: ...

    def deserialize(self, key: bytes, value: bytes | None) -> tuple[Struct, Struct | None]:
        """A record that can be replayed, or SkippedRecordError."""
        ...

    def replay(self, key: Struct, value: Struct | None, offset: int, producer_id: int = NO_PRODUCER_ID) -> None:
        """Take in one record. It does not fail, and does nothing to soft state."""
        ...

    def replay_end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Take in the marker with which a transaction ends."""
        ...


def load_batches(shard: ReplayTarget, data: Buffer, skipped: SkippedRecords) -> int | None:
    """Take in whole batches, which follow those of the call before; where they end, or None if there were none."""
    next_offset = None
    for entry in iter_entries(data):
        next_offset = entry.next_offset
        try:
            _load_entry(shard, entry, skipped)
        except RemoteProtocolError as reason:
            skipped.add(Oddity.BATCH, entry.last_offset, reason)
    return next_offset


def _load_entry(shard: ReplayTarget, entry: BatchView | LegacyMessage, skipped: SkippedRecords) -> None:
    producer_id = NO_PRODUCER_ID
    if isinstance(entry, BatchView):
        if entry.is_control:
            marker = read_marker(entry)
            if marker is not None:
                shard.snapshots.begin(entry.last_offset)
                shard.replay_end_transaction(marker.producer_id, committed=marker.committed)
            return
        if entry.is_transactional:
            producer_id = entry.producer_id
    for record in entry.records():
        if record.key is None:
            skipped.add(Oddity.NO_KEY, record.offset)
            continue
        try:
            key, value = shard.deserialize(record.key, record.value)
        except SkippedRecordError as skip:
            skipped.add(skip.why, record.offset, skip.example)
            continue
        shard.snapshots.begin(record.offset)
        shard.replay(key, value, record.offset, producer_id)
