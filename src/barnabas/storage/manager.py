"""All logs of a node: opened together, looked after together, closed together.

The work that must be done from time to time (flushing, checkpoints, retention, compaction …) is handed out as tasks;
a scheduler, with a real or a simulated clock, runs them. What blocks goes through `Runtime.offload`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.base.runtime import Runtime
from barnabas.storage.checkpoints import write_topic_id
from barnabas.storage.cleaner import LogCleaner
from barnabas.storage.directories import LogDirectory, deleted_name
from barnabas.storage.errors import LogDirectoryError, LogError
from barnabas.storage.files import FileSystem, join
from barnabas.storage.log import PartitionLog
from barnabas.storage.recovery import DAY_MS, load_log
from barnabas.storage.settings import TopicSettings

_log = logging.getLogger("barnabas.storage")

MINUTE_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogManagerOptions:
    """How often what is done; the names are those of the broker's settings."""

    log_flush_offset_checkpoint_interval_ms: int = MINUTE_MS
    log_flush_start_offset_checkpoint_interval_ms: int = MINUTE_MS
    log_flush_scheduler_interval_ms: int = 2**63 - 1
    replica_high_watermark_checkpoint_interval_ms: int = 5000
    log_retention_check_interval_ms: int = 5 * MINUTE_MS
    producer_id_expiration_check_interval_ms: int = 10 * MINUTE_MS
    producer_id_expiration_ms: int = DAY_MS


@dataclass(frozen=True, slots=True)
class PeriodicTask:
    """Something to be done every `interval_ms`."""

    name: str
    interval_ms: int
    run: Callable[[], Awaitable[None]]


class LogManager:
    """The logs of a node, over one or several directories. A directory that fails takes only its own logs along."""

    def __init__(
        self,
        files: FileSystem,
        directories: Iterable[str],
        settings_of: Callable[[str], TopicSettings],
        runtime: Runtime,
        options: LogManagerOptions | None = None,
        cleaner: LogCleaner | None = None,
    ) -> None:
        self._files = files
        self._directories = [LogDirectory(files, path) for path in directories]
        self._settings_of = settings_of
        self._runtime = runtime
        self._options = options or LogManagerOptions()
        self._cleaner = cleaner or LogCleaner(runtime)
        self._logs: dict[TopicPartition, PartitionLog] = {}
        #: Why a partition cannot be used, for those that cannot.
        self._offline: dict[TopicPartition, BarnabasError] = {}
        # Directories of deleted partitions, and when they may go.
        self._to_remove: list[tuple[int, LogDirectory, str, int]] = []

    # What is there

    @property
    def directories(self) -> list[LogDirectory]:
        return list(self._directories)

    @property
    def logs(self) -> dict[TopicPartition, PartitionLog]:
        return dict(self._logs)

    def get(self, partition: TopicPartition) -> PartitionLog | None:
        """The log of a partition; None if there is none here. `LogError` if it is here but cannot be used."""
        log = self._logs.get(partition)
        if log is None and partition in self._offline:
            raise LogError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition} is offline: {self._offline[partition]}")
        return log

    def directory_of(self, log: PartitionLog) -> LogDirectory:
        parent = log.directory.rpartition("/")[0]
        return next(directory for directory in self._directories if directory.path == parent)

    # Start and stop

    async def start(self) -> None:
        """Open all directories and load all logs, several at a time. Fails only if no directory can be used."""
        for directory in self._directories:
            try:
                directory.open()
            except LogDirectoryError as failure:
                directory.failure = failure
                _log.error("%s", failure)
        self._require_a_directory()
        await asyncio.gather(*(self._load_directory(each) for each in self._directories if each.is_online))
        self._require_a_directory()

    def _require_a_directory(self) -> None:
        if not any(directory.is_online for directory in self._directories):
            failures = "; ".join(str(directory.failure) for directory in self._directories)
            raise LogError(ErrorCode.KAFKA_STORAGE_ERROR, f"no log directory can be used: {failures}")

    async def _load_directory(self, directory: LogDirectory) -> None:
        now_ms = self._runtime.clock.now_ms()
        try:
            partitions = directory.partitions()
            self._to_remove += [(now_ms, directory, path, 0) for path in directory.left_over()]
        except LogDirectoryError as failure:
            _log.error("%s", failure)
            return
        await asyncio.gather(*(self._load(directory, partition) for partition in partitions))

    async def _load(self, directory: LogDirectory, partition: TopicPartition) -> None:
        if partition in self._logs:
            self._offline[partition] = LogError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"it lies in {directory.path} and in {self._logs[partition].directory}"
            )
            self._logs.pop(partition).abandon()
            return
        try:
            self._logs[partition] = await self._runtime.offload(lambda: self._open(directory, partition))
        except OSError as failure:
            self.directory_failed(directory, str(failure))
        except BarnabasError as failure:
            _log.error("%s cannot be used: %s", partition, failure)
            self._offline[partition] = failure

    def _open(self, directory: LogDirectory, partition: TopicPartition) -> PartitionLog:
        log = load_log(
            self._files,
            join(directory.path, str(partition)),
            partition,
            self._settings_of(partition.topic),
            was_clean=directory.was_clean,
            recovery_point=directory.recovery_points.get(partition, 0),
            log_start_offset=directory.log_starts.get(partition, 0),
            now_ms=self._runtime.clock.now_ms(),
            randomness=self._runtime.randomness,
            producer_expiration_ms=self._options.producer_id_expiration_ms,
        )
        log.set_high_watermark(directory.high_watermarks.get(partition, log.log_start_offset))
        return log

    async def stop(self, broker_epoch: int = -1) -> None:
        """Close everything so that the next start finds it clean."""
        for directory in self._directories:
            logs = self._logs_in(directory)
            is_clean = directory.is_online
            for log in logs:
                try:
                    await self._runtime.offload(log.close)
                except BarnabasError as failure:
                    _log.error("%s was not closed cleanly: %s", log.partition, failure)
                    is_clean = False
            try:
                if is_clean:
                    self._save_checkpoints(directory, logs)
                directory.close(broker_epoch=broker_epoch, is_clean=is_clean)
            except LogDirectoryError as failure:
                _log.error("%s", failure)
        self._logs.clear()

    # Creating and deleting

    def create(self, partition: TopicPartition, topic_id: Uuid | None = None) -> PartitionLog:
        """The log of a partition, made if it is missing, in the directory that has the fewest."""
        log = self.get(partition)
        if log is not None:
            return log
        usable = [directory for directory in self._directories if directory.is_online]
        if not usable:
            self._require_a_directory()
        directory = min(usable, key=lambda each: len(self._logs_in(each)))
        path = join(directory.path, str(partition))

        def make() -> PartitionLog:
            self._files.make_directory(path)
            if topic_id is not None:
                write_topic_id(self._files, path, topic_id)
            log = load_log(
                self._files,
                path,
                partition,
                self._settings_of(partition.topic),
                was_clean=True,
                now_ms=self._runtime.clock.now_ms(),
                randomness=self._runtime.randomness,
                producer_expiration_ms=self._options.producer_id_expiration_ms,
            )
            self._files.sync_directory(directory.path)
            return log

        self._logs[partition] = directory.guard(make)
        return self._logs[partition]

    def delete(self, partition: TopicPartition) -> None:
        """Take a partition out of use at once; its files go later. Nothing happens if it is not here."""
        log = self._logs.pop(partition, None)
        if log is None:
            self._offline.pop(partition, None)
            return
        directory = self.directory_of(log)
        path = join(directory.path, deleted_name(partition, self._runtime.randomness))
        log.abandon()

        def move() -> None:
            self._files.rename(log.directory, path)
            self._files.sync_directory(directory.path)

        directory.guard(move)
        directory.save_cleaner_offset(partition, None)
        due_ms = self._runtime.clock.now_ms() + log.settings.file_delete_delay_ms
        self._to_remove.append((due_ms, directory, path, len(self._to_remove)))

    def directory_failed(self, directory: LogDirectory, reason: str) -> list[TopicPartition]:
        """A disk has failed: its partitions are offline, the others go on. Returns which."""
        if directory.failure is None:
            directory.failure = LogDirectoryError(directory.path, reason)
        _log.error("%s; its partitions are offline", directory.failure)
        lost = self._logs_in(directory)
        for log in lost:
            del self._logs[log.partition]
            self._offline[log.partition] = directory.failure
            log.abandon()
        return [log.partition for log in lost]

    def _logs_in(self, directory: LogDirectory) -> list[PartitionLog]:
        prefix = directory.path + "/"
        return [log for log in self._logs.values() if log.directory.startswith(prefix)]

    # Looking after

    def tasks(self) -> list[PeriodicTask]:
        """What a scheduler must run while the node is up."""
        options = self._options
        return [
            PeriodicTask("flush logs", min(options.log_flush_scheduler_interval_ms, MINUTE_MS), self.flush_due_logs),
            PeriodicTask(
                "checkpoint recovery points", options.log_flush_offset_checkpoint_interval_ms, self.save_recovery_points
            ),
            PeriodicTask(
                "checkpoint log starts", options.log_flush_start_offset_checkpoint_interval_ms, self.save_log_starts
            ),
            PeriodicTask(
                "checkpoint high watermarks",
                options.replica_high_watermark_checkpoint_interval_ms,
                self.save_high_watermarks,
            ),
            PeriodicTask("delete old segments", options.log_retention_check_interval_ms, self.delete_old_segments),
            PeriodicTask("remove deleted files", MINUTE_MS, self.remove_deleted),
            PeriodicTask("compact logs", self._cleaner.options.log_cleaner_backoff_ms, self.compact_logs),
            PeriodicTask(
                "forget silent producers", options.producer_id_expiration_check_interval_ms, self.expire_producers
            ),
        ]

    async def flush_due_logs(self) -> None:
        now_ms = self._runtime.clock.now_ms()
        for log in list(self._logs.values()):
            # A segment that was rolled is flushed without being asked for, as Kafka does.
            target = log.active_segment.base_offset
            if target > log.recovery_point:
                await self._guarded(log, self._runtime.offload(lambda log=log, target=target: log.flush(target)))  # type: ignore[misc]
            await self._guarded(log, self._runtime.offload(lambda log=log: log.flush_if_due(now_ms)))  # type: ignore[misc]

    async def _guarded(self, log: PartitionLog, work: Awaitable[object]) -> None:
        try:
            await work
        except LogDirectoryError as failure:
            self.directory_failed(self.directory_of(log), str(failure))
        except LogError as failure:
            _log.error("%s: %s", log.partition, failure)

    async def save_recovery_points(self) -> None:
        self._save_each(lambda directory, logs: directory.save_recovery_points(_recovery_points(logs)))

    async def save_log_starts(self) -> None:
        self._save_each(lambda directory, logs: directory.save_log_starts(_log_starts(logs)))

    async def save_high_watermarks(self) -> None:
        self._save_each(lambda directory, logs: directory.save_high_watermarks(_high_watermarks(logs)))

    def _save_each(self, save: Callable[[LogDirectory, list[PartitionLog]], None]) -> None:
        for directory in self._directories:
            if directory.is_online:
                try:
                    save(directory, self._logs_in(directory))
                except LogDirectoryError as failure:
                    self.directory_failed(directory, failure.reason)

    def _save_checkpoints(self, directory: LogDirectory, logs: list[PartitionLog]) -> None:
        directory.save_recovery_points(_recovery_points(logs))
        directory.save_log_starts(_log_starts(logs))
        directory.save_high_watermarks(_high_watermarks(logs))

    async def delete_old_segments(self) -> None:
        now_ms = self._runtime.clock.now_ms()
        for log in list(self._logs.values()):
            await self._guarded(log, self._inline(lambda log=log: log.delete_old_segments(now_ms)))  # type: ignore[misc]

    async def compact_logs(self) -> None:
        """Compact, dirtiest first, until nothing is dirty enough."""
        for directory in self._directories:
            while directory.is_online:
                logs = {log.partition: log for log in self._logs_in(directory)}
                try:
                    if not await self._cleaner.clean_dirtiest(logs, directory):
                        break
                except LogDirectoryError as failure:
                    self.directory_failed(directory, failure.reason)

    async def remove_deleted(self) -> None:
        now_ms = self._runtime.clock.now_ms()
        for log in list(self._logs.values()):
            await self._guarded(log, self._inline(lambda log=log: log.remove_deleted(now_ms)))  # type: ignore[misc]
        due = [each for each in self._to_remove if each[0] <= now_ms]
        self._to_remove = [each for each in self._to_remove if each[0] > now_ms]
        for _, directory, path, _ in due:
            if directory.is_online:
                try:
                    directory.remove_tree(path)
                except LogDirectoryError as failure:
                    self.directory_failed(directory, failure.reason)

    async def expire_producers(self) -> None:
        now_ms = self._runtime.clock.now_ms()
        for log in list(self._logs.values()):
            log.expire_producers(now_ms)

    async def _inline(self, work: Callable[[], object]) -> None:
        work()


def _recovery_points(logs: list[PartitionLog]) -> dict[TopicPartition, int]:
    return {log.partition: log.recovery_point for log in logs}


def _log_starts(logs: list[PartitionLog]) -> dict[TopicPartition, int]:
    """Only where the files do not say it themselves."""
    return {log.partition: log.log_start_offset for log in logs if log.log_start_offset > log.segments[0].base_offset}


def _high_watermarks(logs: list[PartitionLog]) -> dict[TopicPartition, int]:
    return {log.partition: log.high_watermark for log in logs}
