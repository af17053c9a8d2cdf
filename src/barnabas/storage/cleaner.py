"""Compaction of logs: which log is next, writing cleaned segments beside the old ones, and putting them in their place.

Reading and writing happen away from the event loop and touch only segments that are not appended to any more. The swap
happens on it. If the old segments have changed in the meantime (retention, truncation), the new ones are thrown away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError, RemoteProtocolError
from barnabas.base.ids import TopicPartition
from barnabas.base.log_context import logger
from barnabas.base.runtime import Runtime
from barnabas.storage.aborted import AbortedTransaction
from barnabas.storage.compaction import BatchCleaner, CleaningStats, Entry, KeyOffsets
from barnabas.storage.compaction_plan import CleanableSegment, CleaningPlan, group_segments, plan_cleaning
from barnabas.storage.directories import LogDirectory
from barnabas.storage.errors import CorruptLogError, LogDirectoryError, LogError
from barnabas.storage.log import PartitionLog
from barnabas.storage.producer_state import LastBatch
from barnabas.storage.segment import CLEANED_SUFFIX, Segment

_log = logger("barnabas.storage.cleaner")

_MAX_SEGMENT_BYTES: Final = 2**31 - 1
_NO_LIMIT_MS: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerOptions:
    """The names are those of the broker's settings."""

    log_cleaner_dedupe_buffer_size: int = 128 * 1024 * 1024
    log_cleaner_io_buffer_load_factor: float = 0.9
    log_cleaner_backoff_ms: int = 15_000

    @property
    def key_limit_bytes(self) -> int:
        return int(self.log_cleaner_dedupe_buffer_size * self.log_cleaner_io_buffer_load_factor)


class CleanedGroup(NamedTuple):
    """A segment with the suffix `.cleaned`, safe on disk, and those that it was made from."""

    new: Segment
    old: list[Segment]


class CleaningRound(NamedTuple):
    """What one round of compaction made of a log. Up to `end_offset` the log is clean once all groups are in place."""

    groups: list[CleanedGroup]
    end_offset: int
    stats: CleaningStats


class CleaningJob:
    """One round for one log. Made on the event loop, `run` away from it, `apply_to` back on it."""

    def __init__(self, log: PartitionLog, plan: CleaningPlan, key_limit_bytes: int, now_ms: int) -> None:
        self._plan = plan
        self._key_limit_bytes = key_limit_bytes
        self._now_ms = now_ms
        self._partition = log.partition
        self._settings = log.settings
        self._new_segment: Callable[[int], Segment] = lambda offset: log.new_segment(offset, suffix=CLEANED_SUFFIX)
        # Everything that may change while the job runs is taken now.
        self._segments = log.segments[:-1]
        self._seen = {(id(segment), segment.cut_count) for segment in self._segments}
        self._facts = {facts.base_offset: facts for facts in segment_facts(log)}
        self._aborted: list[AbortedTransaction] = [
            entry for segment in log.segments for entry in segment.aborted.entries
        ]
        self._last_batches: Mapping[int, LastBatch] = log.producers.last_batches()

    def run(self) -> CleaningRound:
        """Read the dirty part for its keys, then write every segment up to there anew without what they supersede."""
        keys = self._collect_keys()
        cleaner = BatchCleaner(
            keys,
            end_offset=self._plan.first_uncleanable_offset,
            now_ms=self._now_ms,
            delete_retention_ms=self._settings.delete_retention_ms,
            last_batches=self._last_batches,
            aborted=self._aborted,
        )
        by_offset = {segment.base_offset: segment for segment in self._segments}
        groups: list[CleanedGroup] = []
        try:
            for group in group_segments(
                [self._facts[offset] for offset in by_offset],
                end_offset=keys.end_offset,
                first_uncleanable_offset=self._plan.first_uncleanable_offset,
                max_segment_bytes=self._settings.segment_limit_bytes,
                max_index_bytes=self._settings.segment_index_bytes,
            ):
                old = [by_offset[facts.base_offset] for facts in group]
                groups.append(CleanedGroup(self._write_group(old, cleaner), old))
        except BaseException:
            for each in groups:
                each.new.remove()
            raise
        return CleaningRound(groups, keys.end_offset, cleaner.stats)

    def _collect_keys(self) -> KeyOffsets:
        first_dirty, end = self._plan.first_dirty_offset, self._plan.first_uncleanable_offset
        keys = KeyOffsets(first_dirty, self._key_limit_bytes, self._aborted)
        dirty = [segment for segment in self._segments if segment.base_offset < end]
        for segment, next_base in zip(dirty, [*(segment.base_offset for segment in dirty[1:]), end], strict=True):
            if next_base <= first_dirty:
                continue
            start = segment.locate(first_dirty)
            if start is not None and not self._add_keys(keys, segment, start.position):
                break
            keys.pass_to(next_base)
        return keys

    def _add_keys(self, keys: KeyOffsets, segment: Segment, position: int) -> bool:
        with _naming(segment):
            return keys.add_all(segment.entries(position))

    def _write_group(self, old: list[Segment], cleaner: BatchCleaner) -> Segment:
        new = self._new_segment(old[0].base_offset)
        try:
            for segment in old:
                with _naming(segment):
                    self._copy(cleaner, segment, new)
            for entry in cleaner.take_aborted():
                new.aborted.append(entry)
            new.finish()
            new.flush()
        except BaseException:
            new.remove()
            raise
        return new

    def _copy(self, cleaner: BatchCleaner, old: Segment, new: Segment) -> None:
        entry: Entry
        for entry in cleaner.clean(old.entries()):
            if new.size_bytes + entry.size_bytes > _MAX_SEGMENT_BYTES:
                raise LogError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"{self._partition}: a cleaned segment would exceed 2 GiB"
                )
            new.append(entry.data, entry.last_offset, entry.max_timestamp_ms)

    def is_current(self, log: PartitionLog) -> bool:
        """Whether the log has all segments that it had when the job was made, as they were."""
        return self._seen <= {(id(segment), segment.cut_count) for segment in log.segments[:-1]}

    def apply_to(self, log: PartitionLog, cleaned: CleaningRound, now_ms: int) -> bool:
        """Put the new segments in the place of the old ones; false if the log has changed, and nothing was done."""
        present = {(id(segment), segment.cut_count) for segment in log.segments[:-1]} & self._seen
        if any((id(segment), segment.cut_count) not in present for group in cleaned.groups for segment in group.old):
            for group in cleaned.groups:
                group.new.remove()
            return False
        for group in cleaned.groups:
            log.replace_segments(group.new, group.old, now_ms)
        return True


@contextmanager
def _naming(segment: Segment) -> Iterator[None]:
    """What is wrong with a batch is wrong with the file that holds it."""
    try:
        yield
    except RemoteProtocolError as problem:
        raise CorruptLogError(segment.file.path, 0, f"cannot be compacted: {problem}") from None


def segment_facts(log: PartitionLog) -> list[CleanableSegment]:
    wants_first_timestamp = log.settings.max_compaction_lag_ms < _NO_LIMIT_MS
    return [
        CleanableSegment(
            segment.base_offset,
            segment.size_bytes,
            segment.offset_index.size_bytes,
            segment.time_index.size_bytes,
            segment.first_timestamp_ms if wants_first_timestamp else -1,
            segment.largest_timestamp_ms,
        )
        for segment in log.segments
    ]


def plan_for(log: PartitionLog, checkpoint_offset: int | None, now_ms: int) -> CleaningPlan:
    return plan_cleaning(
        segment_facts(log),
        checkpoint_offset=checkpoint_offset,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        last_stable_offset=log.last_stable_offset,
        now_ms=now_ms,
        min_compaction_lag_ms=log.settings.min_compaction_lag_ms,
        max_compaction_lag_ms=log.settings.max_compaction_lag_ms,
        min_cleanable_dirty_ratio=log.settings.min_cleanable_dirty_ratio,
    )


class LogCleaner:
    """Looks for the dirtiest compacted log again and again, and cleans it."""

    def __init__(self, runtime: Runtime, options: CleanerOptions | None = None) -> None:
        self._runtime = runtime
        self.options = options or CleanerOptions()
        #: Logs that could not be compacted, and why. They stay as they are and can be read.
        self.uncleanable: dict[TopicPartition, BarnabasError] = {}
        #: When logs were looked at last, how many were compacted, how long the last one took, and the dirtiest of the
        #: last look, as a share of its bytes.
        self.last_look_ms: int | None = None
        self.cleaned_count = 0
        self.last_cleaning_ms = 0
        self.largest_dirty_ratio = 0.0

    def forget(self, partition: TopicPartition) -> None:
        """A log is gone; another one of the same name begins without its faults."""
        self.uncleanable.pop(partition, None)

    async def clean_dirtiest(self, directory: LogDirectory) -> bool:
        """Compact the log of a directory that needs it most; false if none does."""
        now_ms, logs = self._runtime.clock.now_ms(), directory.logs
        plans = {
            partition: plan_for(log, directory.cleaner_offsets.get(partition), now_ms)
            for partition, log in logs.items()
            if log.is_compacted and len(log.segments) > 1 and partition not in self.uncleanable
        }
        self.last_look_ms = self._runtime.clock.monotonic_ms()
        self.largest_dirty_ratio = max((plan.dirty_ratio for plan in plans.values()), default=0.0)
        due = [partition for partition, plan in plans.items() if plan.is_due]
        if not due:
            return False
        partition = max(due, key=lambda each: (plans[each].dirty_ratio, each))
        return await self._clean(logs[partition], plans[partition], directory)

    async def _clean(self, log: PartitionLog, plan: CleaningPlan, directory: LogDirectory) -> bool:
        job, began_ms = None, self._runtime.clock.monotonic_ms()
        try:
            job = CleaningJob(log, plan, self.options.key_limit_bytes, self._runtime.clock.now_ms())
            cleaned = await self._runtime.offload(job.run)
            if directory.logs.get(log.partition) is not log:
                # Deleted or offline by now; its directory went with all that is in it.
                for group in cleaned.groups:
                    group.new.close()
            elif job.apply_to(log, cleaned, self._runtime.clock.now_ms()):
                directory.save_cleaner_offset(log.partition, cleaned.end_offset)
                self.cleaned_count += 1
                self.last_cleaning_ms = self._runtime.clock.monotonic_ms() - began_ms
        except (CorruptLogError, OSError) as failure:
            if job is not None and (directory.logs.get(log.partition) is not log or not job.is_current(log)):
                # Files that were taken away while they were read say nothing of the disk.
                return True
            if isinstance(failure, CorruptLogError):
                _log.error("%s is not compacted any more: %s", log.partition, failure)
                self.uncleanable[log.partition] = failure
                return True
            reason = log.failed(failure)
            if isinstance(reason, LogDirectoryError):
                raise reason from failure
            # A full disk: compaction is what frees space, so it is tried again.
            _log.warning("%s could not be compacted this time: %s", log.partition, reason)
            return False
        return True
