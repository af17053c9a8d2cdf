"""The metadata quorum when it has one voter: this node is the majority, so what it has synced is committed.

`append` writes at once and never waits. The sync runs away from the event loop and covers everything that was written
by then, so changes that come together share one. Only after it are they committed and the owner is told, in order.

On records that say nothing (NoOp): Kafka's leader writes one every `metadata.max.idle.interval.ms` so that followers
and brokers can tell that they still hear it. A quorum of one has neither, so by default none are written: an idle node
would sync its disk twice a second for nobody. Whoever sets the interval gets them, synced as any other record.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError, BrokerError
from barnabas.base.ids import Uuid
from barnabas.base.runtime import Runtime
from barnabas.broker.formatting import NodeIdentity, check_features, read_bootstrap, refuse_larger_quorums
from barnabas.broker.metadata_log import MetadataLog, Written
from barnabas.broker.metadata_snapshots import SnapshotId
from barnabas.broker.settings import BrokerSettings
from barnabas.metadata.batches import ControlRecord, DecodedBatch, TransactionReader
from barnabas.metadata.committer import CommittedBatch, OnCommit
from barnabas.metadata.features import KRAFT_VERSION, METADATA_VERSION, METADATA_VERSION_BUILT
from barnabas.records.control import ControlType
from barnabas.storage.directories import LOCK_FILE
from barnabas.storage.errors import LogDirectoryError
from barnabas.storage.files import FileSystem, Lock, join
from barnabas.wire.stored.cluster_metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from barnabas.wire.stored.control_records import KRaftVersionRecord, LeaderChangeMessage, Voter

_log = logging.getLogger("barnabas.metadata")

OnSnapshot = Callable[[Iterator[MetadataRecord], SnapshotId, int], None]
OnFailure = Callable[[BaseException], None]
#: The owner's whole state as of the last batch that it was told of. It is iterated later, away from the event loop.
StateRecords = Callable[[], Iterable[MetadataRecord]]
#: Waits until the owner has done all that the log says up to an offset; False if it never will.
UntilApplied = Callable[[int], Awaitable[bool]]

_HOUSEKEEPING_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """What DescribeQuorum tells: of one voter, which is the leader and never behind itself."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    log_end_offset: int
    directory_id: Uuid
    now_ms: int


class _Position(NamedTuple):
    """Up to where the owner knows the log."""

    next_offset: int
    epoch: int
    append_time_ms: int


class QuorumOfOne:
    """A `MetadataCommitter` over the metadata log of this node. After a failure of the disk it takes nothing more."""

    def __init__(self, files: FileSystem, settings: BrokerSettings, identity: NodeIdentity, runtime: Runtime) -> None:
        refuse_larger_quorums(settings)
        self._files = files
        self._settings = settings
        self._identity = identity
        self._runtime = runtime
        self._lock: Lock | None = None
        self._log: MetadataLog | None = None
        self.epoch = -1
        #: Why nothing can be committed any more.
        self.failure: BaseException | None = None
        #: What the first controller of a new cluster has to write before anything else; empty for an old one.
        self.first_records: list[MetadataRecord] = []
        self._features: dict[str, int] = {}
        self._told = _Position(0, -1, 0)
        self._bytes_since_snapshot = 0
        self._last_snapshot_ms = 0
        self._pending: deque[tuple[CommittedBatch, int]] = deque()
        self._syncing: asyncio.Task[None] | None = None
        self._snapshotting: asyncio.Task[None] | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._last_append_ms = 0
        self._on_commit: OnCommit = _ignore
        self._on_failure: OnFailure = _ignore
        self._state_records: StateRecords | None = None
        self._until_applied: UntilApplied = _at_once
        self._is_stopping = False

    # What is there

    def topics_named(self) -> tuple[dict[Uuid, str], set[Uuid]]:
        """The topics that the log, as far back as it reaches, created, with their names, and those that it deleted."""
        created: dict[Uuid, str] = {}
        deleted: set[Uuid] = set()
        for batch in self.log.batches(self.log.log_start_offset):
            for record in batch.records:
                if isinstance(record, TopicRecord):
                    created[record.topic_id] = record.name
                elif isinstance(record, RemoveTopicRecord):
                    deleted.add(record.topic_id)
        return created, deleted

    @property
    def log(self) -> MetadataLog:
        if self._log is None:
            raise BarnabasError("the metadata log is not open")
        return self._log

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def metadata_version(self) -> int:
        return self._features.get(METADATA_VERSION, METADATA_VERSION_BUILT)

    def describe(self) -> QuorumDescription:
        return QuorumDescription(
            leader_id=self._identity.node_id,
            leader_epoch=self.epoch,
            high_watermark=self.high_watermark,
            log_end_offset=self.log.next_offset,
            directory_id=self._identity.directory_ids[self._settings.metadata_dir],
            now_ms=self._runtime.clock.now_ms(),
        )

    # Start

    async def start(
        self,
        on_snapshot: OnSnapshot,
        on_commit: OnCommit,
        *,
        state_records: StateRecords | None = None,
        on_failure: OnFailure | None = None,
        before_leading: Callable[[], Awaitable[None]] | None = None,
        until_applied: UntilApplied | None = None,
    ) -> None:
        """Recover the log, tell the owner what it holds, and lead.

        With `state_records` snapshots are taken as the settings say; without, only on `take_snapshot`. `on_failure` is
        called once, when the disk fails or the owner raises: from then on nothing is committed, and the node must end.
        `before_leading` may refuse what was found, before anything is written. A snapshot forgets what was deleted, so
        none is taken before the owner, as `until_applied` tells, has nothing left of it.
        """
        self._on_commit = on_commit
        self._on_failure = on_failure or _ignore
        self._state_records = state_records
        self._until_applied = until_applied or _at_once
        self._last_append_ms = self._last_snapshot_ms = self._runtime.clock.monotonic_ms()
        try:
            # A directory of its own has a lock of its own; else it is one of those that the logs' owner has locked.
            if self._settings.metadata_dir not in self._settings.data_dirs:
                self._lock = self._take_lock()
            self._log = await self._runtime.offload(self._open)
            is_empty, in_transaction = self._replay(self._log, on_snapshot)
            check_features(self._features, self._log.directory)
            if before_leading is not None:
                await before_leading()
            if is_empty:
                self.first_records = self._read_first_records()
            await self._lead(self._log, in_transaction=in_transaction)
        except BaseException:
            self._abandon()
            raise
        self._every(_HOUSEKEEPING_MS, self._housekeeping)
        if self._settings.is_given("metadata.max.idle.interval.ms") and self._settings.metadata_max_idle_interval_ms:
            self._every(self._settings.metadata_max_idle_interval_ms, self._say_nothing)

    def _take_lock(self) -> Lock:
        directory = self._settings.metadata_dir
        try:
            return self._files.lock(join(directory, LOCK_FILE))
        except BlockingIOError:
            raise BarnabasError(f"metadata directory {directory}: another process is using it") from None
        except OSError as failure:
            raise LogDirectoryError(directory, str(failure)) from failure

    def _open(self) -> MetadataLog:
        try:
            return MetadataLog(self._files, self._settings, self._runtime)
        except OSError as failure:
            raise LogDirectoryError(self._settings.metadata_dir, str(failure)) from failure

    def _replay(self, log: MetadataLog, on_snapshot: OnSnapshot) -> tuple[bool, bool]:
        """Tell the owner everything; whether there was nothing, and whether a transaction was left open."""
        is_empty = True
        snapshot = log.latest_snapshot
        if snapshot is not None:
            loaded = log.read_snapshot(snapshot)
            self._note_controls(loaded.controls)
            for record in loaded.records():
                is_empty = False
                self._note_feature(record)
            on_snapshot(loaded.records(), snapshot, loaded.last_contained_ms)
            self._told = _Position(snapshot.end_offset, snapshot.epoch, loaded.last_contained_ms)
        reader = TransactionReader()
        for batch in log.batches(self._told.next_offset):
            self._note_controls(batch.controls)
            change = reader.feed(batch)
            if change is not None:
                is_empty = is_empty and not change.records
                for record in change.records:
                    self._note_feature(record)
                self._tell(_committed(change), change.size_bytes)
        return is_empty, reader.in_transaction

    def _note_feature(self, record: MetadataRecord) -> None:
        if isinstance(record, FeatureLevelRecord):
            self._features[record.name] = record.feature_level

    def _note_controls(self, controls: Sequence[ControlRecord]) -> None:
        for each in controls:
            if isinstance(each.message, KRaftVersionRecord):
                self._features[KRAFT_VERSION] = each.message.k_raft_version

    def _read_first_records(self) -> list[MetadataRecord]:
        directory = self._settings.metadata_dir
        records = read_bootstrap(self._files, directory)
        check_features(
            {each.name: each.feature_level for each in records if isinstance(each, FeatureLevelRecord)}, directory
        )
        # One transaction, as Kafka's controller writes them, under this name.
        return [BeginTransactionRecord(name="Bootstrap records"), *records, EndTransactionRecord()]

    async def _lead(self, log: MetadataLog, *, in_transaction: bool) -> None:
        """Begin a new epoch: its number is safe before its first record is written."""
        self.epoch = log.last_epoch + 1
        node_id = self._identity.node_id
        await self._offload(lambda: log.save_leadership(node_id, self.epoch))
        voter = Voter(voter_id=node_id)
        change = LeaderChangeMessage(version=0, leader_id=node_id, voters=[voter], granting_voters=[voter])
        self._enqueue([], log.append_control([ControlRecord(ControlType.LEADER_CHANGE, change)], self.epoch))
        if in_transaction:
            # The node that wrote its beginning is gone, and it was never told of, so neither is this.
            abort = AbortTransactionRecord(reason="the node stopped before the transaction ended")
            self._enqueue([], log.append([abort], self.epoch, self.metadata_version))
        await self._sync()

    async def _offload(self, work: Callable[[], None]) -> None:
        try:
            await self._runtime.offload(work)
        except OSError as failure:
            raise LogDirectoryError(self._settings.metadata_dir, str(failure)) from failure

    # Committing

    def append(self, records: Sequence[MetadataRecord]) -> int:
        """Write records that belong together; the offset of the last of them. They are committed later, all or none."""
        if self.failure is not None or self._is_stopping:
            why = "the node is stopping" if self.failure is None else f"the metadata log has failed: {self.failure}"
            raise BrokerError(ErrorCode.NOT_CONTROLLER, why)
        log = self.log
        if not records:
            return log.next_offset - 1
        try:
            written = log.append(records, self.epoch, self.metadata_version)
        except LogDirectoryError as failure:
            self._fail(failure)
            raise
        for record in records:
            self._note_feature(record)
        added = written.last_offset - written.first_offset + 1 - len(records)
        if added:
            # The change became a transaction: what was given lies between its begin and its end.
            records = [BeginTransactionRecord(), *records, EndTransactionRecord()]
        self._enqueue(records, written)
        self._last_append_ms = self._runtime.clock.monotonic_ms()
        if self._syncing is None:
            self._syncing = asyncio.get_running_loop().create_task(self._sync(), name="sync the metadata log")
            self._syncing.add_done_callback(self._synced)
        return written.last_offset - added // 2

    def _enqueue(self, records: Sequence[MetadataRecord], written: Written) -> None:
        batch = CommittedBatch(
            written.first_offset, written.last_offset, self.epoch, written.append_time_ms, tuple(records)
        )
        self._pending.append((batch, written.size_bytes))

    async def _sync(self) -> None:
        log = self.log
        while (job := log.begin_sync()) is not None:
            await self._runtime.offload(partial(log.run_sync, job))
            log.finish_sync(job)
            while self._pending and self._pending[0][0].last_offset < log.high_watermark:
                self._tell(*self._pending.popleft())
            self._snapshot_if_due()
        # Here, not when the loop tells of the end: what is appended before that would wait for the next change.
        self._syncing = None

    def _synced(self, task: asyncio.Task[None]) -> None:
        if self._syncing is task:
            self._syncing = None
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._fail(failure)

    def _tell(self, batch: CommittedBatch, size_bytes: int) -> None:
        self._told = _Position(batch.last_offset + 1, batch.epoch, batch.append_time_ms)
        self._bytes_since_snapshot += size_bytes
        self._on_commit(batch)

    def _fail(self, failure: BaseException) -> None:
        """What a failed sync should have covered may be lost, so nothing that comes after it can be promised."""
        if self.failure is None:
            self.failure = failure
            self._pending.clear()
            _log.critical("the metadata log has failed: %s", failure)
            self._on_failure(failure)

    # Snapshots

    async def take_snapshot(self, records: Iterable[MetadataRecord]) -> SnapshotId:
        """Write the owner's state, as of the last batch that it was told of, and delete what that makes superfluous."""
        return await self._take_snapshot(records, self._told, self._bytes_since_snapshot)

    async def _take_snapshot(
        self, records: Iterable[MetadataRecord], told: _Position, covered_bytes: int
    ) -> SnapshotId:
        log = self.log
        snapshot = SnapshotId(told.next_offset, told.epoch)
        if snapshot == log.latest_snapshot:
            return snapshot
        self._last_snapshot_ms = self._runtime.clock.monotonic_ms()
        write = log.begin_snapshot(snapshot, records, told.append_time_ms, self.metadata_version)
        try:
            size_bytes = await self._runtime.offload(write)
        except OSError as failure:
            raise LogDirectoryError(self._settings.metadata_dir, str(failure)) from failure
        self._bytes_since_snapshot -= covered_bytes
        log.add_snapshot(snapshot, size_bytes, told.append_time_ms)
        self._clean()
        return snapshot

    async def _snapshot_once_applied(
        self, records: Iterable[MetadataRecord], told: _Position, covered_bytes: int
    ) -> None:
        if await self._until_applied(told.next_offset - 1) and not self._is_stopping:
            await self._take_snapshot(records, told, covered_bytes)

    def _snapshot_if_due(self) -> None:
        if self._state_records is None or self._snapshotting is not None or not self._is_snapshot_due():
            return
        taking = self._snapshot_once_applied(self._state_records(), self._told, self._bytes_since_snapshot)
        self._snapshotting = asyncio.get_running_loop().create_task(taking, name="snapshot of the metadata")
        self._snapshotting.add_done_callback(self._snapshotted)

    def _is_snapshot_due(self) -> bool:
        settings = self._settings
        if not self._bytes_since_snapshot or self._is_stopping or self.failure is not None:
            return False
        if self._bytes_since_snapshot >= settings.metadata_log_max_record_bytes_between_snapshots:
            return True
        interval_ms = settings.metadata_log_max_snapshot_interval_ms
        return 0 < interval_ms <= self._runtime.clock.monotonic_ms() - self._last_snapshot_ms

    def _snapshotted(self, task: asyncio.Task[None]) -> None:
        self._snapshotting = None
        if not task.cancelled() and (failure := task.exception()) is not None:
            # The log still has everything; the next attempt comes with the next change after the interval.
            _log.error("a snapshot of the metadata could not be written: %s", failure)

    def _clean(self) -> None:
        try:
            self.log.clean()
            self.log.remove_deleted()
        except (OSError, BarnabasError) as failure:
            _log.error("old files of the metadata log could not be deleted: %s", failure)

    # What happens by itself

    def _every(self, interval_ms: int, action: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        place = len(self._timers)

        def run() -> None:
            # First, so that an action that fails does not end the others.
            self._timers[place] = loop.call_later(interval_ms / 1000, run)
            action()

        self._timers.append(loop.call_later(interval_ms / 1000, run))

    def _housekeeping(self) -> None:
        self._snapshot_if_due()
        self._clean()

    def _say_nothing(self) -> None:
        idle_ms = self._runtime.clock.monotonic_ms() - self._last_append_ms
        if self.failure is None and idle_ms >= self._settings.metadata_max_idle_interval_ms:
            try:
                self.append([NoOpRecord()])
            except BarnabasError as failure:
                _log.warning("%s", failure)

    # Stop

    async def stop(self) -> None:
        """Let what was appended be committed, then close the files."""
        self._is_stopping = True
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        waiting: list[Awaitable[object]] = [task for task in (self._syncing, self._snapshotting) if task is not None]
        await asyncio.gather(*waiting, return_exceptions=True)
        if self._log is not None and self.failure is None:
            log, self._log = self._log, None
            await self._offload(log.close)
        self._abandon()

    def _abandon(self) -> None:
        if self._snapshotting is not None:
            self._snapshotting.cancel()
        if self._log is not None:
            self._log.abandon()
            self._log = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _committed(change: DecodedBatch) -> CommittedBatch:
    return CommittedBatch(change.base_offset, change.last_offset, change.epoch, change.append_time_ms, change.records)


async def _at_once(_: int) -> bool:
    return True


def _ignore(_: object) -> None:
    pass
