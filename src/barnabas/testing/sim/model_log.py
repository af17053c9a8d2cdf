"""The log of a Raft replica in memory, with the promises of one on disk and no more.

Batches have their real bytes. What a finished sync covered survives a power loss; of what came after it, truncations
included, any prefix. A kill keeps everything. `quorum-state` and finished snapshots are safe once they are written.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from barnabas.base.errors import BarnabasError, RemoteProtocolError
from barnabas.raft.batches import ControlRecord, LogBatch, build_batches, build_control, build_snapshot, read_batch
from barnabas.raft.ports import FoundReplica, SyncJob
from barnabas.raft.types import ElectionState, Snapshot, SnapshotId, WrittenBatch
from barnabas.records.batch import BatchView, iter_batches
from barnabas.records.control import ControlType
from barnabas.testing.sim.faults import SimulatedCrash, error_of
from barnabas.wire.stored.control_records import SnapshotHeaderRecord

__all__ = ["ModelDisk", "ModelEntry", "ModelLog"]

_VOTER_KINDS = (ControlType.KRAFT_VERSION, ControlType.KRAFT_VOTERS)


class ModelEntry(NamedTuple):
    """A batch in a log. Equal ones on several hosts are one object, made once: their bytes are the key."""

    data: bytes
    batch: LogBatch


class BatchCache:
    """Batches by their bytes."""

    def __init__(self) -> None:
        self._entries: dict[bytes, ModelEntry] = {}

    def entry(self, data: bytes) -> ModelEntry:
        found = self._entries.get(data)
        if found is None:
            found = self._entries[data] = ModelEntry(data, read_batch(BatchView(data)))
        return found


def _base(entry: ModelEntry) -> int:
    return entry.batch.base_offset


@dataclass(slots=True)
class _Content:
    """Batches from `start_offset` on; `start_epoch` is that of the record before it."""

    start_offset: int = 0
    start_epoch: int = 0
    entries: list[ModelEntry] = field(default_factory=list)

    @property
    def end_offset(self) -> int:
        return self.entries[-1].batch.last_offset + 1 if self.entries else self.start_offset

    def apply(self, change: ModelEntry | int | SnapshotId) -> None:
        """A batch is appended, an offset is where the log is cut, and a snapshot takes the place of all of it."""
        if isinstance(change, ModelEntry):
            self.entries.append(change)
        elif isinstance(change, SnapshotId):
            self.entries.clear()
            self.start_offset, self.start_epoch = change
        else:
            while self.entries and self.entries[-1].batch.last_offset >= change:
                self.entries.pop()

    def drop_before(self, offset: int) -> None:
        """Whole batches that end before an offset are deleted."""
        count = 0
        for entry in self.entries:
            if entry.batch.last_offset >= offset:
                break
            count += 1
            self.start_offset, self.start_epoch = entry.batch.last_offset + 1, entry.batch.epoch
        del self.entries[:count]

    def copy(self) -> _Content:
        return _Content(self.start_offset, self.start_epoch, self.entries.copy())


class ModelDisk:
    """What outlives the processes of a host. Operations that change something are counted, and the process may be made
    to die in one of them."""

    def __init__(self, random: Random, cache: BatchCache) -> None:
        self.cache = cache
        self.is_full = False
        self.election: ElectionState | None = None
        self.snapshots: dict[SnapshotId, bytes] = {}
        self.content = _Content()
        self.safe = _Content()
        self.changes: list[ModelEntry | int | SnapshotId] = []
        self.change_count = 0
        self._random = random
        self._dies_in = 0
        self._on_death: Callable[[], None] = lambda: None

    def die_at(self, operations: int, on_death: Callable[[], None]) -> None:
        self._dies_in = operations
        self._on_death = on_death

    def lose_power(self) -> None:
        """Of the changes that no sync covered, the first few have reached the platter."""
        survive = self._random.choice((0, len(self.changes), self._random.randint(0, len(self.changes))))
        for change in self.changes[:survive]:
            self.safe.apply(change)
        self.content = self.safe.copy()
        self.changes.clear()

    def image(self) -> ModelDisk:
        """A copy of all that is there."""
        copy = ModelDisk(self._random, self.cache)
        copy.election = self.election
        copy.snapshots = dict(self.snapshots)
        copy.content, copy.safe = self.content.copy(), self.content.copy()
        return copy

    def is_safe(self, base_offset: int, epoch: int) -> bool:
        """Whether a batch would survive a power loss, in the log or in a snapshot."""
        safe = self.safe
        if base_offset < safe.start_offset:
            return True
        index = bisect_right(safe.entries, base_offset, key=_base) - 1
        if index < 0:
            return False
        batch = safe.entries[index].batch
        return batch.base_offset == base_offset and batch.epoch == epoch

    def begin(self, effect: Callable[[], None]) -> None:
        """Do an operation; what dies in it has done it or not."""
        if self._dies_in:
            self._dies_in -= 1
            if not self._dies_in:
                if self._random.random() < 0.5:
                    effect()
                self._on_death()
                raise SimulatedCrash("the process died in an operation of its disk")
        if self.is_full:
            raise error_of(errno.ENOSPC, "the log")
        effect()

    def change(self, change: ModelEntry | int | SnapshotId) -> None:
        self.content.apply(change)
        self.changes.append(change)
        self.change_count += 1

    def sync(self, change_count: int) -> None:
        """Make the first so many changes of all time safe."""
        covered = len(self.changes) - (self.change_count - change_count)
        if covered > 0:
            for change in self.changes[:covered]:
                self.safe.apply(change)
            del self.changes[:covered]


class ModelSyncJob:
    """Makes the changes up to the moment of its making safe."""

    __slots__ = ("_change_count", "_disk", "end_offset")

    def __init__(self, disk: ModelDisk) -> None:
        self._disk = disk
        self._change_count = disk.change_count
        self.end_offset = disk.content.end_offset

    def run(self) -> None:
        disk = self._disk
        disk.begin(lambda: disk.sync(self._change_count))


class ModelSnapshotReceiver:
    """A snapshot on its way; only a finished one is seen by anybody."""

    def __init__(self, disk: ModelDisk, snapshot: SnapshotId) -> None:
        self._disk = disk
        self._snapshot = snapshot
        self._data = bytearray()

    @property
    def size_bytes(self) -> int:
        return len(self._data)

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        if position != len(self._data):
            raise BarnabasError(f"a piece of a snapshot at {position}, where {len(self._data)} was expected")
        self._data += data

    def finish(self) -> None:
        data = bytes(self._data)
        read_snapshot_bytes(self._snapshot, data)
        self._disk.begin(lambda: self._disk.snapshots.__setitem__(self._snapshot, data))

    def abandon(self) -> None:
        self._data.clear()


def read_snapshot_bytes(snapshot: SnapshotId, data: bytes) -> tuple[Snapshot, Sequence[ControlRecord]]:
    """A snapshot, checked to be whole."""
    last_contained_ms, is_complete = 0, False
    controls: list[ControlRecord] = []
    values: list[bytes] = []
    walk = iter_batches(data)
    try:
        for view in walk:
            batch = read_batch(view)
            values += batch.values
            for record in batch.controls:
                if isinstance(record.message, SnapshotHeaderRecord):
                    last_contained_ms = record.message.last_contained_log_timestamp
                elif record.kind is ControlType.SNAPSHOT_FOOTER:
                    is_complete = True
                else:
                    controls.append(record)
    except RemoteProtocolError as problem:
        raise BarnabasError(f"the snapshot {snapshot.file_name} cannot be used: {problem}") from None
    if walk.truncated or not is_complete:
        raise BarnabasError(f"the snapshot {snapshot.file_name} cannot be used: it was cut short")
    return Snapshot(snapshot, last_contained_ms, tuple(values)), tuple(controls)


class ModelLog:
    """A `LogStore` on a `ModelDisk`. `kept_snapshots` is how many snapshots `clean` leaves."""

    def __init__(self, disk: ModelDisk, now_ms: Callable[[], int], *, kept_snapshots: int = 1) -> None:
        self._disk = disk
        self._now_ms = now_ms
        self._kept_snapshots = kept_snapshots
        self._synced_offset = 0
        self._jobs: list[ModelSyncJob] = []

    def open(self) -> FoundReplica:
        disk, content = self._disk, self._disk.content
        newest = max(disk.snapshots, default=None)
        if newest is not None and not self._holds(newest):
            disk.change(newest)
        disk.sync(disk.change_count)
        self._synced_offset = content.end_offset
        controls: list[tuple[int, ControlRecord]] = []
        if newest is not None:
            found = read_snapshot_bytes(newest, disk.snapshots[newest])[1]
            controls += [(newest.end_offset - 1, record) for record in found]
        epochs: list[tuple[int, int]] = []
        for entry in content.entries:
            batch = entry.batch
            if not epochs or epochs[-1][0] != batch.epoch:
                epochs.append((batch.epoch, batch.base_offset))
            for offset, record in enumerate(batch.controls, batch.base_offset):
                if record.kind in _VOTER_KINDS:
                    controls.append((offset, record))
        return FoundReplica(
            disk.election, content.start_offset, content.end_offset, epochs, sorted(disk.snapshots), controls
        )

    def _holds(self, snapshot: SnapshotId) -> bool:
        """Whether the log has the last record of a snapshot, or begins right behind it."""
        content = self._disk.content
        if content.start_offset == snapshot.end_offset:
            return content.start_epoch == snapshot.epoch
        if not content.start_offset < snapshot.end_offset <= content.end_offset:
            return False
        return self._entry_at(snapshot.end_offset - 1).batch.epoch == snapshot.epoch

    def _entry_at(self, offset: int) -> ModelEntry:
        entries = self._disk.content.entries
        return entries[self._index(offset)]

    def _index(self, offset: int) -> int:
        """The batch that holds an offset, or the first behind it."""
        entries = self._disk.content.entries
        if entries and offset > entries[-1].batch.last_offset:
            return len(entries)
        return max(bisect_right(entries, offset, key=_base) - 1, 0)

    @property
    def end_offset(self) -> int:
        return self._disk.content.end_offset

    @property
    def synced_offset(self) -> int:
        return self._synced_offset

    # The log

    def append(self, values: Sequence[bytes], epoch: int) -> WrittenBatch:
        now_ms = self._now_ms()
        base_offset = self.end_offset
        batches = build_batches(values, base_offset=base_offset, epoch=epoch, timestamp_ms=now_ms)
        return self._write(base_offset, now_ms, [bytes(batch) for batch in batches])

    def append_control(self, records: Sequence[ControlRecord], epoch: int) -> WrittenBatch:
        now_ms = self._now_ms()
        base_offset = self.end_offset
        batch = build_control(records, base_offset=base_offset, epoch=epoch, timestamp_ms=now_ms)
        return self._write(base_offset, now_ms, [bytes(batch)])

    def append_fetched(
        self, batches: bytes | bytearray | memoryview, checked: Sequence[BatchView] | None = None
    ) -> None:
        walk = iter_batches(batches)
        whole = [bytes(view.data) for view in walk]
        if walk.truncated:
            raise RemoteProtocolError("a batch that is not whole was to be appended")
        self._write(self.end_offset, 0, whole)

    def _write(self, base_offset: int, now_ms: int, batches: Sequence[bytes]) -> WrittenBatch:
        disk = self._disk
        size_bytes = 0
        for data in batches:
            entry = disk.cache.entry(data)
            if entry.batch.base_offset != disk.content.end_offset:
                raise BarnabasError(
                    f"a batch at {entry.batch.base_offset} does not follow upon {disk.content.end_offset}"
                )
            disk.begin(lambda entry=entry: disk.change(entry))  # type: ignore[misc]
            size_bytes += len(data)
        return WrittenBatch(base_offset, disk.content.end_offset - 1, now_ms, size_bytes)

    def truncate(self, offset: int) -> None:
        disk = self._disk
        if not disk.content.start_offset <= offset <= disk.content.end_offset:
            raise BarnabasError(
                f"a log from {disk.content.start_offset} to {disk.content.end_offset} cannot be cut at {offset}"
            )
        disk.begin(lambda: disk.change(offset))
        if disk.content.end_offset != offset:
            raise BarnabasError(f"{offset} is no boundary of batches; the log now ends at {disk.content.end_offset}")
        self._forget_syncs_beyond(offset)

    def _forget_syncs_beyond(self, offset: int) -> None:
        self._synced_offset = min(self._synced_offset, offset)
        for job in self._jobs:
            job.end_offset = min(job.end_offset, offset)

    def read(self, offset: int, max_bytes: int) -> bytes:
        entries = self._disk.content.entries
        pieces: list[bytes] = []
        size_bytes = 0
        for index in range(self._index(offset), len(entries)):
            data = entries[index].data
            size_bytes += len(data)
            if pieces and size_bytes > max_bytes:
                break
            pieces.append(data)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def batches(self, from_offset: int, to_offset: int) -> Iterable[LogBatch]:
        entries = self._disk.content.entries
        found: list[LogBatch] = []
        for index in range(self._index(from_offset), len(entries)):
            batch = entries[index].batch
            if batch.base_offset >= to_offset:
                break
            if batch.base_offset >= from_offset:
                found.append(batch)
        return found

    def begin_sync(self) -> SyncJob | None:
        if not self._disk.changes:
            return None
        job = ModelSyncJob(self._disk)
        self._jobs.append(job)
        return job

    def finish_sync(self, job: SyncJob) -> None:
        if not isinstance(job, ModelSyncJob):
            raise BarnabasError(f"{job!r} is of another log")
        self._jobs.remove(job)
        self._synced_offset = max(self._synced_offset, job.end_offset)

    def set_high_watermark(self, offset: int) -> None:
        """Nothing: a model's disk is never damaged."""

    # The election

    def save_election(self, state: ElectionState, *, kraft_version: int, voter_ids: Sequence[int]) -> None:
        def save() -> None:
            self._disk.election = state

        self._disk.begin(save)

    # Snapshots

    def begin_snapshot(self, snapshot: Snapshot, voters: Sequence[ControlRecord]) -> Callable[[], int]:
        def write() -> int:
            data = b"".join(
                build_snapshot(
                    snapshot.values,
                    epoch=snapshot.snapshot_id.epoch,
                    timestamp_ms=snapshot.last_contained_ms,
                    last_contained_ms=snapshot.last_contained_ms,
                    voters=voters,
                )
            )
            self._disk.begin(lambda: self._disk.snapshots.__setitem__(snapshot.snapshot_id, data))
            return len(data)

        return write

    def add_snapshot(self, snapshot: SnapshotId, size_bytes: int, last_contained_ms: int) -> None:
        """Nothing: it was noted when it was written."""

    def clean(self, in_use: Container[SnapshotId] = ()) -> int:
        disk = self._disk
        for old in sorted(disk.snapshots)[: -self._kept_snapshots]:
            if old in in_use:
                break
            del disk.snapshots[old]
        oldest = min(disk.snapshots, default=None)
        if oldest is not None:
            disk.content.drop_before(oldest.end_offset)
            disk.safe.drop_before(oldest.end_offset)
        return disk.content.start_offset

    def read_snapshot(self, snapshot: SnapshotId) -> tuple[Snapshot, Sequence[ControlRecord]]:
        return read_snapshot_bytes(snapshot, self._disk.snapshots[snapshot])

    def read_snapshot_bytes(self, snapshot: SnapshotId, position: int, max_bytes: int) -> tuple[bytes, int] | None:
        data = self._disk.snapshots.get(snapshot)
        return None if data is None else (data[position : position + max_bytes], len(data))

    def receive_snapshot(self, snapshot: SnapshotId) -> ModelSnapshotReceiver:
        return ModelSnapshotReceiver(self._disk, snapshot)

    def start_anew(self, snapshot: SnapshotId) -> None:
        disk = self._disk
        disk.begin(lambda: disk.change(snapshot))
        self._forget_syncs_beyond(0)
        self._synced_offset = snapshot.end_offset  # the snapshot itself is safe

    # The end

    def close(self) -> None:
        self._disk.sync(self._disk.change_count)

    def abandon(self) -> None:
        """Nothing: what was written is there."""
