"""The files of one replica, `__cluster_metadata-0` in a node: the log, its snapshots, and `quorum-state`.

What is promised, whatever happens to the machine:
- A record below `synced_offset` is found again: in the log, or in the newest snapshot.
- The epoch and the vote in `quorum-state` are never taken back.
- Log and snapshots are deleted only when a newer snapshot, synced before, holds what they held.
- What was committed is never cut off: neither by `truncate`, nor when the log is opened.

The log is checked from its beginning at every start, so nothing here relies on indexes, on the recovery point or on a
clean stop. If it does not hold what was committed, as the note beside it says, nothing is changed and the start is
refused (`damage`). All of this is synchronous; the owner decides what runs away from the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from functools import partial
from typing import Final, cast

from barnabas.base.errors import BarnabasError, InvariantError, check, known
from barnabas.base.log_context import logger
from barnabas.base.runtime import Runtime
from barnabas.raft.batches import ControlRecord, LogBatch, build_batches, build_control, read_batch
from barnabas.raft.committed_offset import NOTE_FILE, CommittedOffsetNote
from barnabas.raft.damage import Condition, RaftLogDamagedError, judge, look_at
from barnabas.raft.fetched_batches import check_fetched, check_follows
from barnabas.raft.log_options import RaftLogOptions
from barnabas.raft.ports import FoundReplica, SyncJob
from barnabas.raft.quorum_state import read_quorum_state, write_quorum_state
from barnabas.raft.snapshot_files import SnapshotFiles
from barnabas.raft.snapshot_receiver import SnapshotFileReceiver
from barnabas.raft.snapshots import (
    find_snapshots,
    part_name,
    read_header,
    read_snapshot_file,
    remove_unfinished,
    write_snapshot_file,
)
from barnabas.raft.types import ElectionState, Snapshot, SnapshotId, WrittenBatch
from barnabas.records.batch import BatchView, iter_batches
from barnabas.records.control import ControlType
from barnabas.storage.checkpoints import read_topic_id, write_topic_id
from barnabas.storage.errors import DirectoryInUseError, LogDirectoryError, PassingError
from barnabas.storage.files import FileSystem, Lock, directory_of, join
from barnabas.storage.log import FlushJob, PartitionLog
from barnabas.storage.passing_trouble import PassingTrouble
from barnabas.storage.recovery import load_log
from barnabas.storage.validation import PreparedAppend

_log = logger("barnabas.raft")

#: The control records by which voters are known.
VOTER_RECORDS: Final = frozenset({ControlType.KRAFT_VERSION, ControlType.KRAFT_VOTERS})


class RaftLog:
    """A `LogStore` over the files in `directory`. Nothing is touched before `open`."""

    def __init__(self, files: FileSystem, directory: str, options: RaftLogOptions, runtime: Runtime) -> None:
        self._files = files
        self.directory = directory
        self._options = options
        self._runtime = runtime
        self._lock: Lock | None = None
        #: From `open` on.
        self._partition_log = cast(PartitionLog, None)
        self._is_opened = False
        self._note: CommittedOffsetNote | None = None
        self._snapshot_files: SnapshotFiles | None = None
        # What a leader wrote last, and where it begins: every follower asks for just that, a moment later.
        self._written: tuple[int, memoryview] | None = None
        self._is_closing = False

    # Opening

    def open(self) -> FoundReplica:
        """Take the lock, recover, and tell what is there. Blocks."""
        try:
            return self._open()
        except OSError as failure:
            self.abandon()
            raise LogDirectoryError(directory_of(self.directory), str(failure)) from failure
        except BaseException:
            self.abandon()
            raise

    def _open(self) -> FoundReplica:
        self._take_lock()
        files, directory, options = self._files, self.directory, self._options
        note_path = options.note_path or join(directory_of(directory), NOTE_FILE)
        self._note = note = CommittedOffsetNote(files, note_path, options.directory_id)
        end_offset = self._refuse_damage(note)
        election = read_quorum_state(files, directory)
        if not files.exists(directory):
            files.make_directory(directory)
            files.sync_directory(directory_of(directory))
        if read_topic_id(files, directory) is None:
            write_topic_id(files, directory, options.topic_id)
        remove_unfinished(files, directory)
        self._partition_log = log = load_log(
            files,
            directory,
            options.partition,
            options.as_topic_settings(),
            was_clean=False,
            now_ms=self._now_ms(),
            randomness=self._runtime.randomness,
        )
        self._is_opened = True
        # Recovery of any log passes over what looks compacted; this one has no gaps.
        log.truncate_to(end_offset, self._now_ms())
        log.trouble = PassingTrouble(directory, self._runtime.clock.monotonic_ms)
        self._snapshot_files = snapshots = SnapshotFiles(files, directory, options.delete_delay_ms)
        self._meet_snapshots(log, snapshots, note)
        if log.log_start_offset == log.log_end_offset:
            # A crash may come between a new beginning of the log and that of its file of epochs.
            log.epochs.clear()
        # A crash of the process alone leaves what no sync has covered.
        log.flush()
        # The note is there before anything is written: a log without one is judged by other signs.
        committed = max(note.offset or 0, 0 if snapshots.latest is None else snapshots.latest.end_offset)
        note.advance(committed)
        log.set_high_watermark(committed)
        return FoundReplica(
            election,
            log.log_start_offset,
            log.log_end_offset,
            tuple((each.epoch, each.start_offset) for each in log.epochs.entries),
            tuple(snapshots.ids),
            tuple(self._voter_records(log, snapshots)),
            committed,
            is_safe_when_written=not options.sync,
        )

    def _take_lock(self) -> None:
        path = self._options.lock_path
        if path is None:
            return
        try:
            self._lock = self._files.lock(path)
        except BlockingIOError:
            raise DirectoryInUseError(directory_of(path), "another process is using it") from None

    def _refuse_damage(self, note: CommittedOffsetNote) -> int:
        """Before anything is changed: what is torn is cut when the log is loaded, what is damaged must not be. Returns
        where the log ends that is whole."""
        snapshots = find_snapshots(self._files, self.directory) if self._files.exists(self.directory) else []
        found = look_at(self._files, self.directory)
        verdict = judge(found, note.offset, snapshots[-1] if snapshots else None)
        if verdict.condition is Condition.DAMAGED:
            raise self._damaged(verdict.text)
        if verdict.condition is Condition.TORN:
            _log.warning("the log of %s was not written to its end: %s", self._options.partition, verdict.text)
        return found.end_offset

    def _damaged(self, text: str) -> RaftLogDamagedError:
        return RaftLogDamagedError(
            f"the log of {self._options.partition} has lost what was committed: {text}. Nothing was changed; restore "
            f"{directory_of(self.directory)} from a backup"
        )

    def _meet_snapshots(self, log: PartitionLog, snapshots: SnapshotFiles, note: CommittedOffsetNote) -> None:
        """Log and snapshots must follow each other without a hole."""
        latest = snapshots.latest
        if latest is None:
            if log.log_start_offset:
                raise BarnabasError(
                    f"{self.directory}: the log begins at offset {log.log_start_offset}, and there is no "
                    "snapshot of what came before; restore the missing .checkpoint file"
                )
            return
        if latest.end_offset > log.log_end_offset:
            # What the log held up to there is in the snapshot; what it may hold is older.
            _log.warning("%s: the log ends before snapshot %s; it goes on there", self.directory, latest.file_name)
            log.start_anew_at(latest.end_offset, self._now_ms())
        elif _is_contradicted(log, latest):
            # It came from the leader, and a stop from forgetting the log that the quorum had left behind.
            text = f"{self.directory}: the log has other records before the end of snapshot {latest.file_name}"
            if (note.offset or 0) > latest.end_offset:
                raise self._damaged(f"{text}, but was committed up to {note.offset}")
            _log.warning("%s; it goes on there", text)
            log.start_anew_at(latest.end_offset, self._now_ms())
        if latest.end_offset < log.log_start_offset:
            raise BarnabasError(
                f"{self.directory}: the newest snapshot ends at offset {latest.end_offset}, but the log begins at "
                f"{log.log_start_offset}; records are missing between them, restore the newer .checkpoint file"
            )
        self._check_time_of(latest, log, snapshots)
        # The log of older ones may be gone already: a stop came between the two.
        snapshots.retire_before(log.log_start_offset, self._now_ms())

    def _check_time_of(self, snapshot: SnapshotId, log: PartitionLog, snapshots: SnapshotFiles) -> None:
        """A snapshot says when the last record was written that it holds; the log may have that record still."""
        last_offset = snapshot.end_offset - 1
        if not log.log_start_offset <= last_offset < log.log_end_offset:
            return
        batch = next((each for each in log.batches(last_offset) if each.last_offset >= last_offset), None)
        if batch is not None and batch.max_timestamp_ms != snapshots.last_contained_ms(snapshot):
            raise BarnabasError(
                f"{snapshots.path(snapshot)} is not the snapshot that its name says: the log has other "
                f"records before offset {snapshot.end_offset}; restore the right one"
            )

    def _voter_records(self, log: PartitionLog, snapshots: SnapshotFiles) -> Iterator[tuple[int, ControlRecord]]:
        start_offset = 0
        if (latest := snapshots.latest) is not None:
            start_offset = latest.end_offset
            for record in read_header(self._files, snapshots.path(latest)).controls:
                if record.kind in VOTER_RECORDS:
                    yield start_offset - 1, record
        for batch in log.batches(start_offset):
            if batch.is_control and batch.base_offset >= start_offset:
                for offset, record in enumerate(read_batch(batch).controls, batch.base_offset):
                    if record.kind in VOTER_RECORDS:
                        yield offset, record

    # What is there

    @property
    def _snapshots(self) -> SnapshotFiles:
        return known(self._snapshot_files, f"the log in {self.directory} is open")

    @property
    def _last_epoch(self) -> int:
        """That of the last record, wherever it is."""
        epoch, latest = self._partition_log.epochs.latest_epoch, self._snapshots.latest
        return epoch if latest is None or latest.epoch < epoch else latest.epoch

    def _now_ms(self) -> int:
        return self._runtime.clock.now_ms()

    @property
    def start_offset(self) -> int:
        return self._partition_log.log_start_offset

    @property
    def end_offset(self) -> int:
        return self._partition_log.log_end_offset

    @property
    def synced_offset(self) -> int:
        """All before it is safe from a crash of the machine; or counts as such, where nothing is synced."""
        log = self._partition_log
        return log.recovery_point if self._options.sync else log.log_end_offset

    @property
    def high_watermark(self) -> int:
        """All before it is committed, as far as this replica was told, or finds in its files."""
        return self._partition_log.high_watermark

    @property
    def max_batch_bytes(self) -> int:
        return self._options.max_batch_bytes

    @property
    def snapshots(self) -> list[SnapshotId]:
        return list(self._snapshots.ids)

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        return self._snapshots.latest

    @property
    def size_bytes(self) -> int:
        """Log and snapshots together, which is what retention by size looks at."""
        return self._partition_log.size_bytes + self._snapshots.size_bytes

    def read(self, offset: int, max_bytes: int) -> memoryview:
        """Whole batches from the one that holds `offset` on: at least one, if there is one, else up to `max_bytes`."""
        if self._written is not None and self._written[0] == offset and len(self._written[1]) <= max_bytes:
            return self._written[1]
        log = self._partition_log
        found = log.read(offset, max_bytes, end_offset=log.log_end_offset).range
        if found is None:
            return memoryview(b"")
        data = memoryview(found.read())
        walk = iter_batches(data)
        for _ in walk:
            pass
        return data[: walk.position]

    def batches(self, from_offset: int, to_offset: int) -> Iterator[LogBatch]:
        """Decoded batches that begin in this range."""
        for batch in self._partition_log.batches(from_offset):
            if batch.base_offset >= to_offset:
                return
            if batch.base_offset >= from_offset:
                yield read_batch(batch)

    # Writing

    def append(self, values: Sequence[bytes], epoch: int) -> WrittenBatch:
        """As the leader: write records at the end. They are one batch, all or none, if they fit into one."""
        check(values, "there are records to append")
        now_ms = self._now_ms()
        batches = build_batches(
            values,
            base_offset=self.end_offset,
            epoch=epoch,
            timestamp_ms=now_ms,
            limit_bytes=self.max_batch_bytes,
        )
        return self._write_as_leader(list(batches), epoch, now_ms)

    def append_control(self, records: Sequence[ControlRecord], epoch: int) -> WrittenBatch:
        now_ms = self._now_ms()
        batch = build_control(records, base_offset=self.end_offset, epoch=epoch, timestamp_ms=now_ms)
        return self._write_as_leader([batch], epoch, now_ms)

    def _write_as_leader(self, batches: list[bytearray], epoch: int, now_ms: int) -> WrittenBatch:
        log, last_epoch = self._partition_log, self._last_epoch
        if epoch < last_epoch:
            raise InvariantError(f"epoch {epoch} writes to {self.directory} after epoch {last_epoch}")
        # One write for all: if it fails, the log takes back what landed of it.
        data = memoryview(batches[0] if len(batches) == 1 else bytearray().join(batches))
        first_offset = log.log_end_offset
        views = [BatchView(batches[0])] if len(batches) == 1 else list(iter_batches(data))
        self._write(PreparedAppend(data, views, now_ms))
        self._written = (first_offset, data)
        return WrittenBatch(first_offset, log.log_end_offset - 1, now_ms, len(data))

    def append_fetched(
        self, batches: bytes | bytearray | memoryview, checked: Sequence[BatchView] | None = None
    ) -> None:
        """As a follower: write whole batches that begin at the end of the log, as they came.

        A last one that was cut off is left out. `checked` are the batches in them, if the caller had a look
        (`check_fetched`); then only their place is looked at once more. Raises `RemoteProtocolError`, and writes
        nothing, if they do not follow what is there, or are damaged.
        """
        log = self._partition_log
        if checked is None:
            data, views = check_fetched(batches, log.log_end_offset, self._last_epoch)
        else:
            data, views = memoryview(batches), list(checked)
            check_follows(views[0], log.log_end_offset, self._last_epoch)
        max_timestamp_ms = max([each.max_timestamp_ms for each in views])
        self._write(PreparedAppend(data, views, max_timestamp_ms))

    def _write(self, prepared: PreparedAppend) -> None:
        log, self._written = self._partition_log, None
        try:
            log.append_as_follower(prepared, now_ms=self._now_ms())
        except PassingError:
            # The log noted the epochs of what it then could not write: what comes next may be of another leader.
            log.epochs.truncate_from_end(log.log_end_offset)
            raise

    def truncate(self, offset: int) -> None:
        """Forget everything from `offset` on, and no crash brings it back; it is a boundary of batches.

        The owner must not: what was committed is here to stay (`InvariantError`).
        """
        log = self._partition_log
        if offset >= log.log_end_offset:
            return
        batch = next(log.batches(offset), None) if offset >= log.high_watermark else None
        end_offset = offset if batch is None else min(offset, batch.base_offset)
        check(
            end_offset >= log.high_watermark,
            f"{self.directory}: the log cannot end at {end_offset}: it is committed up to {log.high_watermark}",
        )
        self._written = None
        log.truncate_to(offset, self._now_ms())

    def begin_sync(self) -> FlushJob | None:
        """What makes everything written so far safe; None if it is."""
        return self._partition_log.begin_flush() if self._options.sync else None

    def finish_sync(self, job: SyncJob) -> None:
        """Take note that a job has run; `synced_offset` rises, unless the log was cut meanwhile."""
        if not isinstance(job, FlushJob):
            raise InvariantError(f"{job} was not begun here")
        self._partition_log.finish_flush(job)
        self._note_committed()

    def set_high_watermark(self, offset: int) -> None:
        """All before `offset` is committed. What of it is synced is noted, so that damage is recognised later."""
        log = self._partition_log
        if offset > log.high_watermark:
            log.set_high_watermark(offset)
        self._note_committed()

    def _note_committed(self) -> None:
        # Not what is committed elsewhere alone: a crash may take it from here, and that would be no damage. Where
        # nothing is synced a crash may take anything, so there only what a stop in good order leaves is noted.
        if self._note is not None and (self._options.sync or self._is_closing):
            self._note.advance(min(self.high_watermark, self.synced_offset))

    # The election

    def save_election(self, state: ElectionState, *, kraft_version: int, voter_ids: Sequence[int]) -> None:
        """Write `quorum-state`. Once this returns, no crash takes it back. Blocks."""
        write_quorum_state(self._files, self.directory, state, kraft_version=kraft_version, voter_ids=voter_ids)

    # Snapshots and what they make superfluous

    def begin_snapshot(self, snapshot: Snapshot, voters: Sequence[ControlRecord]) -> Callable[[], int]:
        """What writes the file of a snapshot and returns its size. It blocks, may run anywhere, and changes nothing
        else: once it is done, `add_snapshot` takes note."""
        snapshot_id = snapshot.snapshot_id
        check(
            snapshot_id.end_offset <= self.high_watermark,
            f"{self.directory}: a snapshot up to {snapshot_id.end_offset} holds what is not committed",
        )
        # The log is safe up to where a snapshot ends before that is there: `damage` goes by it.
        sync = self.begin_sync() if snapshot_id.end_offset > self.synced_offset else None
        write = partial(
            write_snapshot_file,
            self._files,
            self._snapshots.path(snapshot_id),
            snapshot.values,
            epoch=snapshot_id.epoch,
            timestamp_ms=self._now_ms(),
            last_contained_ms=snapshot.last_contained_ms,
            voters=voters,
            part_name=part_name(snapshot_id, self._runtime.randomness),
        )

        def sync_and_write() -> int:
            if sync is not None:
                sync.run()
            return write()

        return sync_and_write

    def add_snapshot(self, snapshot: SnapshotId, size_bytes: int, last_contained_ms: int) -> None:
        """Take note of a snapshot that was written."""
        self._snapshots.add(snapshot, size_bytes, last_contained_ms)

    def clean(self, in_use: Container[SnapshotId] = ()) -> int:
        """Delete the oldest snapshots, and the log before the next one, as far as the options ask for, up to the first
        that is in use; the new start of the log.

        The newest always stays: without it the log before it would be lost.
        """
        now_ms, log, snapshots = self._now_ms(), self._partition_log, self._snapshots
        while len(snapshots.ids) > 1 and self._is_superfluous(snapshots.ids[0], now_ms):
            if snapshots.ids[0] in in_use:
                break
            # The log first: a snapshot without what follows it is of no use, a log without what came before is.
            log.advance_log_start(min(snapshots.ids[1].end_offset, log.high_watermark))
            log.delete_old_segments(now_ms)
            snapshots.retire(snapshots.ids[0], now_ms)
        log.remove_deleted(now_ms)
        snapshots.remove_retired(now_ms)
        return log.log_start_offset

    def _is_superfluous(self, snapshot: SnapshotId, now_ms: int) -> bool:
        limit_bytes, limit_ms = self._options.retention_bytes, self._options.retention_ms
        if limit_bytes >= 0 and self.size_bytes > limit_bytes:
            return True
        return 0 <= limit_ms < now_ms - self._snapshots.last_contained_ms(snapshot)

    def read_snapshot(self, snapshot: SnapshotId) -> tuple[Snapshot, Sequence[ControlRecord]]:
        """A snapshot that is here, checked, and what its header says of the voters. Blocks."""
        loaded = read_snapshot_file(self._files, self._snapshots.path(snapshot))
        return Snapshot(snapshot, loaded.last_contained_ms, loaded.values), loaded.controls

    def read_snapshot_bytes(self, snapshot: SnapshotId, position: int, max_bytes: int) -> tuple[bytes, int] | None:
        """A piece of a snapshot's file and the size of the whole; None if there is none of that id."""
        return self._snapshots.read_bytes(snapshot, position, max_bytes)

    def receive_snapshot(self, snapshot: SnapshotId) -> SnapshotFileReceiver:
        part = join(self.directory, part_name(snapshot, self._runtime.randomness))
        return SnapshotFileReceiver(self._files, part, self._snapshots.path(snapshot))

    def start_anew(self, snapshot: SnapshotId) -> None:
        """A snapshot was received: forget the whole log, and go on at its end."""
        now_ms, log, snapshots = self._now_ms(), self._partition_log, self._snapshots
        end_offset = snapshot.end_offset
        check(
            end_offset >= log.high_watermark,
            f"{self.directory}: snapshot {snapshot.file_name} is older than what is committed, {log.high_watermark}",
        )
        snapshots.add_found(snapshot)
        self._written = None
        # From behind first: whatever a crash leaves of the log must not look like what follows the snapshot.
        log.truncate_to(end_offset, now_ms)
        log.start_anew_at(end_offset, now_ms)
        log.flush()
        self.set_high_watermark(end_offset)
        snapshots.retire_before(end_offset, now_ms)

    # The end

    def close(self) -> None:
        """Bring everything to disk and close the files. Blocks."""
        try:
            self._partition_log.close()
            self._is_closing = True
            self._note_committed()
            if self._note is not None:
                self._note.close(sync=True)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the files and nothing more, as when the disk has failed."""
        if self._is_opened:
            self._partition_log.abandon()
        if self._note is not None:
            self._note.close(sync=False)
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _is_contradicted(log: PartitionLog, snapshot: SnapshotId) -> bool:
    """Whether the log has, as the last record before the end of a snapshot, one that another leader wrote."""
    last_offset = snapshot.end_offset - 1
    if not log.log_start_offset <= last_offset < log.log_end_offset:
        return False
    return log.epochs.epoch_for_offset(last_offset) != snapshot.epoch
