"""The log of one partition: segments that follow each other, and what is known of its producers and leader epochs.

Guarantees:
- An offset holds one record for ever: `log_end_offset` only rises, except through truncation.
- What `append` returned for is in the file. It is safe against a crash of the machine below `recovery_point`.
- Readers see whole batches, from `log_start_offset` up to the bound that they ask for.
- A failed write leaves the log as it was.

`append` gives offsets and writes without ever waiting; what may take long beforehand is in `validation`. Time is handed
in. Nothing here may be called from two threads at once; what blocks is handed out, as `FlushJob` and as cleaning jobs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import wraps
from random import Random
from typing import Concatenate, Final, NamedTuple, ParamSpec, TypeVar

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError, check
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.records.batch import MAX_TIMESTAMP_AT, BatchView
from barnabas.storage._kernel.appending import LogTail
from barnabas.storage.aborted import AbortedTransaction
from barnabas.storage.checkpoints import Checkpoint
from barnabas.storage.errors import PASSING, AppendRefusedError, LogDirectoryError, LogError, PassingError
from barnabas.storage.files import FileSystem, directory_of
from barnabas.storage.leader_epochs import EpochEntry, LeaderEpochs, write_leader_epochs
from barnabas.storage.passing_trouble import PassingTrouble
from barnabas.storage.producer_snapshot import ProducerSnapshots
from barnabas.storage.producer_state import CompletedTransaction, ProducerStates
from barnabas.storage.recalling import batches_before
from barnabas.storage.retention import count_expired
from barnabas.storage.searching import Search, run_here
from barnabas.storage.segment import DELETED_SUFFIX, SWAP_SUFFIX, FileRange, Segment
from barnabas.storage.settings import TopicSettings
from barnabas.storage.timestamp_search import TimestampAndOffset, search_max_timestamp, search_timestamp
from barnabas.storage.validation import PreparedAppend

NO_TIMESTAMP_MS: Final = -1


class Appended(NamedTuple):
    """Where the records lie. `append_time_ms` is -1 where records keep their own timestamps.

    Of a duplicate it is the timestamp of the batch that came first, whatever the topic, as in Kafka.
    """

    first_offset: int
    last_offset: int
    append_time_ms: int
    log_start_offset: int
    is_duplicate: bool = False


class LogRead(NamedTuple):
    """Whole batches (the last may be cut off) as they lie in a file; None where there is nothing to read yet."""

    range: FileRange | None
    high_watermark: int
    log_start_offset: int
    log_end_offset: int


def aborted_entry(ended: CompletedTransaction) -> AbortedTransaction:
    return AbortedTransaction(ended.producer_id, ended.first_offset, ended.last_offset, ended.last_stable_offset)


class FlushJob(NamedTuple):
    """What makes a part of a log safe. Whatever changes meanwhile: it syncs what was written when it was made."""

    directory: str
    syncs: list[Callable[[], None]]
    target_offset: int
    truncation_count: int

    def run(self) -> None:
        try:
            for sync in self.syncs:
                sync()
        except (OSError, LogError) as failure:
            # Also with a full disk: what a failed sync should have covered, no later one covers.
            raise LogDirectoryError(self.directory, f"a sync failed: {failure}") from failure


P = ParamSpec("P")
T = TypeVar("T")


def _reports_failures(
    method: Callable[Concatenate[PartitionLog, P], T],
) -> Callable[Concatenate[PartitionLog, P], T]:
    """Makes errors of the disk errors of the log."""

    @wraps(method)
    def guarded(self: PartitionLog, /, *args: P.args, **keywords: P.kwargs) -> T:
        try:
            return method(self, *args, **keywords)
        except OSError as failure:
            raise self.failed(failure) from failure

    return guarded


class PartitionLog(LogTail):
    """An open log. `recovery.load_log` makes one from a directory."""

    def __init__(
        self,
        files: FileSystem,
        directory: str,
        partition: TopicPartition,
        settings: TopicSettings,
        *,
        topic_id: Uuid | None,
        segments: list[Segment],
        producers: ProducerStates,
        snapshots: ProducerSnapshots,
        epochs: LeaderEpochs,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        producer_expiration_ms: int,
        randomness: Random,
        now_ms: int,
    ) -> None:
        self._files = files
        self.directory = directory
        self.partition = partition
        self.settings = settings
        self.topic_id = topic_id
        self._segments = segments
        self.producers = producers
        self.snapshots = snapshots
        self.epochs = epochs
        self._epoch_file: Checkpoint[list[EpochEntry]] = Checkpoint(self._write_epochs)
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.recovery_point = recovery_point
        self.high_watermark = log_start_offset
        self.producer_expiration_ms = producer_expiration_ms
        self._randomness = randomness
        self._jitter_ms = self._pick_jitter()
        self._active_since_ms = now_ms
        self._last_flush_ms = now_ms
        # How often files got names or lost them, and how much of that is certain to outlast a crash of the machine.
        self._name_changes = 1
        self._synced_name_changes = 0
        # What flushes that are not finished make safe. One that never ran must not be missed by the next.
        self._unfinished_syncs: list[Callable[[], None]] = []
        self._truncation_count = 0
        # Files renamed to `.deleted`, and when they may go: readers that hold them need a while to finish.
        self._to_remove: list[tuple[int, Segment]] = []
        #: Who tells when the disk is full; the logs of a directory share one.
        self.trouble: PassingTrouble | None = None

    def __repr__(self) -> str:
        return f"<log of {self.partition}, offsets {self.log_start_offset} to {self.log_end_offset}>"

    # What is there

    @property
    def segments(self) -> list[Segment]:
        return list(self._segments)

    @property
    def first_segment_offset(self) -> int:
        return self._segments[0].base_offset

    @property
    def active_segment(self) -> Segment:
        return self._segments[-1]

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def last_stable_offset(self) -> int:
        """Below it, the outcome of every transaction is known."""
        if self.producers.first_unstable_offset is None:
            return self.high_watermark
        return self.producers.last_stable_offset(self.high_watermark, self.log_start_offset)

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.settings.cleanup_policy

    def set_high_watermark(self, offset: int) -> None:
        """Tell the log up to where its records are committed. Never beyond the end, never before the start."""
        self.high_watermark = max(self.log_start_offset, min(offset, self.log_end_offset))
        self.producers.on_high_watermark(self.high_watermark)

    def commit_all(self) -> None:
        """Everything is committed, as where nobody else has a replica."""
        self.high_watermark = self.log_end_offset
        self.producers.on_high_watermark(self.log_end_offset)

    # Appending

    def append(self, prepared: PreparedAppend, *, leader_epoch: int, now_ms: int) -> Appended:
        """As the leader: give the batch its offsets and write it. A batch that was written before is only told of."""
        (batch,) = prepared.batches
        if prepared.is_from_coordinator:
            self.producers.check_from_coordinator(batch, prepared.transaction_version)
        elif batch.producer_id >= 0:
            try:
                duplicate = self.producers.check(batch)
            except AppendRefusedError:
                if not self._recalled(batch):
                    raise
                duplicate = self.producers.check(batch)
            if duplicate is not None:
                return Appended(*duplicate, self.log_start_offset, is_duplicate=True)
        batch.stamp(base_offset=self.log_end_offset, leader_epoch=leader_epoch)
        self._write(prepared, now_ms)
        return Appended(batch.base_offset, batch.last_offset, prepared.append_time_ms, self.log_start_offset)

    def _recalled(self, batch: BatchView) -> bool:
        """Whether more is known of the producer of a refused batch than before."""
        if not self.producers.may_be_forgotten(batch):
            return False
        self._recall_batches()
        return True

    @_reports_failures
    def _recall_batches(self) -> None:
        """Look into the log for what the snapshot of producers did not keep; once, and only if somebody asks for it."""
        restored_at = self.producers.restored_at
        if restored_at is not None:
            self.producers.recall(batches_before(self._segments[: self._segment_index(restored_at) + 1], restored_at))

    def append_as_follower(self, prepared: PreparedAppend, *, now_ms: int) -> Appended | None:
        """Take over batches with the offsets that the leader gave them; None if there are none."""
        if not prepared.batches:
            return None
        first, last = prepared.batches[0], prepared.batches[-1]
        if first.base_offset < self.log_end_offset:
            raise LogError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.partition}: offset {first.base_offset} was fetched, but the log ends at {self.log_end_offset}",
            )
        self._write(prepared, now_ms)
        return Appended(first.base_offset, last.last_offset, NO_TIMESTAMP_MS, self.log_start_offset)

    def _write(self, prepared: PreparedAppend, now_ms: int) -> None:
        data, batches, max_timestamp_ms = prepared.data, prepared.batches, prepared.max_timestamp_ms
        first, last = batches[0], batches[-1]
        first_offset, last_offset = first.base_offset, last.last_offset
        try:
            if last.leader_epoch != self.epochs.latest_epoch or last is not first:
                self._note_epochs(batches)
            segment = self._segment_for(len(data), first_offset, last_offset, max_timestamp_ms, now_ms)
            position = segment.size_bytes
            try:
                if last is first:
                    segment.append(data, last_offset, max_timestamp_ms)
                    segment.remember(first_offset, position, len(data), last_offset)
                else:
                    segment.append_batches(data, batches)
                for batch in batches:
                    if batch.producer_id >= 0:
                        ended = self.producers.apply(batch)
                        if ended is not None and ended.is_aborted:
                            segment.aborted.append(aborted_entry(ended))
            except (OSError, BarnabasError):
                # An abort that its index could not take must not be in the log: readers would be shown its records. Nor
                # must anything else that the writer is told was refused: the next batch gets the same offsets.
                if segment.size_bytes > position:
                    segment.cut_at(position, self.log_end_offset)
                    self.reload_producers(now_ms)
                raise
        except OSError as failure:
            raise self.failed(failure) from failure
        self.log_end_offset = last_offset + 1
        if self.trouble is not None and self.trouble.is_there:
            self.trouble.passed()
        if self.log_end_offset - self.recovery_point >= self.settings.flush_messages:
            self.flush()

    def _note_epochs(self, batches: list[BatchView]) -> None:
        epochs = self.epochs
        for batch in batches:
            epoch = batch.leader_epoch
            if epoch != epochs.latest_epoch and epoch >= 0:
                epochs.assign(epoch, batch.base_offset)

    def begin_saving_epochs(self) -> Callable[[], None] | None:
        """What brings the file of epochs up to date, and may be called in another thread; None if it is."""
        epochs = self.epochs
        if not epochs.dirty:
            return None
        version, entries = epochs.version, epochs.entries
        write = self._epoch_file.begin(entries)

        def save() -> None:
            try:
                write()
            except OSError as failure:
                raise self.failed(failure) from failure
            epochs.saved(version, entries)

        return save

    def _save_epochs(self) -> None:
        save = self.begin_saving_epochs()
        if save is not None:
            save()

    def _write_epochs(self, entries: list[EpochEntry]) -> None:
        write_leader_epochs(self._files, self.directory, entries)

    def _segment_for(
        self, size_bytes: int, first_offset: int, last_offset: int, max_timestamp_ms: int, now_ms: int
    ) -> Segment:
        segment = self._segments[-1]
        settings = self.settings
        old_bytes = segment.size_bytes
        if old_bytes > settings.segment_limit_bytes - size_bytes or segment.is_index_full:
            return self.roll(now_ms)
        if not segment.can_hold(last_offset):
            return self.roll(now_ms, first_offset)
        if old_bytes:
            first_ms = segment.first_timestamp_ms
            # The age of data is told by data: a log that is filled from an archive rolls as it did when it was live.
            age_ms = (
                max_timestamp_ms - first_ms if first_ms >= 0 <= max_timestamp_ms else now_ms - self._active_since_ms
            )
            if age_ms > settings.segment_ms - self._jitter_ms:
                return self.roll(now_ms)
        return segment

    def _pick_jitter(self) -> int:
        longest_ms = min(self.settings.segment_jitter_ms, self.settings.segment_ms)
        return self._randomness.randrange(longest_ms) if longest_ms else 0

    def roll(self, now_ms: int, base_offset: int = 0) -> Segment:
        """Close the last segment and begin another at the next offset, or at `base_offset` if that is higher."""
        old = self._segments[-1]
        base_offset = max(base_offset, self.log_end_offset)
        if old.base_offset == base_offset and not old.size_bytes:
            return old
        old.finish()
        if self.recovery_point >= self.log_end_offset:
            # Neither a later flush nor recovery will look at this segment again.
            old.write_indexes(sync=True)
        self.snapshots.take(self.producers, base_offset, sync=False)
        if self._synced_name_changes < self._name_changes:
            # A machine that crashes may lose names in any order. If the last but one were lost and the last one kept,
            # recovery would see no gap but a hole.
            self._sync_names()
        new = self.new_segment(base_offset)
        self._segments.append(new)
        self._name_changes += 1
        self._active_since_ms = now_ms
        self._jitter_ms = self._pick_jitter()
        return new

    def new_segment(self, base_offset: int, *, suffix: str = "") -> Segment:
        return Segment(
            self._files,
            self.directory,
            base_offset,
            index_bytes=self.settings.segment_index_bytes,
            index_interval_bytes=self.settings.index_interval_bytes,
            create=True,
            suffix=suffix,
        )

    def failed(self, failure: OSError) -> LogError:
        """What a failure of the disk means: a full one can be waited for, any other takes the directory offline."""
        if failure.errno in PASSING:
            reason = PASSING[failure.errno]
            if self.trouble is not None:
                self.trouble.refused(reason, f"what was asked of {self.partition}")
            return PassingError(f"{self.partition}: {reason}; nothing was written, and it goes on when that has passed")
        return LogDirectoryError(directory_of(self.directory), f"{self.partition}: {failure}")

    # Reading

    def read(self, offset: int, max_bytes: int, *, end_offset: int, at_least_one: bool = True) -> LogRead:
        """Batches from the one that holds `offset`, or the next after a gap, on; only such as lie below `end_offset`.

        `max_bytes` is kept to, but with `at_least_one` the first batch comes whole, however large.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise LogError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.partition}: offset {offset} is not between {self.log_start_offset} and {self.log_end_offset}",
            )
        if offset >= end_offset:
            return LogRead(None, self.high_watermark, self.log_start_offset, self.log_end_offset)
        active = self._segments[-1]
        try:
            if offset >= active.base_offset and end_offset >= self.log_end_offset:
                # As most fetches do: what was appended last, to the end.
                found = active.read(offset, max_bytes, active.size_bytes, at_least_one=at_least_one)
                if found is not None and not found.size_bytes:
                    found = None
            else:
                found = self._find_range(offset, max_bytes, end_offset, at_least_one)
        except OSError as failure:
            raise self.failed(failure) from failure
        return LogRead(found, self.high_watermark, self.log_start_offset, self.log_end_offset)

    def _find_range(self, offset: int, max_bytes: int, end_offset: int, at_least_one: bool) -> FileRange | None:
        for place in range(self._segment_index(offset), len(self._segments)):
            segment = self._segments[place]
            if segment.base_offset >= end_offset:
                break
            end = segment.size_bytes if end_offset >= self.log_end_offset else segment.end_position(end_offset)
            found = segment.read(offset, max_bytes, end, at_least_one=at_least_one)
            if found is not None:
                return found if found.size_bytes else None
        return None

    def _segment_index(self, offset: int) -> int:
        """The place of the last segment that begins at or before `offset`."""
        segments = self._segments
        if offset >= segments[-1].base_offset:
            return len(segments) - 1
        return max(0, bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1)

    def timestamp_now(self, offset: int) -> int | None:
        """The largest timestamp of the batch that holds `offset`, or of the next after a gap, if memory can tell it.

        For those who ask for many and need none of them: it never waits for the disk, raises nothing, and mends no
        index. None if it would have to, and of batches of the old formats."""
        try:
            for segment in self._segments[self._segment_index(offset) :]:
                header = segment.header_now(offset)
                if header is None:
                    return None
                if header:
                    return int.from_bytes(header[MAX_TIMESTAMP_AT : MAX_TIMESTAMP_AT + 8], "big", signed=True)
        except OSError:
            return None  # who reads there will be told
        return None

    def holds(self, data: FileRange) -> bool:
        """Whether what `read` found is still there. Retention, truncation and compaction take files from readers."""
        end = data.position + data.size_bytes
        return any(segment.file is data.file and end <= segment.size_bytes for segment in self._segments)

    @_reports_failures
    def aborted_transactions(self, offset: int, data: FileRange) -> list[AbortedTransaction]:
        """The aborted transactions that a reader of `data`, which was read at `offset`, must know of."""
        place = self._segment_index(offset)
        while self._segments[place].file is not data.file:
            place += 1
        segment = self._segments[place]
        end_offset = self._end_offset_of(place, segment, data)
        found: list[AbortedTransaction] = []
        for later in self._segments[place:]:
            entries, is_complete = later.aborted.search(offset, end_offset)
            found += entries
            if is_complete:
                break
        return found

    def _end_offset_of(self, place: int, segment: Segment, data: FileRange) -> int:
        """An offset that the data surely does not reach: cheap and too high rather than exact."""
        start = segment.offset_index.entry_at(data.position)
        beyond = segment.offset_index.upper_bound(start, data.position - start.position + data.size_bytes)
        if beyond is not None and segment.bears_out(beyond):
            return beyond.offset
        is_last = place == len(self._segments) - 1
        return self.log_end_offset if is_last else self._segments[place + 1].base_offset

    def batches(self, from_offset: int) -> Iterator[BatchView]:
        """All batches that reach `from_offset`, for those who must read everything, such as coordinators."""
        for segment in self._segments[self._segment_index(from_offset) :]:
            found = segment.locate(from_offset)
            if found is not None:
                for entry in segment.entries(found.position):
                    if isinstance(entry, BatchView):
                        yield entry

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampAndOffset | None:
        """The first record that is not older than `timestamp_ms`."""
        return run_here(self.search_timestamp(timestamp_ms))

    def search_timestamp(self, timestamp_ms: int) -> Search[TimestampAndOffset | None]:
        return search_timestamp(self, timestamp_ms)

    def offset_of_max_timestamp(self) -> TimestampAndOffset | None:
        """The first record with the highest timestamp of all."""
        return run_here(self.search_max_timestamp())

    def search_max_timestamp(self) -> Search[TimestampAndOffset | None]:
        return search_max_timestamp(self)

    # Safety

    def flush(self, to_offset: int | None = None) -> None:
        """Make everything below `to_offset` (all, if not given) safe against a crash of the machine."""
        job = self.begin_flush(to_offset)
        if job is not None:
            job.run()
            self.finish_flush(job)

    @_reports_failures
    def begin_flush(self, to_offset: int | None = None) -> FlushJob | None:
        """The first of three steps of a flush, on the event loop: what must be synced. None if nothing must.

        The second, the job's `run`, blocks and may happen in another thread. The third is `finish_flush`, on the loop.
        """
        target = self.log_end_offset if to_offset is None else to_offset
        if target <= self.recovery_point:
            return None
        # From the segment that ends there on: it may have been closed since, and its indexes got their last entries.
        start = self._segment_index(self.recovery_point - 1)
        syncs = self._unfinished_syncs = list(self._unfinished_syncs)
        save_epochs = self.begin_saving_epochs()
        if save_epochs is not None:
            # Above the recovery point the batches tell the epochs, below it only the file does.
            syncs.append(save_epochs)
        for segment in self._segments[start:]:
            if segment.base_offset < target:
                syncs += segment.begin_flush()
        if self._synced_name_changes < self._name_changes:
            syncs.append(self._sync_names)
        return FlushJob(directory_of(self.directory), syncs, target, self._truncation_count)

    def finish_flush(self, job: FlushJob) -> None:
        """Take note that a job is done; unless the log was cut meanwhile, and has other records there now."""
        if self._unfinished_syncs is job.syncs:
            self._unfinished_syncs = []
        if job.truncation_count == self._truncation_count:
            self.recovery_point = max(self.recovery_point, job.target_offset)

    def is_flush_due(self, now_ms: int) -> bool:
        """Whether the settings ask for a flush by now. By number of records, appending flushes by itself."""
        is_due = self.log_end_offset > self.recovery_point and now_ms - self._last_flush_ms >= self.settings.flush_ms
        if is_due:
            self._last_flush_ms = now_ms
        return is_due

    def close(self) -> None:
        """Bring everything to disk and close the files, so that the next start need not recover."""
        try:
            self.active_segment.finish()
            self.snapshots.take(self.producers, self.log_end_offset)
            self.flush()
            # An epoch without a record is forgotten when the log is loaded: it is not worth a write.
            self.epochs.truncate_from_end(self.log_end_offset)
            if self.epochs.entries != self.epochs.saved_entries:
                self._save_epochs()
        except OSError as failure:
            raise self.failed(failure) from failure
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the files and nothing more, as when the disk has failed."""
        for segment in [*self._segments, *(segment for _, segment in self._to_remove)]:
            segment.close()

    # Getting shorter

    def advance_log_start(self, offset: int) -> bool:
        """Let the log begin at `offset`; whether that was news. The files go with the next retention."""
        if offset > self.high_watermark:
            raise LogError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.partition}: the log cannot start at {offset}, beyond the high watermark {self.high_watermark}",
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)
        self.producers.on_log_start(offset)
        return True

    @_reports_failures
    def delete_old_segments(self, now_ms: int, *, at_most: int | None = None) -> int:
        """Delete what the topic's settings do not keep any longer; how many segments went."""
        wanted = count_expired(
            self._segments, self.settings, self.log_start_offset, self.high_watermark, self.log_end_offset, now_ms
        )
        if at_most is not None:
            wanted = min(wanted, at_most)
        if not wanted:
            return 0
        if wanted == len(self._segments):
            # Even the last one has expired: it makes room for an empty one.
            self.roll(now_ms)
        doomed = self._segments[:wanted]
        self.log_start_offset = max(self.log_start_offset, self._segments[wanted].base_offset)
        # What stays must be there for certain before anything goes, or a crash could leave no segment to go on from.
        if self._synced_name_changes < self._name_changes:
            self._sync_names()
        for segment in doomed:
            # One after the other for certain: an older one that a crash brought back alone would make a hole. And the
            # data first: if it came back without its index of aborted transactions, their records would be shown.
            self._delete([segment], now_ms, after_data=self._sync_names)
        self.epochs.truncate_from_start(self.log_start_offset)
        self.producers.on_log_start(self.log_start_offset)
        self._save_epochs()
        return len(doomed)

    def _sync_names(self) -> None:
        changes = self._name_changes
        self._files.sync_directory(self.directory)
        self._synced_name_changes = max(self._synced_name_changes, changes)

    def _delete(self, segments: list[Segment], now_ms: int, *, after_data: Callable[[], None] = lambda: None) -> None:
        """First step: rename. Whoever reads the files at this moment goes on; the second step comes later."""
        due_ms = now_ms + self.settings.file_delete_delay_ms
        for segment in segments:
            try:
                segment.rename_suffix(DELETED_SUFFIX, after_data=after_data)
            finally:
                # Not before: a sync in another thread would count for names that it did not see.
                self._name_changes += 1
            self._segments.remove(segment)
            self._to_remove.append((due_ms, segment))
            self.snapshots.forget(segment.base_offset)

    def begin_removing(self, now_ms: int) -> Callable[[], None] | None:
        """Second step: what removes all that was renamed long enough ago, and may be called in another thread."""
        due = [segment for due_ms, segment in self._to_remove if due_ms <= now_ms]
        self._to_remove = [each for each in self._to_remove if each[0] > now_ms]

        def remove() -> None:
            try:
                for segment in due:
                    segment.remove()
            except OSError as failure:
                raise self.failed(failure) from failure

        return remove if due else None

    def remove_deleted(self, now_ms: int) -> None:
        remove = self.begin_removing(now_ms)
        if remove is not None:
            remove()

    @_reports_failures
    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Forget everything from `offset` on, as a follower does that has left the leader's history.

        The checkpoint of recovery points must not name a higher offset any more: see `LogManager.truncate`. Segments go
        from the last backwards, so that a killed process leaves no hole.
        """
        if offset >= self.log_end_offset:
            # An epoch in which this node led and wrote nothing may stand at the end, and the leader does not know it.
            if self.epochs.truncate_from_end(self.log_end_offset):
                self._save_epochs()
            return
        if offset < self._segments[0].base_offset:
            self.start_anew_at(offset, now_ms)
            return
        self._delete([segment for segment in reversed(self._segments) if segment.base_offset > offset], now_ms)
        self._segments[-1].truncate_to(offset)
        # Batches go as a whole. If the log went on in the middle of one, recovery would see a hole before it.
        self._after_truncation(self._segments[-1].next_offset(), now_ms)
        # Or else what was cut off could come back behind what is appended next.
        self._sync_names()

    @_reports_failures
    def start_anew_at(self, offset: int, now_ms: int) -> None:
        """Forget everything, and go on at `offset`, as a follower does that has fallen behind what the leader has."""
        self._delete(list(self._segments), now_ms)
        self._segments.append(self.new_segment(offset))
        self.log_start_offset = offset
        # They wrote nothing of what will come, so nobody must be told that they end where it begins.
        self.epochs.clear()
        self._after_truncation(offset, now_ms)
        self._sync_names()

    def _after_truncation(self, offset: int, now_ms: int) -> None:
        self._truncation_count += 1
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.high_watermark = min(self.high_watermark, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.epochs.truncate_from_end(offset)
        self._save_epochs()
        self.reload_producers(now_ms)
        self.set_high_watermark(self.high_watermark)

    def reload_producers(self, now_ms: int) -> None:
        """Learn anew what the log says of its producers: from the newest snapshot, and the batches after it."""
        known_until = self.snapshots.restore(self.producers, self.log_start_offset, self.log_end_offset)
        self.producers.expire(now_ms, self.producer_expiration_ms)
        if known_until < self.log_end_offset:
            # Also of a batch that begins before the log does: its transaction may be open.
            for batch in self.batches(known_until):
                if batch.base_offset < self.log_end_offset:
                    self.producers.apply(batch)
        self.producers.on_high_watermark(self.high_watermark)

    def expire_producers(self, now_ms: int) -> int:
        return self.producers.expire(now_ms, self.producer_expiration_ms)

    # Compaction swaps segments; see `cleaner`.

    @_reports_failures
    def replace_segments(self, new: Segment, old: list[Segment], now_ms: int) -> None:
        """Put a cleaned segment, which carries the suffix `.cleaned` and is safe, in the place of its sources.

        Until its data is called `.swap`, loading forgets the attempt; from then on it completes the exchange. So each
        step is certain before the next begins.
        """
        place = self._segments.index(old[0])
        check(self._segments[place : place + len(old)] == old, f"{self.partition}: segments changed during cleaning")
        new.rename_suffix(SWAP_SUFFIX)
        self._sync_names()
        self._delete(old, now_ms)
        self._sync_names()
        new.rename_suffix("")
        self._segments.insert(place, new)
        self._sync_names()
