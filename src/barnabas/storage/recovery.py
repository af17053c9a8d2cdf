"""Opens a log from its directory: after a clean stop by looking, after any other by reading what may be torn.

What is relied on after an unclean stop: everything below the recovery point was flushed, so segments before it are
taken as they are. From there on every batch is read and checked, the log is cut at the first that is not whole, and
segments behind the cut are dropped: records after a hole must not be shown as if nothing were missing. Indexes of what
was read are written anew, and so is what is known of producers and leader epochs.
"""

from __future__ import annotations

import logging
import re
from random import Random
from typing import Final

from barnabas.base.errors import RemoteProtocolError
from barnabas.base.ids import TopicPartition
from barnabas.records.batch import BatchView
from barnabas.storage.checkpoints import read_topic_id
from barnabas.storage.errors import CorruptLogError
from barnabas.storage.files import FileSystem, directory_of, join
from barnabas.storage.indexes import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from barnabas.storage.leader_epochs import LeaderEpochs, load_leader_epochs, save_leader_epochs
from barnabas.storage.log import PartitionLog, aborted_entry
from barnabas.storage.producer_snapshot import ProducerSnapshots
from barnabas.storage.producer_state import ProducerStates
from barnabas.storage.segment import (
    ABORTED_SUFFIX,
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    Segment,
    segment_name,
)
from barnabas.storage.settings import TopicSettings

_log = logging.getLogger("barnabas.storage")

_INDEX_SUFFIXES: Final = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, ABORTED_SUFFIX)
# Strangers in the directory are left alone.
_SEGMENT_FILE: Final = re.compile(r"[0-9]{20}\.[a-z]+(\.(deleted|cleaned|swap))?")
DAY_MS: Final = 24 * 60 * 60 * 1000


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
) -> PartitionLog:
    """Open the log in `directory`, which is made if it is missing.

    `was_clean`: the node stopped in good order. `was_compacted`: also if the topic's policy says otherwise today.
    """
    if not files.exists(directory):
        files.make_directory(directory)
        files.sync_directory(directory_of(directory))
    _finish_what_was_begun(files, directory)
    names = files.names(directory)
    loader = _Loader(files, directory, partition, settings, log_start_offset, was_compacted=was_compacted)
    segments = loader.open_segments(names)
    epochs = load_leader_epochs(files, directory)
    snapshots = ProducerSnapshots(files, directory, names)
    producers = None
    if was_clean:
        loader.mend_indexes(segments)
    else:
        producers = loader.recover(segments, recovery_point, epochs, snapshots)
    if segments and segments[-1].next_offset() < log_start_offset:
        # Records were deleted up to an offset that the log, cut by a crash, does not reach any more.
        _log.warning("%s: the log ends before its start offset %d; it begins anew there", partition, log_start_offset)
        _drop(segments, 0)
        epochs.clear()
        producers = None
    if not segments:
        segments.append(loader.segment(log_start_offset, create=True))
    log_start_offset = max(log_start_offset, segments[0].base_offset)
    next_offset = segments[-1].next_offset()
    epochs.truncate_from_end(next_offset)
    epochs.truncate_from_start(log_start_offset)
    save_leader_epochs(files, directory, epochs)
    snapshots.remove_strays([segment.base_offset for segment in segments])
    log = PartitionLog(
        files,
        directory,
        partition,
        settings,
        topic_id=read_topic_id(files, directory),
        segments=segments,
        producers=producers or ProducerStates(partition),
        snapshots=snapshots,
        epochs=epochs,
        log_start_offset=log_start_offset,
        next_offset=next_offset,
        recovery_point=next_offset if was_clean else min(recovery_point, next_offset),
        producer_expiration_ms=producer_expiration_ms,
        randomness=randomness,
        now_ms=now_ms,
    )
    if producers is None:
        log.reload_producers(now_ms)
    return log


def _finish_what_was_begun(files: FileSystem, directory: str) -> None:
    """Bring deletions and cleanings that a stop interrupted to an end, or take them back.

    A `.cleaned` file was not finished and counts for nothing. A `.swap` of the data was finished, together with its
    indexes: it replaces the segments that it covers, of which some may be renamed already. If `.cleaned` files are left
    beside `.swap` ones, the same cleaning had more to give: then only what lies before them is finished.
    """
    names = [name for name in files.names(directory) if _SEGMENT_FILE.fullmatch(name) or name.endswith(".tmp")]
    unfinished = [_offset_of(name) for name in names if name.endswith(CLEANED_SUFFIX)]
    first_unfinished = min(unfinished, default=None)
    for name in names:
        path = join(directory, name)
        is_unfinished_swap = (
            name.endswith(SWAP_SUFFIX) and first_unfinished is not None and _offset_of(name) >= first_unfinished
        )
        if is_unfinished_swap or name.endswith((CLEANED_SUFFIX, DELETED_SUFFIX, ".tmp")):
            files.remove(path)
    for name in names:
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX) and files.exists(join(directory, name)):
            _complete_swap(files, directory, name)
    for name in names:
        if name.endswith(SWAP_SUFFIX) and files.exists(join(directory, name)):
            # An index whose data has its final name already.
            files.rename(join(directory, name), join(directory, name.removesuffix(SWAP_SUFFIX)))
    if not all(files.exists(join(directory, name)) for name in names):
        files.sync_directory(directory)


def _complete_swap(files: FileSystem, directory: str, name: str) -> None:
    base_offset = _offset_of(name)
    swap = Segment(
        files, directory, base_offset, index_bytes=0, index_interval_bytes=0, create=False, suffix=SWAP_SUFFIX
    )
    end_offset = base_offset
    for entry in swap.entries():
        end_offset = entry.next_offset
    swap.close()
    for other in files.names(directory):
        if not _SEGMENT_FILE.fullmatch(other):
            continue
        if other.endswith(LOG_SUFFIX) and base_offset <= _offset_of(other) < max(end_offset, base_offset + 1):
            for suffix in (LOG_SUFFIX, *_INDEX_SUFFIXES):
                path = join(directory, segment_name(_offset_of(other)) + suffix)
                if files.exists(path):
                    files.remove(path)
    for suffix in (*_INDEX_SUFFIXES, LOG_SUFFIX):
        path = join(directory, segment_name(base_offset) + suffix)
        if files.exists(path + SWAP_SUFFIX):
            files.rename(path + SWAP_SUFFIX, path)


def _offset_of(name: str) -> int:
    return int(name.partition(".")[0])


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
        *,
        was_compacted: bool,
    ) -> None:
        # Whether offsets may be missing for good: by what is known, or by what is seen in the batches.
        self._has_gaps = was_compacted or "compact" in settings.cleanup_policy
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
        names = [name for name in names if _SEGMENT_FILE.fullmatch(name)]
        data = {name.removesuffix(LOG_SUFFIX) for name in names if name.endswith(LOG_SUFFIX)}
        for name in names:
            stem, _, suffix = name.partition(".")
            if f".{suffix}" in _INDEX_SUFFIXES and stem not in data:
                self._files.remove(join(self._directory, name))
        return [self.segment(int(stem)) for stem in sorted(data)]

    def mend_indexes(self, segments: list[Segment]) -> None:
        """Make anew the indexes that are missing or cannot be right, of segments that were flushed."""
        for segment in segments:
            try:
                segment.aborted.sanity_check(segment.base_offset)
            except CorruptLogError as problem:
                _log.warning("%s; it is made anew", problem)
                self._rebuild_aborted(segments, segment)
            sizes = {segment.offset_index.path: OFFSET_ENTRY_BYTES, segment.time_index.path: TIME_ENTRY_BYTES}
            try:
                for path, entry_bytes in sizes.items():
                    if not self._files.exists(path):
                        raise CorruptLogError(path, 0, "an index is missing")
                    if self._files.size(path) % entry_bytes:
                        raise CorruptLogError(path, 0, "an index does not end with a whole entry")
                if segment is segments[-1]:
                    segment.offset_index.check(segment.size_bytes)
                    segment.time_index.check()
            except CorruptLogError as problem:
                _log.warning("%s; the indexes are made anew", problem)
                segment.begin_rebuild()
                for position, entry in segment.positioned_entries():
                    segment.index_entry(position, entry)
                segment.finish()
                segment.write_indexes(sync=True)

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
            next_offset = self._recover_segment(segments[place], epochs, producers)
            if place + 1 < len(segments):
                if next_offset is None or self._is_hole(next_offset, segments[place + 1].base_offset):
                    _log.warning("%s: segments after a hole are dropped: %s", self._partition, segments[place + 1 :])
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

    def _recover_segment(self, segment: Segment, epochs: LeaderEpochs, producers: ProducerStates) -> int | None:
        """Check every batch and make the indexes anew. Returns where the segment ends, None if it had to be cut."""
        segment.begin_rebuild()
        segment.aborted.clear()
        next_offset, good_bytes, reason = segment.base_offset, 0, ""
        try:
            for position, entry in segment.positioned_entries():
                entry.check_crc()
                if isinstance(entry, BatchView):
                    if entry.base_offset < next_offset:
                        reason = f"offset {entry.base_offset} comes after offset {next_offset - 1}"
                        break
                    if not segment.can_hold(entry.last_offset):
                        reason = f"offset {entry.last_offset} is too far from the segment's first"
                        break
                    if entry.base_offset > next_offset or entry.record_count <= entry.last_offset_delta:
                        self._has_gaps = True
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
            lost_bytes = segment.size_bytes - good_bytes
            _log.warning("%s: cut at byte %d, %d bytes lost: %s", segment.file.path, good_bytes, lost_bytes, reason)
            segment.file.truncate(good_bytes)
            # For good: whole batches behind the torn one must not come back behind what is appended next.
            segment.file.sync()
            segment.size_bytes = good_bytes
        segment.finish()
        return None if was_cut else next_offset


def _end_of(segments: list[Segment], place: int) -> int:
    """Below which offset a segment's records lie; without a bound for the last one."""
    return segments[place + 1].base_offset if place + 1 < len(segments) else 2**63
