"""Opens a log from its directory: after a clean stop by looking, after any other by reading what may be torn.

Before anything is changed there is a verdict on what lies below the recovery point (`damage`): that was flushed, and if
it is not there the log is not opened. Segments before the recovery point are taken as they are. From there on every
batch is read and checked, the log is cut at the first that is not whole, and segments behind the cut are dropped:
records after a hole must not be shown as if nothing were missing. Indexes of what was read are written anew, and so is
what is known of producers and leader epochs.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from barnabas.base.errors import RemoteProtocolError
from barnabas.base.ids import TopicPartition
from barnabas.base.log_context import logger
from barnabas.records.batch import BatchView
from barnabas.storage.checkpoints import read_topic_id
from barnabas.storage.damage import DamagedLogError, LogFacts, verdict
from barnabas.storage.errors import CorruptLogError
from barnabas.storage.files import FileSystem, directory_of, join
from barnabas.storage.indexes import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from barnabas.storage.inspection import inspect_log
from barnabas.storage.layout import INDEX_SUFFIXES, data_offsets, is_taken_back, offset_of, segment_files
from barnabas.storage.leader_epochs import LeaderEpochs, load_leader_epochs, save_leader_epochs
from barnabas.storage.log import PartitionLog, aborted_entry
from barnabas.storage.producer_snapshot import ProducerSnapshots
from barnabas.storage.producer_state import ProducerStates
from barnabas.storage.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    BatchPlace,
    Entry,
    Segment,
    segment_name,
)
from barnabas.storage.settings import TopicSettings

_log = logger("barnabas.storage")

DAY_MS: Final = 24 * 60 * 60 * 1000
# How much of a segment may be without an entry in its index: it is begun anew whenever the segment is opened.
_MOST_INTERVALS: Final = 64


@dataclass(slots=True)
class RecoveryReport:
    """What was done to open a log, or several, after a stop that was not clean."""

    segments_read: int = 0
    bytes_read: int = 0
    logs_cut: int = 0
    bytes_cut: int = 0

    def note_cut(self, size_bytes: int) -> None:
        """Of one log: it counts as cut once, in whatever pieces."""
        self.logs_cut = 1
        self.bytes_cut += size_bytes

    def add(self, other: RecoveryReport) -> None:
        self.segments_read += other.segments_read
        self.bytes_read += other.bytes_read
        self.logs_cut += other.logs_cut
        self.bytes_cut += other.bytes_cut

    def __str__(self) -> str:
        read = f"{self.segments_read:,} segments with {self.bytes_read:,} bytes were read"
        if not self.logs_cut:
            return f"{read}, nothing had to be cut"
        return f"{read}, {self.bytes_cut:,} bytes were cut from {self.logs_cut:,} logs"


def load_log(
    files: FileSystem,
    directory: str,
    partition: TopicPartition,
    settings: TopicSettings,
    *,
    was_clean: bool,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    was_compacted: bool = False,
    now_ms: int,
    randomness: Random,
    producer_expiration_ms: int = DAY_MS,
    report: RecoveryReport | None = None,
) -> PartitionLog:
    """Open the log in `directory`, which is made if it is missing.

    `was_clean`: the node stopped in good order. `was_compacted`: also if the topic's policy says otherwise today.
    `report` is filled in with what recovery does. Raises `DamagedLogError`, and changes nothing, if records below
    `recovery_point` are not there.
    """
    may_have_gaps = was_compacted or "compact" in settings.cleanup_policy
    names = files.names(directory) if files.exists(directory) else None
    facts, opened = _inspected(
        files,
        directory,
        partition,
        settings,
        names,
        was_clean=was_clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        may_have_gaps=may_have_gaps,
    )
    topic_id = read_topic_id(files, directory)
    epochs = load_leader_epochs(files, directory)
    if names is None:
        files.make_directory(directory)
        files.sync_directory(directory_of(directory))
        names = []
    elif _finish_what_was_begun(files, directory, names):
        names = files.names(directory)
    report = report or RecoveryReport()
    loader = _Loader(files, directory, partition, settings, log_start_offset, report, may_have_gaps=may_have_gaps)
    loader.wrong_indexes = {each.base_offset for each in facts.segments or () if each.is_index_wrong}
    loader.opened = opened
    loader.checked_bytes = {each.base_offset: each.checked_bytes for each in facts.segments or ()}
    segments = loader.open_segments(names)
    snapshots = ProducerSnapshots(files, directory, names)
    producers = None
    if was_clean:
        loader.mend_indexes(segments)
    else:
        producers = loader.recover(segments, recovery_point, epochs, snapshots)
    last = segments[-1].last_entry() if segments else None
    if segments and _end_after(segments[-1], last) < log_start_offset:
        # Records were deleted up to an offset that the log, cut by a crash, does not reach any more.
        _log.warning("%s: the log ends before its start offset %d; it begins anew there", partition, log_start_offset)
        _drop(segments, 0)
        epochs.clear()
        producers = last = None
    if not segments:
        segments.append(loader.segment(log_start_offset, create=True))
    log_start_offset = max(log_start_offset, segments[0].base_offset)
    next_offset = _end_after(segments[-1], last)
    _tell_of_missing_end(partition, next_offset, [*snapshots.offsets, *loader.orphans])
    epochs.truncate_from_end(next_offset)
    epochs.truncate_from_start(log_start_offset)
    loader.mend_epochs(segments, epochs, last)
    save_leader_epochs(files, directory, epochs)
    if was_clean and next_offset > log_start_offset and next_offset not in snapshots.offsets:
        _log.warning("%s: no producer state was saved at the end, %d; the batches tell it", partition, next_offset)
    snapshots.remove_strays([segment.base_offset for segment in segments])
    log = PartitionLog(
        files,
        directory,
        partition,
        settings,
        topic_id=topic_id,
        segments=segments,
        producers=producers or ProducerStates(partition),
        snapshots=snapshots,
        epochs=epochs,
        log_start_offset=log_start_offset,
        log_end_offset=next_offset,
        recovery_point=next_offset if was_clean else min(recovery_point, next_offset),
        producer_expiration_ms=producer_expiration_ms,
        randomness=randomness,
        now_ms=now_ms,
    )
    if producers is None:
        log.reload_producers(now_ms)
    return log


def _inspected(
    files: FileSystem,
    directory: str,
    partition: TopicPartition,
    settings: TopicSettings,
    names: list[str] | None,
    *,
    was_clean: bool,
    recovery_point: int,
    log_start_offset: int,
    may_have_gaps: bool,
) -> tuple[LogFacts, dict[int, Segment]]:
    """What can be seen of a log that is not damaged, and the segments that were opened for that."""
    opened: dict[int, Segment] = {}
    try:
        facts = inspect_log(
            files,
            directory,
            was_clean=was_clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            may_have_gaps=may_have_gaps,
            names=names,
            opened=opened,
            settings=settings,
        )
        damage = verdict(facts)
        if damage is not None:
            raise DamagedLogError(partition, damage)
    except BaseException:
        for segment in opened.values():
            segment.close()
        raise
    return facts, opened


def _tell_of_missing_end(partition: TopicPartition, next_offset: int, reached: list[int]) -> None:
    """`reached` are offsets at which files say that the log has been."""
    highest = max(reached, default=0)
    if highest > next_offset:
        _log.warning(
            "%s: the log ends at offset %d, but it has been at %d: what was not flushed is lost",
            partition,
            next_offset,
            highest,
        )


def _finish_what_was_begun(files: FileSystem, directory: str, found: list[str]) -> bool:
    """Bring deletions and cleanings that a stop interrupted to an end, or take them back; whether there were any.

    A `.cleaned` file was not finished and counts for nothing. A `.swap` of the data was finished, together with its
    indexes: it replaces the segments that it covers, of which some may be renamed already. If `.cleaned` files are left
    beside `.swap` ones, the same cleaning had more to give: then only what lies before them is finished.
    """
    names = [name for name in found if name.endswith((CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX, ".tmp"))]
    if not names:
        return False
    segment_names = segment_files(found)
    names = [*segment_files(names), *(name for name in names if name.endswith(".tmp"))]
    for name in names:
        path = join(directory, name)
        if is_taken_back(name, segment_names) or name.endswith((CLEANED_SUFFIX, DELETED_SUFFIX, ".tmp")):
            files.remove(path)
    for name in names:
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX) and files.exists(join(directory, name)):
            _complete_swap(files, directory, name)
    for name in names:
        if name.endswith(SWAP_SUFFIX) and files.exists(join(directory, name)):
            # An index whose data has its final name already.
            files.rename(join(directory, name), join(directory, name.removesuffix(SWAP_SUFFIX)))
    if names:
        files.sync_directory(directory)
    return bool(names)


def _complete_swap(files: FileSystem, directory: str, name: str) -> None:
    base_offset = offset_of(name)
    swap = Segment(
        files, directory, base_offset, index_bytes=0, index_interval_bytes=0, create=False, suffix=SWAP_SUFFIX
    )
    end_offset = base_offset
    for entry in swap.entries():
        end_offset = entry.next_offset
    swap.close()
    for other in sorted(data_offsets(segment_files(files.names(directory)))):
        if base_offset <= other < max(end_offset, base_offset + 1):
            for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES):
                path = join(directory, segment_name(other) + suffix)
                if files.exists(path):
                    files.remove(path)
    # What was replaced is gone for certain before the swap loses its name: nothing else would explain what is left.
    files.sync_directory(directory)
    for suffix in (*INDEX_SUFFIXES, LOG_SUFFIX):
        path = join(directory, segment_name(base_offset) + suffix)
        if files.exists(path + SWAP_SUFFIX):
            files.rename(path + SWAP_SUFFIX, path)


def _drop(segments: list[Segment], from_place: int) -> None:
    for segment in segments[from_place:]:
        segment.remove()
    del segments[from_place:]


class _Loader:
    def __init__(
        self,
        files: FileSystem,
        directory: str,
        partition: TopicPartition,
        settings: TopicSettings,
        log_start_offset: int,
        report: RecoveryReport,
        *,
        may_have_gaps: bool,
    ) -> None:
        self._report = report
        # Whether offsets may be missing for good: by what is known, or by what is seen in the batches.
        self._has_gaps = may_have_gaps
        #: The first offsets of segments whose index was found to be wrong.
        self.wrong_indexes: set[int] = set()
        #: Segments that were opened for the verdict, by first offset.
        self.opened: dict[int, Segment] = {}
        #: By first offset, how much of a segment was read for the verdict, and is known to be intact.
        self.checked_bytes: dict[int, int] = {}
        #: The first offsets of segments of which only indexes were left.
        self.orphans: list[int] = []
        self._files = files
        self._directory = directory
        self._partition = partition
        self._settings = settings
        self._log_start_offset = log_start_offset

    def segment(self, base_offset: int, *, create: bool = False) -> Segment:
        return Segment(
            self._files,
            self._directory,
            base_offset,
            index_bytes=self._settings.segment_index_bytes,
            index_interval_bytes=self._settings.index_interval_bytes,
            create=create,
        )

    def open_segments(self, names: list[str]) -> list[Segment]:
        """All segments, in order. Indexes without data are removed."""
        names = segment_files(names)
        data = data_offsets(names)
        orphans = [name for name in names if name.endswith(INDEX_SUFFIXES) and offset_of(name) not in data]
        for name in orphans:
            self._files.remove(join(self._directory, name))
        self.orphans = sorted({offset_of(name) for name in orphans})
        opened = self.opened
        return [opened[offset] if offset in opened else self.segment(offset) for offset in sorted(data)]

    def mend_indexes(self, segments: list[Segment]) -> None:
        """Make anew the indexes that are missing or cannot be right, of segments that were flushed."""
        for segment in segments:
            try:
                segment.aborted.sanity_check(segment.base_offset)
            except CorruptLogError as problem:
                _log.warning("%s; it is made anew", problem)
                self._rebuild_aborted(segments, segment)
            try:
                self._check_indexes(segment, is_last=segment is segments[-1])
            except CorruptLogError as problem:
                segment.rebuild_indexes(str(problem))

    def _check_indexes(self, segment: Segment, *, is_last: bool) -> None:
        sizes = {segment.offset_index.path: OFFSET_ENTRY_BYTES, segment.time_index.path: TIME_ENTRY_BYTES}
        for path, entry_bytes in sizes.items():
            try:
                size_bytes = self._files.size(path)
            except FileNotFoundError:
                raise CorruptLogError(path, 0, "an index is missing") from None
            if size_bytes % entry_bytes:
                raise CorruptLogError(path, 0, "an index does not end with a whole entry")
        index = segment.offset_index
        if segment.base_offset in self.wrong_indexes:
            raise CorruptLogError(index.path, 0, "an index points where no batch begins")
        unindexed_bytes = _MOST_INTERVALS * self._settings.index_interval_bytes + self._settings.max_message_bytes
        if segment.size_bytes > unindexed_bytes and not self._files.size(index.path):
            # Right, but each reader would look through the whole segment.
            raise CorruptLogError(index.path, 0, "an index is empty")
        if is_last:
            index.check(segment.size_bytes)
            segment.time_index.check()

    def mend_epochs(self, segments: list[Segment], epochs: LeaderEpochs, last: Entry | None) -> None:
        """Learn the epochs anew from all batches if the file contradicts the first or the last of them."""
        first = segments[0].header_at(0)
        if first is not None and last is not None and first.base_offset > last.last_offset:
            first = None  # not of the log, whatever it is: who reads it will meet it
        if self._agrees(first, epochs) and (not isinstance(last, BatchView) or self._agrees(last, epochs)):
            return
        _log.warning("%s: the file of leader epochs contradicts the batches; it is made anew", self._partition)
        epochs.clear()
        start_offset = max(self._log_start_offset, segments[0].base_offset)
        for segment in segments:
            for batch in segment.entries():
                if isinstance(batch, BatchView) and batch.leader_epoch >= 0 and batch.last_offset >= start_offset:
                    epochs.assign(batch.leader_epoch, max(batch.base_offset, start_offset))
        epochs.truncate_from_start(start_offset)

    def _agrees(self, batch: BatchPlace | BatchView | None, epochs: LeaderEpochs) -> bool:
        return (
            batch is None
            or batch.leader_epoch < 0
            or batch.last_offset < self._log_start_offset
            or batch.leader_epoch == epochs.epoch_for_offset(max(batch.base_offset, self._log_start_offset))
        )

    def _rebuild_aborted(self, segments: list[Segment], damaged: Segment) -> None:
        """Find the aborted transactions of a segment again, from all batches up to its end."""
        producers = ProducerStates(self._partition)
        damaged.aborted.clear()
        for segment in segments[: segments.index(damaged) + 1]:
            for entry in segment.entries():
                ended = producers.apply(entry) if isinstance(entry, BatchView) else None
                if ended is not None and ended.is_aborted and segment is damaged:
                    damaged.aborted.append(aborted_entry(ended))

    def recover(
        self, segments: list[Segment], recovery_point: int, epochs: LeaderEpochs, snapshots: ProducerSnapshots
    ) -> ProducerStates | None:
        """Read what was not flushed, cut it where it is torn, drop what comes after the cut.

        What all this says of producers is returned, unless there is no segment.
        """
        first = next(
            (place for place in range(len(segments)) if _end_of(segments, place) > recovery_point), len(segments)
        )
        self.mend_indexes(segments[:first])
        if first == len(segments):
            return None
        # What the batches say replaces what the file says of them: it may know epochs whose records are lost.
        epochs.truncate_from_end(segments[first].base_offset)
        producers = self._producers_before(segments, first, snapshots)
        for place in range(first, len(segments)):
            # Before its index is made anew.
            known_offset = _indexed_behind(segments[place])
            next_offset, was_cut = self._recover_segment(segments[place], epochs, producers, _end_of(segments, place))
            if place + 1 < len(segments):
                is_short = next_offset <= known_offset < segments[place + 1].base_offset
                if was_cut or is_short or self._is_hole(next_offset, segments[place + 1].base_offset):
                    dropped = segments[place + 1 :]
                    dropped_bytes = sum(segment.size_bytes for segment in dropped)
                    self._report.note_cut(dropped_bytes)
                    _log.warning(
                        "%s: %d segments behind offset %d, where records are missing, are dropped: offsets %d to at "
                        "least %d, %d bytes",
                        self._partition,
                        len(dropped),
                        next_offset,
                        dropped[0].base_offset,
                        max(map(_told_end, dropped)) - 1,
                        dropped_bytes,
                    )
                    _drop(segments, place + 1)
                    self._files.sync_directory(self._directory)
                    break
                snapshots.take(producers, segments[place + 1].base_offset)
        return producers

    def _is_hole(self, end_offset: int, next_base_offset: int) -> bool:
        """Whether records are missing: a segment begins where the one before it ends, unless that was cleaned."""
        return end_offset < next_base_offset and not self._has_gaps

    def _producers_before(self, segments: list[Segment], first: int, snapshots: ProducerSnapshots) -> ProducerStates:
        """What was known of producers where the first segment that must be read begins."""
        producers = ProducerStates(self._partition)
        end_offset = segments[first].base_offset
        start_offset = snapshots.restore(producers, self._log_start_offset, end_offset)
        for segment in segments[:first]:
            for entry in segment.entries() if _end_of(segments, segments.index(segment)) > start_offset else ():
                if isinstance(entry, BatchView) and entry.last_offset >= start_offset:
                    producers.apply(entry)
        return producers

    def _recover_segment(
        self, segment: Segment, epochs: LeaderEpochs, producers: ProducerStates, bound: int
    ) -> tuple[int, bool]:
        """Check every batch of a segment after which the next begins at `bound`, and make the indexes anew. Returns
        where the segment ends, and whether it had to be cut."""
        self._report.segments_read += 1
        self._report.bytes_read += segment.size_bytes
        segment.begin_rebuild()
        segment.aborted.clear()
        next_offset, good_bytes, reason = segment.base_offset, 0, ""
        checked_bytes, limit = self.checked_bytes.get(segment.base_offset, 0), segment.offset_limit(bound)
        try:
            for position, entry in segment.positioned_entries():
                if position >= checked_bytes:
                    entry.check_crc()
                if isinstance(entry, BatchView):
                    # Most do; only of others must it be said what they are.
                    if not entry.follows(next_offset, limit):
                        reason = self._misplaced(segment, position, entry, next_offset, bound)
                        if reason:
                            break
                    if entry.leader_epoch != epochs.latest_epoch and entry.leader_epoch >= 0:
                        epochs.assign(entry.leader_epoch, entry.base_offset)
                    if entry.producer_id >= 0:
                        ended = producers.apply(entry)
                        if ended is not None and ended.is_aborted:
                            segment.aborted.append(aborted_entry(ended))
                segment.index_entry(position, entry)
                next_offset, good_bytes = entry.next_offset, position + entry.size_bytes
        except (CorruptLogError, RemoteProtocolError) as problem:
            reason = str(problem)
        was_cut = good_bytes < segment.size_bytes
        if was_cut:
            _log.warning(
                "%s: cut at byte %d: offsets %d to at least %d, %d bytes, are lost: %s",
                segment.file.path,
                good_bytes,
                next_offset,
                max(next_offset, _told_end(segment, good_bytes) - 1),
                segment.size_bytes - good_bytes,
                reason,
            )
            self._report.note_cut(segment.size_bytes - good_bytes)
            segment.file.truncate(good_bytes)
            # For good: whole batches behind the torn one must not come back behind what is appended next.
            segment.file.sync()
            segment.size_bytes = good_bytes
        segment.finish()
        return next_offset, was_cut

    def _misplaced(self, segment: Segment, position: int, batch: BatchView, next_offset: int, bound: int) -> str:
        problem = segment.misplaced(position, batch, next_offset, bound)
        if problem:
            return problem
        if batch.base_offset > next_offset and not self._has_gaps:
            _log.warning(
                "%s, byte %d: offsets %d to %d are missing, as if they had been compacted away",
                segment.file.path,
                position,
                next_offset,
                batch.base_offset - 1,
            )
        is_sparse = batch.record_count <= batch.last_offset_delta
        # A batch without records and producer stands for a loss that somebody has accepted.
        if batch.base_offset > next_offset or (is_sparse and (batch.record_count or batch.producer_id >= 0)):
            self._has_gaps = True
        return ""


def _indexed_behind(segment: Segment) -> int:
    """The last offset that the index knows of, if it lies behind the end of the data: that was longer; else -1."""
    try:
        entry = segment.offset_index.peek_last_entry()
    except (FileNotFoundError, CorruptLogError):
        return -1
    return -1 if entry is None or entry.position < max(segment.size_bytes, 1) else entry.offset


def _told_end(segment: Segment, position: int = 0) -> int:
    """Up to where the headers of the batches from a position on say that they reach; nobody has checked them."""
    end_offset = segment.base_offset
    try:
        for entry in segment.entries(position):
            if not segment.can_hold(entry.last_offset):
                break
            end_offset = max(end_offset, entry.next_offset)
    except (CorruptLogError, RemoteProtocolError):
        pass
    return end_offset


def _end_after(segment: Segment, last: Entry | None) -> int:
    return segment.base_offset if last is None else last.next_offset


def _end_of(segments: list[Segment], place: int) -> int:
    """Below which offset a segment's records lie; without a bound for the last one."""
    return segments[place + 1].base_offset if place + 1 < len(segments) else 2**63
