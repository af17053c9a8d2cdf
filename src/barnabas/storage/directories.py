"""A log directory: its lock, its checkpoints, and the partitions that lie in it.

Names below it: `<topic>-<partition>` for a partition, `<topic>-<partition>.<32 hex digits>-delete` for one that is
being deleted, `…-stray` for one that the cluster does not know any more. Strays are left alone, and so are others
(`-future`), which belong to features that are not built.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from random import Random
from typing import Final, NamedTuple, TypeVar

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.base.log_context import logger
from barnabas.storage.checkpoints import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    Checkpoint,
    read_clean_shutdown,
    read_offsets,
    read_topic_id,
    remove_clean_shutdown,
    write_clean_shutdown,
    write_offsets,
)
from barnabas.storage.damage import Damage, LogFacts, verdict
from barnabas.storage.errors import PASSING, CorruptLogError, DirectoryInUseError, LogDirectoryError, PassingError
from barnabas.storage.files import FileSystem, Lock, Space, directory_of, join
from barnabas.storage.inspection import inspect_log
from barnabas.storage.log import PartitionLog
from barnabas.storage.passing_trouble import PassingTrouble
from barnabas.storage.segment import LOG_SUFFIX
from barnabas.storage.settings import TopicSettings

_log = logger("barnabas.storage")

T = TypeVar("T")

LOCK_FILE: Final = ".lock"
METADATA_PARTITION: Final = TopicPartition("__cluster_metadata", 0)
_PARTITION_NAME: Final = re.compile(r"(.+)-([0-9]+)")
_DELETED_NAME: Final = re.compile(r"(.+)\.[0-9a-f]{32}-delete")
_MAX_NAME_LENGTH: Final = 255
_MOST_NAMES: Final = 5
_WHAT_IS_MISSED: Final = {RECOVERY_POINT_FILE: "; whether records are missing cannot be told by it this time"}


def parse_partition_name(name: str) -> TopicPartition | None:
    """The partition whose directory has this name, if it is one's."""
    match = _PARTITION_NAME.fullmatch(name)
    return TopicPartition(match[1], int(match[2])) if match else None


def deleted_name(partition: TopicPartition, randomness: Random) -> str:
    """A name under which a partition's directory waits for its removal."""
    return _moved_name(partition, randomness, "delete")


def stray_name(partition: TopicPartition, randomness: Random) -> str:
    """A name under which a partition's directory waits until somebody looks at it."""
    return _moved_name(partition, randomness, "stray")


def _moved_name(partition: TopicPartition, randomness: Random, kind: str) -> str:
    """Names have at most 255 characters."""
    suffix = f".{randomness.getrandbits(128):032x}-{kind}"
    return str(partition)[: _MAX_NAME_LENGTH - len(suffix)] + suffix


class Leaving(NamedTuple):
    """Partitions of a directory that are out of use. `move` gives their directories their new `paths`, and may be
    called in another thread; readers need `delay_ms` to let go of the files."""

    directory: LogDirectory
    paths: list[str]
    delay_ms: int
    move: Callable[[], None]


class FoundPartition(NamedTuple):
    """A partition's directory as it lies there, before its log is opened. `topic_id`: None if nothing tells it."""

    partition: TopicPartition
    topic_id: Uuid | None
    path: str
    has_data: bool


class LogDirectory:
    """One of the places where a node keeps its logs. It may fail by itself."""

    def __init__(self, files: FileSystem, path: str, monotonic_ms: Callable[[], int]) -> None:
        self._files = files
        self.path = path
        self.trouble = PassingTrouble(path, monotonic_ms)
        self.logs: dict[TopicPartition, PartitionLog] = {}
        #: Why a partition that lies here cannot be used, for those that cannot.
        self.offline: dict[TopicPartition, BarnabasError] = {}
        #: Whether every partition here is in `logs` or in `offline`.
        self.is_loaded = False
        self._lock: Lock | None = None
        #: Why the directory cannot be used any more.
        self.failure: LogDirectoryError | None = None
        self.was_clean = False
        #: The broker epoch of the last stop, if it was clean; -1 where that is not known.
        self.previous_broker_epoch = -1
        self.recovery_points: dict[TopicPartition, int] = {}
        self.log_starts: dict[TopicPartition, int] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        self._checkpoints = {
            name: Checkpoint(partial(write_offsets, files, join(path, name)))
            for name in (RECOVERY_POINT_FILE, LOG_START_FILE, HIGH_WATERMARK_FILE, CLEANER_FILE)
        }
        #: Up to where each compacted log is clean.
        self.cleaner_offsets: dict[TopicPartition, int] = {}

    @property
    def is_online(self) -> bool:
        return self.failure is None

    def open(self) -> None:
        """Take the lock and read the checkpoints. From now on a stop counts as unclean until `close` says otherwise."""
        try:
            if not self._files.exists(self.path):
                self._files.make_directory(self.path)
                self._files.sync_directory(directory_of(self.path))
            self._lock = self._files.lock(join(self.path, LOCK_FILE))
        except BlockingIOError:
            raise DirectoryInUseError(self.path, "another process is using it") from None
        except OSError as failure:
            raise LogDirectoryError(self.path, str(failure)) from failure
        epoch = self.guard(lambda: read_clean_shutdown(self._files, self.path))
        self.was_clean = epoch is not None
        self.previous_broker_epoch = -1 if epoch is None else epoch
        self.guard(lambda: remove_clean_shutdown(self._files, self.path))
        self.recovery_points = self._read_checkpoint(RECOVERY_POINT_FILE)
        self.log_starts = self._read_checkpoint(LOG_START_FILE)
        self.high_watermarks = self._read_checkpoint(HIGH_WATERMARK_FILE)
        self.cleaner_offsets = self._read_checkpoint(CLEANER_FILE)

    def _read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        """A checkpoint that cannot be read is as good as none: all is recovered, and starts where the files start."""
        path = join(self.path, name)
        try:
            found = self.guard(lambda: read_offsets(self._files, path))
            # Kafka leaves that of its cleaner empty until something was cleaned.
            is_suspect = not found and name != CLEANER_FILE
            if is_suspect and self.guard(lambda: self._files.exists(path) and not self._files.size(path)):
                raise CorruptLogError(path, 1, "the file is empty", unit="line")
            return found
        except CorruptLogError as problem:
            _log.warning("%s; it is passed over%s", problem, _WHAT_IS_MISSED.get(name, ""))
            return {}

    def add(self, log: PartitionLog) -> None:
        """A log of this directory is in use from now on."""
        self.logs[log.partition] = log
        log.trouble = self.trouble

    def must_reach(self, partition: TopicPartition) -> int:
        """The offset below which all of a partition was flushed, as far as that was noted; 0 if it was not.

        After a clean stop that goes for the high watermark too: everything was flushed then.
        """
        recovery_point = self.recovery_points.get(partition, 0)
        return max(recovery_point, self.high_watermarks.get(partition, 0)) if self.was_clean else recovery_point

    def missing(self) -> dict[TopicPartition, int]:
        """Partitions that held something and have no directory here, nor one that waits for its removal; and up to
        which offset the checkpoints know of them. Directories outlast crashes, so it need not have been flushed."""
        names = set(self.guard(self._directory_names))
        deleted = {match[1] for name in names if (match := _DELETED_NAME.fullmatch(name))}
        known = {*self.recovery_points, *self.high_watermarks, *self.log_starts} - {METADATA_PARTITION}
        return {
            each: offset
            for each in sorted(known)
            if str(each) not in names and str(each) not in deleted and (offset := self.highest_known_offset(each))
        }

    def judge(self, partition: TopicPartition, settings: TopicSettings) -> Damage | None:
        """The verdict on a partition that lies here, as at a start; nothing is changed."""
        facts = inspect_log(
            self._files,
            join(self.path, str(partition)),
            was_clean=self.was_clean,
            recovery_point=self.must_reach(partition),
            log_start_offset=self.log_starts.get(partition, 0),
            may_have_gaps=partition in self.cleaner_offsets or "compact" in settings.cleanup_policy,
        )
        return verdict(facts)

    def judge_missing(self) -> dict[TopicPartition, Damage]:
        """The verdicts on partitions that should lie here and do not."""
        found = {
            each: verdict(LogFacts(join(self.path, str(each)), None, end_offset, self.log_starts.get(each, 0)))
            for each, end_offset in self.missing().items()
        }
        return {each: damage for each, damage in found.items() if damage is not None}

    def highest_known_offset(self, partition: TopicPartition) -> int:
        """Where a partition was at least once, flushed or not."""
        return max(known.get(partition, 0) for known in (self.recovery_points, self.high_watermarks, self.log_starts))

    def tell_of_unknown(self) -> None:
        """Warn if nobody can say what the logs should hold: after a clean stop that is noted of all."""
        unknown = [each for each in self.logs if each not in self.recovery_points]
        if self.was_clean and unknown:
            _log.warning(
                "%s says nothing of %s%s%s",
                join(self.path, RECOVERY_POINT_FILE),
                ", ".join(map(str, unknown[:_MOST_NAMES])),
                f" and {len(unknown) - _MOST_NAMES} more" if len(unknown) > _MOST_NAMES else "",
                _WHAT_IS_MISSED[RECOVERY_POINT_FILE],
            )

    def partitions(self) -> list[TopicPartition]:
        """The partitions that lie here, without the metadata log, which has an owner of its own."""
        names = self.guard(self._directory_names)
        found = (parse_partition_name(name) for name in names if not _DELETED_NAME.fullmatch(name))
        return [each for each in found if each is not None and each != METADATA_PARTITION]

    def found_partitions(self) -> list[FoundPartition]:
        """The partitions that lie here with the topics that they are of. Blocks.

        Those whose file cannot be read are left out: their logs will not be opened either."""
        found = []
        for partition in self.partitions():
            path = join(self.path, str(partition))
            with suppress(CorruptLogError):
                topic_id = self.guard(partial(read_topic_id, self._files, path))
                has_data = topic_id is not None or self.guard(partial(self._has_data, path))
                found.append(FoundPartition(partition, topic_id, path, has_data))
        return found

    def _has_data(self, path: str) -> bool:
        names = [name for name in self._files.names(path) if name.endswith(LOG_SUFFIX)]
        return any(self._files.size(join(path, name)) for name in names)

    def _directory_names(self) -> list[str]:
        return [name for name in self._files.names(self.path) if self._files.is_directory(join(self.path, name))]

    def left_over(self) -> list[str]:
        """Partitions whose deletion was interrupted."""
        names = self.guard(self._directory_names)
        return [join(self.path, name) for name in names if _DELETED_NAME.fullmatch(name)]

    def remove_tree(self, path: str) -> None:
        """Remove a partition's directory with all its files."""

        def remove() -> None:
            for name in self._files.names(path):
                # A compaction that has just noticed that its log is gone takes its own files away.
                with suppress(FileNotFoundError):
                    self._files.remove(join(path, name))
            try:
                self._files.remove_directory(path)
            except OSError as failure:
                # Or it has just begun another one; the next start removes that.
                if failure.errno != errno.ENOTEMPTY:
                    raise

        self.guard(remove)

    def take_offline(self, partition: TopicPartition, reason: BarnabasError) -> PartitionLog | None:
        """Note that a partition cannot be used any more; its log, if it was open.

        What the checkpoints say of it is kept: the next start goes by it, and may find the partition well again.
        """
        self.offline[partition] = reason
        log = self.logs.pop(partition, None)
        if log is not None:
            self.recovery_points[partition] = log.recovery_point
            self.log_starts[partition] = log.log_start_offset
            self.high_watermarks[partition] = log.high_watermark
            log.abandon()
        return log

    def begin_moving(self, names: Mapping[TopicPartition, str]) -> Leaving:
        """Take partitions out of use, and give their directories other names, with one sync for all.

        The checkpoints forget them for certain: partitions of the same names that are made next must not go by them.
        """
        delay_ms = 0
        for partition, name in names.items():
            self.offline.pop(partition, None)
            log = self.logs.pop(partition, None)
            if log is not None:
                delay_ms = max(delay_ms, log.settings.file_delete_delay_ms)
                log.abandon()
                log.directory = join(self.path, name)
        forget = self.begin_forgetting(names)

        def move() -> None:
            for partition, name in names.items():
                path = join(self.path, str(partition))
                if self._files.exists(path):
                    self._files.rename(path, join(self.path, name))
            self._files.sync_directory(self.path)

        def run() -> None:
            # First: of a name in the checkpoints whose directory is missing a start would think that it was lost.
            forget()
            self.guard(move)

        return Leaving(self, [join(self.path, name) for name in names.values()], delay_ms, run)

    def begin_forgetting(self, partitions: Iterable[TopicPartition]) -> Callable[[], None]:
        """Let the checkpoints forget partitions. What is returned makes that certain, and may be called elsewhere."""
        for partition in partitions:
            self.offline.pop(partition, None)
            for known in self._known():
                known.pop(partition, None)
        checkpoints = [*self._begin_all(), self._begin_checkpoint(CLEANER_FILE, self.cleaner_offsets)]

        def run() -> None:
            for save in checkpoints:
                save()

        return run

    def knows(self, partition: TopicPartition) -> bool:
        """Whether a checkpoint told of a partition when the directory was opened, and nobody has taken that back."""
        return any(partition in known for known in self._known())

    def _known(self) -> tuple[dict[TopicPartition, int], ...]:
        return self.recovery_points, self.log_starts, self.high_watermarks, self.cleaner_offsets

    def holds_another(self, partition: TopicPartition, topic_id: Uuid) -> bool:
        """Whether the place of a partition is taken by one of another topic, which once had the same name."""
        try:
            return self.topic_id_of(partition) not in (None, topic_id)
        except CorruptLogError:
            return True

    def topic_id_of(self, partition: TopicPartition) -> Uuid | None:
        """Of which topic the files in the place of a partition are, if they say so."""
        return read_topic_id(self._files, join(self.path, str(partition)))

    # Each of these takes what is to be written; what it returns writes, and may be called in another thread.

    def begin_recovery_points(self) -> Callable[[], None]:
        points = {each: log.recovery_point for each, log in self.logs.items()}
        return self._begin_checkpoint(RECOVERY_POINT_FILE, points | self._of_offline(self.recovery_points))

    def begin_log_starts(self) -> Callable[[], None]:
        """Only of the logs whose files do not say it themselves."""
        starts = {
            each: log.log_start_offset
            for each, log in self.logs.items()
            if log.log_start_offset > log.first_segment_offset
        }
        return self._begin_checkpoint(LOG_START_FILE, starts | self._of_offline(self.log_starts))

    def begin_high_watermarks(self) -> Callable[[], None]:
        high_watermarks = {each: log.high_watermark for each, log in self.logs.items()}
        return self._begin_checkpoint(HIGH_WATERMARK_FILE, high_watermarks | self._of_offline(self.high_watermarks))

    def _of_offline(self, known: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {each: known[each] for each in self.offline if each in known}

    def _begin_checkpoint(self, name: str, offsets: Mapping[TopicPartition, int]) -> Callable[[], None]:
        write = self._checkpoints[name].begin(dict(offsets))

        def save() -> None:
            if self.guard(write, what=name):
                self.trouble.passed()

        return save

    def save_cleaner_offset(self, partition: TopicPartition, offset: int) -> None:
        """Note up to where a log is clean."""
        self.cleaner_offsets[partition] = offset
        self._begin_checkpoint(CLEANER_FILE, self.cleaner_offsets)()

    def checkpoint_all(self) -> None:
        """Save all checkpoints that recovery and the next start go by."""
        for save in self._begin_all():
            save()

    def _begin_all(self) -> list[Callable[[], None]]:
        return [self.begin_recovery_points(), self.begin_log_starts(), self.begin_high_watermarks()]

    def space(self) -> Space:
        """Of the disk. That it cannot be told is no reason to take the directory offline."""
        try:
            return self._files.space(self.path)
        except OSError:
            return Space(-1, -1)

    def guard(self, work: Callable[[], T], *, what: str = "a change of its files") -> T:
        """Do something with the directory; if the disk fails, the directory has failed."""
        try:
            return work()
        except OSError as failure:
            if failure.errno in PASSING:
                # Space may come back; what failed is tried again.
                reason = PASSING[failure.errno]
                self.trouble.refused(reason, what)
                raise PassingError(f"log directory {self.path}: {reason}") from failure
            self.failure = LogDirectoryError(self.path, str(failure))
            raise self.failure from failure

    def close(self, *, broker_epoch: int = -1, is_clean: bool) -> None:
        """Give the directory back. `is_clean`: all logs were closed, so the next start may trust what it finds."""
        try:
            if is_clean and self.is_online:
                self.guard(lambda: write_clean_shutdown(self._files, self.path, broker_epoch))
        finally:
            if self._lock is not None:
                self._lock.release()
                self._lock = None
