"""All logs of a node: opened together, looked after together, closed together.

The work that must be done from time to time (flushing, checkpoints, retention, compaction …) is handed out as tasks;
a scheduler, with a real or a simulated clock, runs them. What blocks goes through `Runtime.offload`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.base.log_context import logger
from barnabas.base.runtime import Runtime
from barnabas.storage.checkpoints import NO_BROKER_EPOCH, write_topic_id
from barnabas.storage.cleaner import CleanerOptions, LogCleaner
from barnabas.storage.damage import DamagedLogError
from barnabas.storage.directories import FoundPartition, Leaving, LogDirectory, deleted_name, stray_name
from barnabas.storage.errors import CorruptLogError, DirectoryInUseError, LogDirectoryError, LogError, PassingError
from barnabas.storage.files import FileSystem, join
from barnabas.storage.log import PartitionLog
from barnabas.storage.recovery import DAY_MS, RecoveryReport, load_log
from barnabas.storage.settings import TopicSettings

_log = logger("barnabas.storage")

MINUTE_MS: Final = 60_000
_PROGRESS_MS: Final = 10_000
_REMEDY: Final = (
    "; it is fetched anew if another node leads. If none can, restore the partition from a copy, or stop the node and "
    "look with `storage accept-loss` at what is left"
)


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
    log_cleaner_enable: bool = True
    log_initial_task_delay_ms: int = 30_000


@dataclass(frozen=True, slots=True)
class PeriodicTask:
    """Something to be done every `interval_ms`; for the first time after `first_delay_ms`, if that is given."""

    name: str
    interval_ms: int
    run: Callable[[], Awaitable[None]]
    first_delay_ms: int | None = None


class _Loading:
    """Tells how far the loading of a directory is: after a kill it may take minutes."""

    def __init__(self, directory: LogDirectory, log_count: int, monotonic_ms: Callable[[], int]) -> None:
        self.directory = directory
        self._log_count = log_count
        self._monotonic_ms = monotonic_ms
        self._began_ms = self._told_ms = monotonic_ms()
        self._done = 0
        self._report = RecoveryReport()
        if log_count and directory.was_clean:
            _log.info(
                "Skipping recovery of %d logs from %s since clean shutdown file was found", log_count, directory.path
            )
        elif log_count:
            _log.info("Recovering %d logs from %s since no clean shutdown file was found", log_count, directory.path)

    def note(self, report: RecoveryReport) -> None:
        """One more log is open, or turned out to be of no use."""
        self._report.add(report)
        self._done += 1
        now_ms = self._monotonic_ms()
        if now_ms - self._told_ms >= _PROGRESS_MS and self._done < self._log_count:
            self._told_ms = now_ms
            _log.info("%d of %d logs from %s are loaded", self._done, self._log_count, self.directory.path)

    def tell_end(self) -> None:
        text = "" if self.directory.was_clean or not self._log_count else f": {self._report}"
        if self.directory.offline:
            text += f"; {len(self.directory.offline):,} cannot be used"
        took_ms = self._monotonic_ms() - self._began_ms
        _log.info("Loaded %d logs from %s in %d ms%s", len(self.directory.logs), self.directory.path, took_ms, text)


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
        self._directories = [LogDirectory(files, path, runtime.clock.monotonic_ms) for path in directories]
        self._settings_of = settings_of
        self._runtime = runtime
        self._options = options or LogManagerOptions()
        self._cleaner = cleaner or LogCleaner(runtime)
        #: Told of each partition that goes offline, and why.
        self.on_offline: Callable[[TopicPartition, BarnabasError], None] = lambda partition, reason: None
        #: Told once of each directory that fails after it was opened, and whether it was the last that could be used.
        self.on_directory_failed: Callable[[LogDirectory, bool], None] = lambda directory, is_last: None
        self._told_of: set[LogDirectory] = set()
        # Logs that are being opened, perhaps for a start that was given up.
        self._opening: set[asyncio.Future[PartitionLog]] = set()
        self._is_stopping = False
        #: How often logs were flushed by the clock, and how long that took in all.
        self.flush_count = self.flush_ms = 0
        # Partitions of which checkpoints tell and that have no directory, until it is known whose they are.
        self._missing: dict[TopicPartition, LogDirectory] = {}
        # How many logs are being made in each directory.
        self._being_made: dict[str, int] = {}
        # Directories of deleted partitions, and when they may go.
        self._to_remove: list[tuple[int, LogDirectory, str]] = []

    # What is there

    @property
    def cleaner(self) -> LogCleaner:
        return self._cleaner

    @property
    def directories(self) -> list[LogDirectory]:
        return list(self._directories)

    @property
    def logs(self) -> dict[TopicPartition, PartitionLog]:
        return {partition: log for directory in self._directories for partition, log in directory.logs.items()}

    def get(self, partition: TopicPartition) -> PartitionLog | None:
        """The log of a partition; None if there is none here. `LogError` if it is here but cannot be used."""
        for directory in self._directories:
            log = directory.logs.get(partition)
            if log is not None:
                return log
        for directory in self._directories:
            if partition in directory.offline:
                reason = directory.offline[partition]
                raise LogError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition} is offline: {reason}")
        return None

    def directory_of(self, log: PartitionLog) -> LogDirectory:
        return next(directory for directory in self._directories if directory.logs.get(log.partition) is log)

    @property
    def previous_broker_epoch(self) -> int:
        """The broker epoch in which all directories were stopped cleanly; -1 if that cannot be said of all of them, or
        if a log is damaged: whatever happened to it, it may lack what this broker has acknowledged."""
        offline = [why for each in self._directories for why in each.offline.values()]
        if any(isinstance(why, (DamagedLogError, CorruptLogError)) for why in offline):
            return NO_BROKER_EPOCH
        epochs = {each.previous_broker_epoch if each.is_online else NO_BROKER_EPOCH for each in self._directories}
        return epochs.pop() if len(epochs) == 1 else NO_BROKER_EPOCH

    # Start and stop

    async def start(self) -> None:
        """Open all directories and load all logs. Fails only if no directory can be used."""
        self.open_directories()
        await self.load_logs()

    def open_directories(self) -> None:
        """Lock all directories and read their checkpoints, so that from here on they are this node's alone."""
        for directory in self._directories:
            try:
                directory.open()
            except DirectoryInUseError:
                # Not a broken disk but a second node: it must not run on the rest of the directories.
                for opened in self._directories:
                    opened.close(broker_epoch=opened.previous_broker_epoch, is_clean=opened.was_clean)
                raise
            except LogDirectoryError as failure:
                directory.failure = failure
                _log.error("%s", failure)
        self._require_a_directory()

    async def found_partitions(self) -> list[FoundPartition]:
        """What lies in the directories, before it is loaded."""
        found = []
        for directory in self._directories:
            if directory.is_online:
                with self._noting_failures(directory):
                    found += await self._runtime.offload(directory.found_partitions)
        return found

    async def load_logs(self) -> None:
        """Load the logs of all directories, several at a time."""
        await asyncio.gather(*(self._load_directory(each) for each in self._directories if each.is_online))
        for directory in self._directories:
            if directory.is_online:
                with self._noting_failures(directory):
                    await self._note_what_is_missing(directory)
        self._require_a_directory()

    async def _note_what_is_missing(self, directory: LogDirectory) -> None:
        """Partitions whose directories are gone are offline; of those that no topic has, `settle_missing` will hear."""
        present = {each for other in self._directories for each in (*other.logs, *other.offline)}
        for partition, damage in directory.judge_missing().items():
            if partition not in present:
                directory.take_offline(partition, DamagedLogError(partition, damage))
                self._missing[partition] = directory
        directory.tell_of_unknown()
        # What is known after this start must be known at the next one, which may have less to go by.
        refused = {each: why.damage for each, why in directory.offline.items() if isinstance(why, DamagedLogError)}
        if any(damage.recovery_point > directory.recovery_points.get(each, 0) for each, damage in refused.items()):
            directory.recovery_points |= {each: damage.recovery_point for each, damage in refused.items()}
            await self._runtime.offload(directory.begin_recovery_points())

    def settle_missing(self, is_ours: Callable[[TopicPartition], bool]) -> None:
        """Tell of partitions whose directories are gone; forget those that are not this node's any more."""
        for partition, directory in self._missing.items():
            if partition not in directory.offline:
                continue
            if is_ours(partition):
                _log.error("%s cannot be used: %s", partition, directory.offline[partition])
            else:
                with self._noting_failures(directory):
                    directory.begin_forgetting([partition])()
        self._missing.clear()

    def _require_a_directory(self) -> None:
        if not any(directory.is_online for directory in self._directories):
            failures = "; ".join(str(directory.failure) for directory in self._directories)
            raise LogError(ErrorCode.KAFKA_STORAGE_ERROR, f"no log directory can be used: {failures}")

    async def _load_directory(self, directory: LogDirectory) -> None:
        now_ms = self._runtime.clock.now_ms()
        try:
            partitions = directory.partitions()
            self._to_remove += [(now_ms, directory, path) for path in directory.left_over()]
        except LogDirectoryError as failure:
            self.directory_failed(directory, failure.reason)
            return
        loading = _Loading(directory, len(partitions), self._runtime.clock.monotonic_ms)
        await asyncio.gather(*(self._load(loading, partition) for partition in partitions))
        directory.is_loaded = True
        loading.tell_end()

    async def _load(self, loading: _Loading, partition: TopicPartition) -> None:
        directory, report = loading.directory, RecoveryReport()
        # If the start is given up, this goes on: until it is done the directory must stay locked.
        opening = asyncio.ensure_future(self._runtime.offload(lambda: self._open(directory, partition, report)))
        self._opening.add(opening)
        try:
            log = await asyncio.shield(opening)
        except OSError as failure:
            self.directory_failed(directory, str(failure))
            directory.take_offline(partition, LogDirectoryError(directory.path, str(failure)))
        except BarnabasError as failure:
            _log.error("%s cannot be used: %s", partition, failure)
            directory.take_offline(partition, failure)
        except Exception as failure:
            # Whatever a damaged file made of the code that read it: one partition must not stop the node.
            _log.exception("%s cannot be used", partition)
            reason = LogError(ErrorCode.KAFKA_STORAGE_ERROR, f"it could not be read: {failure!r}")
            directory.take_offline(partition, reason)
        else:
            self._add_loaded(directory, log)
        self._opening.discard(opening)
        loading.note(report)

    def _add_loaded(self, directory: LogDirectory, log: PartitionLog) -> None:
        partition = log.partition
        twin = next((each for each in self._directories if partition in each.logs or partition in each.offline), None)
        directory.add(log)
        if directory.failure is not None:
            directory.take_offline(partition, directory.failure)
        elif twin is not None:
            # Nobody can tell which of the two is the partition.
            reason = f"it lies in {directory.path} and in {twin.path}"
            for each in (directory, twin):
                each.take_offline(partition, LogError(ErrorCode.KAFKA_STORAGE_ERROR, reason))

    def _open(self, directory: LogDirectory, partition: TopicPartition, report: RecoveryReport) -> PartitionLog:
        if self._is_stopping:
            raise LogError(ErrorCode.KAFKA_STORAGE_ERROR, "the node is stopping")
        log = load_log(
            self._files,
            join(directory.path, str(partition)),
            partition,
            self._settings_of(partition.topic),
            was_clean=directory.was_clean,
            was_compacted=partition in directory.cleaner_offsets,
            recovery_point=directory.must_reach(partition),
            log_start_offset=directory.log_starts.get(partition, 0),
            now_ms=self._runtime.clock.now_ms(),
            randomness=self._runtime.randomness,
            producer_expiration_ms=self._options.producer_id_expiration_ms,
            report=report,
        )
        high_watermark = directory.high_watermarks.get(partition, log.log_start_offset)
        if high_watermark > log.log_end_offset:
            _log.warning(
                "%s ends at offset %d, but its high watermark was %d: records that were not flushed are lost",
                partition,
                log.log_end_offset,
                high_watermark,
            )
        if directory.was_clean and 0 < directory.recovery_points.get(partition, 0) < log.log_end_offset:
            _log.warning(
                "%s ends at offset %d, but at the clean stop its end was noted as %d",
                partition,
                log.log_end_offset,
                directory.recovery_points[partition],
            )
        log.set_high_watermark(high_watermark)
        return log

    async def stop(self, broker_epoch: int = -1) -> None:
        """Close everything so that the next start finds it clean; or as it was, if it was not loaded by then."""
        self._is_stopping = True
        for outcome in await asyncio.gather(*self._opening, return_exceptions=True):
            if isinstance(outcome, PartitionLog):
                outcome.abandon()
        for directory in self._directories:
            try:
                if directory.is_loaded:
                    log_count, is_clean = len(directory.logs), await self._close_logs(directory)
                    directory.close(broker_epoch=broker_epoch, is_clean=is_clean)
                    if is_clean:
                        _log.info("Closed %d logs of %s and wrote clean shutdown file", log_count, directory.path)
                    else:
                        _log.warning("%s was not closed cleanly: the next start recovers its logs", directory.path)
                else:
                    for log in directory.logs.values():
                        log.abandon()
                    directory.close(broker_epoch=directory.previous_broker_epoch, is_clean=directory.was_clean)
            except LogError as failure:
                _log.error("%s", failure)
            directory.logs.clear()

    async def _close_logs(self, directory: LogDirectory) -> bool:
        """Whether the next start may trust all that it finds in the directory."""
        # Nobody knows in what state the files of the partitions are that are offline; but those of a log that was
        # refused were not touched, and are as the last stop left them.
        is_clean = directory.is_online and all(
            directory.was_clean and isinstance(reason, DamagedLogError) for reason in directory.offline.values()
        )
        logs = list(directory.logs.values())
        # Several at a time: most of it is waiting for the disk, which syncs many files in little more time than one.
        closing = (self._runtime.offload(log.close) for log in logs)
        for log, failure in zip(logs, await asyncio.gather(*closing, return_exceptions=True), strict=True):
            if isinstance(failure, BarnabasError):
                _log.error("%s was not closed cleanly: %s", log.partition, failure)
                is_clean = False
            elif failure is not None:
                raise failure
        try:
            if directory.is_online:
                await self._runtime.offload(directory.checkpoint_all)
        except LogError as failure:
            _log.error("%s", failure)
            is_clean = False
        return is_clean

    # Creating and deleting

    def create(self, partition: TopicPartition, topic_id: Uuid | None = None) -> PartitionLog:
        """The log of a partition, made if it is missing, in the directory that has the fewest."""
        log = self.get(partition)
        if log is not None:
            return log
        directory, make = self._begin_create(partition, topic_id)
        log = directory.guard(make, what=f"a log for {partition}")
        directory.add(log)
        return log

    async def create_many(self, wanted: Iterable[tuple[TopicPartition, Uuid]]) -> None:
        """As `create` for each, away from the event loop, several at a time. What fails is left to `create` to tell."""
        await asyncio.gather(*(self._create_away(partition, topic_id) for partition, topic_id in wanted))

    async def _create_away(self, partition: TopicPartition, topic_id: Uuid) -> None:
        try:
            if self.get(partition) is not None:
                return
            directory, make = self._begin_create(partition, topic_id)
            self._being_made[directory.path] = self._being_made.get(directory.path, 0) + 1
            try:
                log = await self._runtime.offload(lambda: directory.guard(make, what=f"a log for {partition}"))
            finally:
                self._being_made[directory.path] -= 1
        except LogDirectoryError as failure:
            self.directory_failed(directory, failure.reason)
            return
        except PassingError:
            return  # the directory tells of it
        except LogError as failure:
            _log.error("%s could not be created: %s", partition, failure)
            return
        if directory.is_online and partition not in directory.logs:
            directory.add(log)
        else:
            log.abandon()

    def _begin_create(
        self, partition: TopicPartition, topic_id: Uuid | None
    ) -> tuple[LogDirectory, Callable[[], PartitionLog]]:
        usable = [directory for directory in self._directories if directory.is_online]
        if not usable:
            self._require_a_directory()
        directory = min(usable, key=lambda each: len(each.logs) + self._being_made.get(each.path, 0))
        path = join(directory.path, str(partition))
        stray = stray_name(partition, self._runtime.randomness)
        # Of an earlier topic of that name, whose deletion a crash interrupted. The new one must not be held to it.
        forget = [each.begin_forgetting([partition]) for each in usable if each.knows(partition)]

        def make() -> PartitionLog:
            for forget_earlier in forget:
                forget_earlier()
            if topic_id is not None and directory.holds_another(partition, topic_id):
                _log.warning("%s is in the way of a new topic; it was set aside as %s", path, stray)
                self._files.rename(path, join(directory.path, stray))
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

        return directory, make

    def adopt(self, log: PartitionLog, topic_id: Uuid) -> None:
        """Note the id of the topic in a log that has none, as one of an old release or of a crash."""
        self.directory_of(log).guard(lambda: write_topic_id(self._files, log.directory, topic_id))
        log.topic_id = topic_id

    def set_aside(self, *partitions: TopicPartition, what: str = "what belongs to no topic of the cluster") -> None:
        """Move logs out of the way that are not to be used any more; people may still want what is in them."""
        for leaving in self._take(partitions, stray_name):
            with self._noting_failures(leaving.directory):
                leaving.move()
                _log.warning("%s was set aside as %s", what, ", ".join(leaving.paths))

    def knows(self, partition: TopicPartition) -> bool:
        """Whether a partition lies here, in whatever state."""
        return any(partition in each.logs or partition in each.offline for each in self._directories)

    def is_of_another(self, partition: TopicPartition, topic_id: Uuid) -> bool:
        """Whether what lies here under a partition's name is of another topic, which had the name before."""
        for directory in self._directories:
            if partition in directory.logs:
                return directory.logs[partition].topic_id not in (None, topic_id)
            if partition in directory.offline and directory.is_online:
                # Of one whose file cannot be read nobody knows; it may be all that is left.
                with suppress(CorruptLogError):
                    return directory.guard(partial(directory.topic_id_of, partition)) not in (None, topic_id)
        return False

    def is_damaged(self, partition: TopicPartition) -> bool:
        """Whether the log of a partition was refused, since it does not hold what it must."""
        return any(isinstance(each.offline.get(partition), DamagedLogError) for each in self._directories)

    def is_corrupt(self, partition: TopicPartition) -> bool:
        """Whether a file of a partition was found not to hold what was written there, on a disk that is well."""
        return any(
            each.is_online and isinstance(each.offline.get(partition), CorruptLogError) for each in self._directories
        )

    def delete(self, *partitions: TopicPartition) -> None:
        """Take partitions out of use at once; their files go later. Nothing happens to those that are not here."""
        for leaving in self._take(partitions, deleted_name):
            with self._noting_failures(leaving.directory):
                leaving.move()
                self._remove_later(leaving)

    async def delete_many(self, partitions: Iterable[TopicPartition]) -> None:
        """As `delete`, away from the event loop. When it is done, partitions of the same names may be made."""
        for leaving in self._take(partitions, deleted_name):
            with self._noting_failures(leaving.directory):
                await self._runtime.offload(leaving.move)
                self._remove_later(leaving)

    def _take(
        self, partitions: Iterable[TopicPartition], new_name: Callable[[TopicPartition, Random], str]
    ) -> list[Leaving]:
        wanted = list(partitions)
        for partition in wanted:
            self._cleaner.forget(partition)
        taken = []
        for directory in self._directories:
            here = [each for each in wanted if each in directory.logs or each in directory.offline]
            names = {partition: new_name(partition, self._runtime.randomness) for partition in here}
            if names:
                taken.append(directory.begin_moving(names))
        # What lies on a failed disk is out of reach.
        return [leaving for leaving in taken if leaving.directory.is_online]

    def _remove_later(self, leaving: Leaving) -> None:
        due_ms = self._runtime.clock.now_ms() + leaving.delay_ms
        self._to_remove += [(due_ms, leaving.directory, path) for path in leaving.paths]

    @contextmanager
    def _noting_failures(self, directory: LogDirectory) -> Iterator[None]:
        """For work on a directory that nobody waits for: a failed disk takes it offline, a full one is only told of."""
        try:
            yield
        except LogDirectoryError as failure:
            self.directory_failed(directory, failure.reason)
        except PassingError:
            pass  # the directory tells of it
        except LogError as failure:
            _log.error("%s", failure)

    def truncate(self, partition: TopicPartition, offset: int) -> None:
        """Cut a log at `offset`. What the checkpoints say of it is lowered first: recovery goes by them."""
        log = self.get(partition)
        if log is None:
            return
        if offset < log.log_end_offset:
            self._lower_checkpoints(log, offset, min(offset, log.recovery_point))
        log.truncate_to(offset, self._runtime.clock.now_ms())

    def start_anew(self, partition: TopicPartition, offset: int) -> None:
        """Empty a log, and let it go on at `offset`. Until that is done nothing of it can be relied on."""
        log = self.get(partition)
        if log is not None:
            self._lower_checkpoints(log, offset, 0)
            log.start_anew_at(offset, self._runtime.clock.now_ms())

    def _lower_checkpoints(self, log: PartitionLog, offset: int, recovery_point: int) -> None:
        directory = self.directory_of(log)
        if recovery_point < log.recovery_point:
            log.recovery_point = recovery_point
            directory.begin_recovery_points()()
        if offset < log.log_start_offset:
            # Or else a start would hide what is fetched there next.
            log.log_start_offset = offset
            directory.begin_log_starts()()
        if directory.cleaner_offsets.get(log.partition, 0) > offset:
            directory.save_cleaner_offset(log.partition, offset)

    def partition_failed(self, partition: TopicPartition, reason: BarnabasError) -> None:
        """A log turned out to be corrupt when it was read: it is offline from now on, the others are not."""
        for directory in self._directories:
            if partition in directory.logs:
                remedy = _REMEDY if isinstance(reason, CorruptLogError) else ""
                _log.error("%s is offline: %s%s", partition, reason, remedy)
                directory.take_offline(partition, reason)
                self.on_offline(partition, reason)

    def directory_failed(self, directory: LogDirectory, reason: str) -> list[TopicPartition]:
        """A disk has failed: its partitions are offline, the others go on. Returns which."""
        if directory.failure is None:
            directory.failure = LogDirectoryError(directory.path, reason)
        lost = list(directory.logs)
        for partition in lost:
            directory.take_offline(partition, directory.failure)
        for partition in lost:
            self.on_offline(partition, directory.failure)
        if directory not in self._told_of:
            self._told_of.add(directory)
            _log.error("%s; its partitions are offline", directory.failure)
            self.on_directory_failed(directory, not any(each.is_online for each in self._directories))
        return lost

    # Looking after

    def tasks(self) -> list[PeriodicTask]:
        """What a scheduler must run while the node is up."""
        options = self._options
        first_ms = options.log_initial_task_delay_ms
        flush_ms = min(options.log_flush_scheduler_interval_ms, MINUTE_MS)
        recovery_ms = options.log_flush_offset_checkpoint_interval_ms
        starts_ms = options.log_flush_start_offset_checkpoint_interval_ms
        retention_ms = options.log_retention_check_interval_ms
        tasks = [
            PeriodicTask("flush logs", flush_ms, self.flush_due_logs, first_ms),
            PeriodicTask("checkpoint recovery points", recovery_ms, self.save_recovery_points, first_ms),
            PeriodicTask("checkpoint log starts", starts_ms, self.save_log_starts, first_ms),
            PeriodicTask(
                "checkpoint high watermarks",
                options.replica_high_watermark_checkpoint_interval_ms,
                self.save_high_watermarks,
            ),
            PeriodicTask("delete old segments", retention_ms, self.delete_old_segments, first_ms),
            PeriodicTask("remove deleted files", MINUTE_MS, self.remove_deleted, first_ms),
            PeriodicTask("free indexes", MINUTE_MS, self.free_indexes),
            PeriodicTask(
                "forget silent producers", options.producer_id_expiration_check_interval_ms, self.expire_producers
            ),
        ]
        if options.log_cleaner_enable:
            tasks.append(PeriodicTask("compact logs", self._cleaner.options.log_cleaner_backoff_ms, self.compact_logs))
        return tasks

    def configure(self, options: LogManagerOptions, cleaner: CleanerOptions) -> None:
        """Other settings while it runs. How often tasks run stays as it was."""
        self._options = options
        self._cleaner.options = cleaner
        for log in self.logs.values():
            log.producer_expiration_ms = options.producer_id_expiration_ms

    async def flush_due_logs(self) -> None:
        """Flush what the settings ask for, and without being asked the segments that were rolled, as Kafka does."""
        now_ms = self._runtime.clock.now_ms()
        for log in self.logs.values():
            await self._guarded(log, self._flush(log, log.active_segment.base_offset))
            if log.is_flush_due(now_ms):
                await self._guarded(log, self._flush(log, None))

    async def _flush(self, log: PartitionLog, to_offset: int | None) -> None:
        save_epochs = log.begin_saving_epochs()
        if save_epochs is not None:
            # By itself: on a full disk it can be tried again, while a failed sync cannot.
            await self._runtime.offload(save_epochs)
        job = log.begin_flush(to_offset)
        if job is not None:
            began_ms = self._runtime.clock.monotonic_ms()
            await self._runtime.offload(job.run)
            log.finish_flush(job)
            self.flush_count += 1
            self.flush_ms += self._runtime.clock.monotonic_ms() - began_ms

    async def _guarded(self, log: PartitionLog, work: Awaitable[object]) -> None:
        directory = next((each for each in self._directories if each.logs.get(log.partition) is log), None)
        try:
            await work
        except LogDirectoryError as failure:
            # Of a log that was deleted or went offline meanwhile, closed files say nothing of the disk.
            if directory is not None and directory.logs.get(log.partition) is log:
                self.directory_failed(directory, failure.reason)
        except PassingError:
            pass  # the log tells of it
        except LogError as failure:
            _log.error("%s: %s", log.partition, failure)

    async def save_recovery_points(self) -> None:
        await self._for_each_directory(LogDirectory.begin_recovery_points)

    async def save_log_starts(self) -> None:
        await self._for_each_directory(LogDirectory.begin_log_starts)

    async def save_high_watermarks(self) -> None:
        await self._for_each_directory(LogDirectory.begin_high_watermarks)

    async def _for_each_directory(self, begin: Callable[[LogDirectory], Callable[[], None]]) -> None:
        for directory in self._directories:
            if directory.is_online:
                with self._noting_failures(directory):
                    await self._runtime.offload(begin(directory))

    async def delete_old_segments(self) -> None:
        for log in self.logs.values():
            await self._guarded(log, self._delete_old_segments(log))

    async def _delete_old_segments(self, log: PartitionLog) -> None:
        now_ms = self._runtime.clock.now_ms()
        # One at a time: each waits for the disk, and others want their turn.
        for _ in log.segments:
            if not self._is_used(log) or not log.delete_old_segments(now_ms, at_most=1):
                break
            await asyncio.sleep(0)

    def _is_used(self, log: PartitionLog) -> bool:
        return any(directory.logs.get(log.partition) is log for directory in self._directories)

    async def compact_logs(self) -> None:
        """Compact, dirtiest first, until nothing is dirty enough."""
        for directory in self._directories:
            while directory.is_online:
                try:
                    if not await self._cleaner.clean_dirtiest(directory):
                        break
                except LogDirectoryError as failure:
                    self.directory_failed(directory, failure.reason)
                except PassingError:
                    break  # the directory tells of it
                except LogError as failure:
                    _log.error("%s", failure)
                    break

    async def remove_deleted(self) -> None:
        now_ms = self._runtime.clock.now_ms()
        for log in self.logs.values():
            remove = log.begin_removing(now_ms)
            if remove is not None:
                await self._guarded(log, self._runtime.offload(remove))
        due = [each for each in self._to_remove if each[0] <= now_ms]
        self._to_remove = [each for each in self._to_remove if each[0] > now_ms]
        for _, directory, path in due:
            if directory.is_online:
                with self._noting_failures(directory):
                    await self._runtime.offload(partial(directory.remove_tree, path))

    async def free_indexes(self) -> None:
        """Let go of what is in memory of the indexes of closed segments; who reads there brings it back."""
        for log in self.logs.values():
            for segment in log.segments[:-1]:
                segment.unload_indexes()

    async def expire_producers(self) -> None:
        now_ms = self._runtime.clock.now_ms()
        for log in self.logs.values():
            log.expire_producers(now_ms)
