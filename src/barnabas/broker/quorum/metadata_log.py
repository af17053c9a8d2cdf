"""The files of `__cluster_metadata-0`: the log, its snapshots, and `quorum-state`.

What is promised, whatever happens to the machine:
- A record below `high_watermark` was synced, and is found again: in the log, or in the newest snapshot.
- The epoch in `quorum-state` never falls, and no two leaders write under one epoch.
- Log and snapshots are deleted only when a newer snapshot, synced before, holds what they held.

The log is checked from its beginning at every start, so nothing here relies on indexes, on the recovery point or on a
clean stop. If it does not hold what was committed, as the note beside it says, nothing is changed and the start is
refused (`metadata_damage`). All of this is synchronous; `QuorumOfOne` decides what runs away from the event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import Uuid
from barnabas.base.runtime import Runtime
from barnabas.broker.quorum.formatting import read_meta_properties
from barnabas.broker.settings import BrokerSettings
from barnabas.raft.batches import ControlRecord, LogBatch, build_batches, build_control, read_batch
from barnabas.raft.committed_offset import CommittedOffsetNote
from barnabas.raft.damage import Condition, RaftLogDamagedError, judge, look_at
from barnabas.raft.quorum_state import read_quorum_state, write_quorum_state
from barnabas.raft.snapshots import (
    DELETED_SUFFIX,
    PART_SUFFIX,
    LoadedSnapshot,
    find_snapshots,
    read_last_contained_ms,
    read_snapshot_file,
    remove_unfinished,
    write_snapshot_file,
)
from barnabas.raft.types import CHECKPOINT_SUFFIX, ElectionState, Snapshot, SnapshotId, WrittenBatch
from barnabas.records.batch import BatchView, iter_batches
from barnabas.storage.checkpoints import read_topic_id, write_topic_id
from barnabas.storage.directories import METADATA_PARTITION
from barnabas.storage.files import FileSystem, directory_of, join
from barnabas.storage.log import FlushJob
from barnabas.storage.passing_trouble import PassingTrouble
from barnabas.storage.recovery import load_log
from barnabas.storage.settings import TopicSettings
from barnabas.storage.validation import PreparedAppend

_log = logging.getLogger("barnabas.metadata")

# Nobody leads in it: the first leader of a cluster has epoch 1.
_FIRST_EPOCH: Final = 0


class _SnapshotFacts(NamedTuple):
    """What retention goes by."""

    size_bytes: int
    last_contained_ms: int


def metadata_log_directory(settings: BrokerSettings) -> str:
    return join(settings.metadata_dir, str(METADATA_PARTITION))


def log_settings(settings: BrokerSettings) -> TopicSettings:
    """The metadata log in the terms of any other: nothing expires by itself, only what a snapshot covers goes."""
    return TopicSettings(
        internal_segment_bytes=settings.internal_metadata_log_segment_bytes or settings.metadata_log_segment_bytes,
        segment_ms=settings.metadata_log_segment_ms,
        retention_ms=-1,
        retention_bytes=-1,
        max_message_bytes=settings.internal_metadata_max_batch_size_in_bytes,
        file_delete_delay_ms=settings.internal_metadata_delete_delay_millis,
    )


class MetadataLog:
    """The open metadata log of a node."""

    def __init__(self, files: FileSystem, settings: BrokerSettings, runtime: Runtime) -> None:
        """Open what is there and recover it, or begin with nothing. Blocks."""
        self._files = files
        self._settings = settings
        self._runtime = runtime
        self.directory = directory = metadata_log_directory(settings)
        properties = read_meta_properties(files, settings.metadata_dir) or {}
        self._committed = CommittedOffsetNote(files, settings.metadata_dir, properties.get("directory.id"))
        self._refuse_damage()
        if not files.exists(directory):
            files.make_directory(directory)
            files.sync_directory(directory_of(directory))
        if read_topic_id(files, directory) is None:
            write_topic_id(files, directory, Uuid.METADATA_TOPIC)
        remove_unfinished(files, directory)
        self.quorum_state = read_quorum_state(files, directory)
        self._log = load_log(
            files,
            directory,
            METADATA_PARTITION,
            log_settings(settings),
            was_clean=False,
            now_ms=runtime.clock.now_ms(),
            randomness=runtime.randomness,
        )
        self._log.trouble = PassingTrouble(directory, runtime.clock.monotonic_ms)
        self._snapshots = find_snapshots(files, directory)
        self._facts = {each: self._facts_of(each) for each in self._snapshots}
        # Snapshots that were retired, and when their files may go.
        self._to_remove: list[tuple[int, str]] = []
        self._meet_snapshots()

    def _refuse_damage(self) -> None:
        """Before anything is changed: what is torn is cut when the log is loaded, what is damaged must not be."""
        snapshots = find_snapshots(self._files, self.directory) if self._files.exists(self.directory) else []
        snapshot_end = snapshots[-1].end_offset if snapshots else 0
        verdict = judge(look_at(self._files, self.directory), self._committed.offset, snapshot_end)
        if verdict.condition is Condition.DAMAGED:
            raise RaftLogDamagedError(
                f"the metadata log has lost what was committed: {verdict.text}. Nothing was changed; restore "
                f"{self._settings.metadata_dir} from a backup"
            )
        if verdict.condition is Condition.TORN:
            _log.warning("the metadata log was not written to its end: %s", verdict.text)

    def _meet_snapshots(self) -> None:
        """Log and snapshots must follow each other without a hole."""
        if not self._snapshots:
            if self._log.log_start_offset:
                raise BarnabasError(
                    f"{self.directory}: the log begins at offset {self._log.log_start_offset}, and there is no "
                    "snapshot of what came before; restore the missing .checkpoint file"
                )
            return
        latest = self._snapshots[-1]
        if latest.end_offset > self._log.log_end_offset:
            # What the log held up to there is in the snapshot; what it may hold is older.
            _log.warning("%s: the log ends before snapshot %s; it goes on there", self.directory, latest.file_name)
            self._log.start_anew_at(latest.end_offset, self._runtime.clock.now_ms())
        if latest.end_offset < self._log.log_start_offset:
            raise BarnabasError(
                f"{self.directory}: the newest snapshot ends at offset {latest.end_offset}, but the log begins at "
                f"{self._log.log_start_offset}; records are missing between them, restore the newer .checkpoint file"
            )
        self._check_time_of(latest)
        while self._snapshots[0].end_offset < self._log.log_start_offset:
            # Its log is gone already: a stop came between the two.
            self._retire(self._snapshots.pop(0), self._runtime.clock.now_ms())

    def _check_time_of(self, snapshot: SnapshotId) -> None:
        """A snapshot says when the last record was written that it holds; the log may have that record still."""
        last_offset = snapshot.end_offset - 1
        if not self._log.log_start_offset <= last_offset < self._log.log_end_offset:
            return
        batch = next((each for each in self._log.batches(last_offset) if each.last_offset >= last_offset), None)
        if isinstance(batch, BatchView) and batch.max_timestamp_ms != self._facts[snapshot].last_contained_ms:
            raise BarnabasError(
                f"{join(self.directory, snapshot.file_name)} is not the snapshot that its name says: the log has other "
                f"records before offset {snapshot.end_offset}; restore the right one"
            )

    def _facts_of(self, snapshot: SnapshotId) -> _SnapshotFacts:
        path = join(self.directory, snapshot.file_name)
        return _SnapshotFacts(self._files.size(path), read_last_contained_ms(self._files, path))

    # What is there

    @property
    def last_epoch(self) -> int:
        """The highest epoch that this node knows of, from wherever."""
        epochs = [_FIRST_EPOCH, self._log.epochs.latest_epoch]
        if self.quorum_state is not None:
            epochs.append(self.quorum_state.epoch)
        if self._snapshots:
            epochs.append(self._snapshots[-1].epoch)
        return max(epochs)

    @property
    def next_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def log_start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def high_watermark(self) -> int:
        return self._log.high_watermark

    @property
    def snapshots(self) -> list[SnapshotId]:
        return list(self._snapshots)

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        return self._snapshots[-1] if self._snapshots else None

    @property
    def size_bytes(self) -> int:
        """Log and snapshots together, which is what retention by size looks at."""
        return self._log.size_bytes + sum(self._facts[each].size_bytes for each in self._snapshots)

    def read_snapshot(self, snapshot: SnapshotId) -> LoadedSnapshot:
        return read_snapshot_file(self._files, join(self.directory, snapshot.file_name))

    def batches(self, from_offset: int) -> Iterator[LogBatch]:
        for batch in self._log.batches(from_offset):
            if batch.base_offset >= from_offset:
                yield read_batch(batch)

    # Writing

    def save_leadership(self, leader_id: int, epoch: int) -> None:
        """Must return before the first record of `epoch` is written."""
        state = ElectionState(epoch, leader_id)
        write_quorum_state(self._files, self.directory, state, kraft_version=0, voter_ids=[leader_id])
        self.quorum_state = read_quorum_state(self._files, self.directory)

    @property
    def max_batch_bytes(self) -> int:
        return self._settings.internal_metadata_max_batch_size_in_bytes

    def append(self, values: Sequence[bytes], epoch: int) -> WrittenBatch:
        """Write one change. It is in the file when this returns, and safe after the next sync."""
        now_ms = self._runtime.clock.now_ms()
        batches = build_batches(
            values,
            base_offset=self._log.log_end_offset,
            epoch=epoch,
            timestamp_ms=now_ms,
            limit_bytes=self.max_batch_bytes,
        )
        return self._write(list(batches), now_ms)

    def append_control(self, records: Sequence[ControlRecord], epoch: int) -> WrittenBatch:
        now_ms = self._runtime.clock.now_ms()
        batch = build_control(records, base_offset=self._log.log_end_offset, epoch=epoch, timestamp_ms=now_ms)
        return self._write([batch], now_ms)

    def _write(self, batches: list[bytearray], now_ms: int) -> WrittenBatch:
        # One write for all: if it fails, the log takes back what landed of it.
        data = memoryview(batches[0] if len(batches) == 1 else bytearray().join(batches))
        views: list[BatchView] = list(iter_batches(data))
        first_offset = self._log.log_end_offset
        self._log.append_as_follower(PreparedAppend(data, views, now_ms), now_ms=now_ms)
        return WrittenBatch(first_offset, self._log.log_end_offset - 1, now_ms, len(data))

    def begin_sync(self) -> FlushJob | None:
        """What makes everything written so far safe, by `run_sync`; None if it is."""
        return self._log.begin_flush()

    def run_sync(self, job: FlushJob) -> None:
        """Blocks. What this covers is noted as committed."""
        job.run()
        self._committed.advance(job.target_offset)

    def finish_sync(self, job: FlushJob) -> None:
        """What was synced is committed: this node is the majority."""
        self._log.finish_flush(job)
        self._log.set_high_watermark(max(self._log.high_watermark, job.target_offset))

    def sync(self) -> None:
        job = self.begin_sync()
        if job is not None:
            self.run_sync(job)
            self.finish_sync(job)

    # Snapshots and what they make superfluous

    def begin_snapshot(self, snapshot: Snapshot) -> Callable[[], int]:
        """What writes the file of a snapshot and returns its size. It blocks, may run anywhere, and changes nothing
        else: once it is done, `add_snapshot` takes note."""
        name = snapshot.snapshot_id.file_name
        stem = name.removesuffix(CHECKPOINT_SUFFIX)
        chance = self._runtime.randomness.getrandbits(63)
        return partial(
            write_snapshot_file,
            self._files,
            join(self.directory, name),
            snapshot.values,
            epoch=snapshot.snapshot_id.epoch,
            timestamp_ms=self._runtime.clock.now_ms(),
            last_contained_ms=snapshot.last_contained_ms,
            part_name=f"{stem}-{chance}{CHECKPOINT_SUFFIX}{PART_SUFFIX}",
        )

    def add_snapshot(self, snapshot: SnapshotId, size_bytes: int, last_contained_ms: int) -> None:
        """Take note of a snapshot that is on disk."""
        if snapshot not in self._snapshots:
            self._snapshots = sorted([*self._snapshots, snapshot])
        self._facts[snapshot] = _SnapshotFacts(size_bytes, last_contained_ms)

    def clean(self) -> int:
        """Delete the oldest snapshots, and the log before the next one, as far as the settings ask for; how many went.

        The newest always stays: without it the log before it would be lost.
        """
        now_ms = self._runtime.clock.now_ms()
        count = 0
        while len(self._snapshots) > 1 and self._is_superfluous(self._snapshots[0], now_ms):
            # The log first: a snapshot without what follows it is of no use, a log without what came before is.
            self._advance_log_start(self._snapshots[1].end_offset, now_ms)
            self._retire(self._snapshots.pop(0), now_ms)
            count += 1
        return count

    def _is_superfluous(self, snapshot: SnapshotId, now_ms: int) -> bool:
        limit_bytes, limit_ms = self._settings.metadata_max_retention_bytes, self._settings.metadata_max_retention_ms
        if limit_bytes >= 0 and self.size_bytes > limit_bytes:
            return True
        return 0 <= limit_ms < now_ms - self._facts[snapshot].last_contained_ms

    def _advance_log_start(self, offset: int, now_ms: int) -> None:
        self._log.advance_log_start(min(offset, self._log.high_watermark))
        self._log.delete_old_segments(now_ms)

    def _retire(self, snapshot: SnapshotId, now_ms: int) -> None:
        path = join(self.directory, snapshot.file_name)
        self._files.rename(path, path + DELETED_SUFFIX)
        del self._facts[snapshot]
        due_ms = now_ms + self._settings.internal_metadata_delete_delay_millis
        self._to_remove.append((due_ms, path + DELETED_SUFFIX))

    def remove_deleted(self) -> None:
        """Remove the files that were retired long enough ago."""
        now_ms = self._runtime.clock.now_ms()
        self._log.remove_deleted(now_ms)
        for due_ms, path in self._to_remove:
            if due_ms <= now_ms:
                self._files.remove(path)
        self._to_remove = [each for each in self._to_remove if each[0] > now_ms]

    def close(self) -> None:
        self._log.close()
        self._committed.close(sync=True)

    def abandon(self) -> None:
        """Close the files and nothing more, as when the disk has failed."""
        self._log.abandon()
        self._committed.close(sync=False)
