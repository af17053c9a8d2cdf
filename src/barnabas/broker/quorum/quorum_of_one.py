"""The metadata quorum when it has one voter: this node is the majority, so what it has synced is committed.

`append` writes at once and never waits. The sync runs away from the event loop and covers everything that was written
by then, so changes that come together share one. Only after it are they committed and the listener is told, in order.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError, BrokerError
from barnabas.base.runtime import Runtime
from barnabas.broker.periodic import Scheduler
from barnabas.broker.quorum.formatting import NodeIdentity, check_features, refuse_larger_quorums
from barnabas.broker.quorum.metadata_log import metadata_log_directory, metadata_log_options
from barnabas.broker.settings import BrokerSettings
from barnabas.metadata.features import KRAFT_VERSION
from barnabas.metadata.quorum import QuorumDescription, ReplicaState
from barnabas.raft.batches import ControlRecord, LogBatch
from barnabas.raft.ports import FoundReplica, RaftListener
from barnabas.raft.raft_log import RaftLog
from barnabas.raft.types import CommittedBatch, ElectionState, LeaderAndEpoch, Snapshot, WrittenBatch
from barnabas.records.control import ControlType
from barnabas.storage.errors import LogDirectoryError
from barnabas.storage.files import FileSystem
from barnabas.storage.manager import PeriodicTask
from barnabas.wire.stored.control_records import KRaftVersionRecord, LeaderChangeMessage, Voter

_log = logging.getLogger("barnabas.metadata")

OnFailure = Callable[[BaseException], None]

_CLEANING_MS: Final = 60_000
# Nobody leads in it: the first leader of a cluster has epoch 1.
_FIRST_EPOCH: Final = 0


class QuorumOfOne:
    """A `Quorum` over the metadata log of this node. After a failure of the disk it takes nothing more.

    `open` tells the listener what the log holds, and changes nothing that was committed; `start` leads. `on_failure` is
    called once, when the disk fails or the listener raises: from then on nothing is committed, and the node must end.
    """

    def __init__(
        self,
        files: FileSystem,
        settings: BrokerSettings,
        identity: NodeIdentity,
        runtime: Runtime,
        listener: RaftListener,
        on_failure: OnFailure,
    ) -> None:
        refuse_larger_quorums(settings)
        self._files = files
        self._settings = settings
        self._identity = identity
        self._runtime = runtime
        self._listener = listener
        self._on_failure = on_failure
        self._log: RaftLog | None = None
        self._last_epoch = _FIRST_EPOCH
        self.epoch = -1
        #: Why nothing can be committed any more.
        self.failure: BaseException | None = None
        self._pending: deque[CommittedBatch] = deque()
        self._syncing: asyncio.Task[None] | None = None
        self._scheduler: Scheduler | None = None
        self._is_stopping = False

    # What is there

    @property
    def node_id(self) -> int:
        return self._identity.node_id

    @property
    def log(self) -> RaftLog:
        if self._log is None:
            raise BarnabasError("the metadata log is not open")
        return self._log

    @property
    def log_end_offset(self) -> int:
        return self.log.end_offset

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    @property
    def log_start_offset(self) -> int:
        return self.log.start_offset

    @property
    def max_batch_bytes(self) -> int:
        return self.log.max_batch_bytes

    def read(self, from_offset: int = 0) -> Iterator[CommittedBatch]:
        log = self.log
        return map(_committed, log.batches(max(from_offset, log.start_offset), log.end_offset))

    def describe(self) -> QuorumDescription:
        now_ms = self._runtime.clock.now_ms()
        directory_id = self._identity.directory_ids[self._settings.metadata_dir]
        myself = ReplicaState(self.node_id, directory_id, self.log_end_offset, now_ms, now_ms)
        return QuorumDescription(LeaderAndEpoch(self.node_id, self.epoch), self.high_watermark, [myself], [])

    # Start

    async def open(self) -> None:
        """Recover the log, and tell the listener what it holds."""
        directory_id = self._identity.directory_ids[self._settings.metadata_dir]
        options = metadata_log_options(self._settings, directory_id)
        log = RaftLog(self._files, metadata_log_directory(self._settings), options, self._runtime)
        try:
            self._last_epoch = _last_epoch(await self._runtime.offload(log.open))
            self._log = log
            self._tell_all(log)
        except BaseException:
            self._log = None
            log.abandon()
            raise

    def _tell_all(self, log: RaftLog) -> None:
        next_offset = 0
        snapshot_id = log.latest_snapshot
        if snapshot_id is not None:
            snapshot, controls = log.read_snapshot(snapshot_id)
            self._check_version(controls)
            self._listener.on_snapshot(snapshot)
            next_offset = snapshot_id.end_offset
        for batch in log.batches(next_offset, log.end_offset):
            self._check_version(batch.controls)
            self._listener.on_commit(_committed(batch))

    def _check_version(self, controls: Sequence[ControlRecord]) -> None:
        for each in controls:
            if isinstance(each.message, KRaftVersionRecord):
                check_features({KRAFT_VERSION: each.message.k_raft_version}, self.log.directory)

    async def start(self) -> None:
        """Begin a new epoch: its number is safe before its first record is written."""
        log, node_id = self.log, self.node_id
        self.epoch = self._last_epoch + 1
        state = ElectionState(self.epoch, node_id)
        await self._offload(lambda: log.save_election(state, kraft_version=0, voter_ids=[node_id]))
        voter = Voter(voter_id=node_id)
        change = LeaderChangeMessage(version=0, leader_id=node_id, voters=[voter], granting_voters=[voter])
        self._enqueue([], log.append_control([ControlRecord(ControlType.LEADER_CHANGE, change)], self.epoch))
        await self._sync()
        self._scheduler = Scheduler([PeriodicTask("clean the metadata log", _CLEANING_MS, self._clean)])
        self._listener.on_leader_change(LeaderAndEpoch(node_id, self.epoch))

    async def _offload(self, work: Callable[[], None]) -> None:
        try:
            await self._runtime.offload(work)
        except OSError as failure:
            raise LogDirectoryError(self._settings.metadata_dir, str(failure)) from failure

    # Committing

    def append(self, values: Sequence[bytes], epoch: int) -> int:
        self._check_leads(epoch)
        log = self.log
        if not values:
            return log.end_offset - 1
        try:
            written = log.append(values, epoch)
        except LogDirectoryError as failure:
            self._fail(failure)
            raise
        self._enqueue(values, written)
        if self._syncing is None:
            self._syncing = asyncio.get_running_loop().create_task(self._sync(), name="sync the metadata log")
            self._syncing.add_done_callback(self._synced)
        return written.last_offset

    def _check_leads(self, epoch: int) -> None:
        why = None
        if self.failure is not None:
            why = f"the metadata log has failed: {self.failure}"
        elif self._is_stopping:
            why = "the node is stopping"
        elif epoch != self.epoch:
            why = f"epoch {epoch} is over; it is epoch {self.epoch} now"
        if why is not None:
            raise BrokerError(ErrorCode.NOT_CONTROLLER, why)

    def resign(self, epoch: int) -> None:
        """There is nobody else to lead, so this can only end the node: what was decided may not be what is written."""
        if epoch == self.epoch:
            self._fail(BarnabasError(f"the controller gave up its leadership in epoch {epoch}"))

    def _enqueue(self, values: Sequence[bytes], written: WrittenBatch) -> None:
        self._pending.append(
            CommittedBatch(
                written.first_offset,
                written.last_offset,
                self.epoch,
                written.append_time_ms,
                written.size_bytes,
                values,
            )
        )

    async def _sync(self) -> None:
        log = self.log
        while (job := log.begin_sync()) is not None:
            await self._runtime.offload(job.run)
            log.finish_sync(job)
            # This node is the majority.
            log.set_high_watermark(log.synced_offset)
            while self._pending and self._pending[0].last_offset < log.high_watermark:
                self._listener.on_commit(self._pending.popleft())
        # Here, not when the loop tells of the end: what is appended before that would wait for the next change.
        self._syncing = None

    def _synced(self, task: asyncio.Task[None]) -> None:
        if self._syncing is task:
            self._syncing = None
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._fail(failure)

    def _fail(self, failure: BaseException) -> None:
        """What a failed sync should have covered may be lost, so nothing that comes after it can be promised."""
        if self.failure is None:
            self.failure = failure
            self._pending.clear()
            _log.critical("the metadata log has failed: %s", failure)
            self._on_failure(failure)

    # Snapshots

    async def take_snapshot(self, snapshot: Snapshot) -> None:
        log = self.log
        if snapshot.snapshot_id == log.latest_snapshot:
            return
        try:
            size_bytes = await self._runtime.offload(log.begin_snapshot(snapshot, ()))
        except OSError as failure:
            raise LogDirectoryError(self._settings.metadata_dir, str(failure)) from failure
        log.add_snapshot(snapshot.snapshot_id, size_bytes, snapshot.last_contained_ms)
        await self._clean()

    async def _clean(self) -> None:
        try:
            self.log.clean()
        except (OSError, BarnabasError) as failure:
            _log.error("old files of the metadata log could not be deleted: %s", failure)

    # Stop

    async def stop(self) -> None:
        """Let what was appended be committed, then close the files."""
        self._is_stopping = True
        if self._scheduler is not None:
            await self._scheduler.stop()
        if self._syncing is not None:
            await asyncio.gather(self._syncing, return_exceptions=True)
        if self._log is not None and self.failure is None:
            log, self._log = self._log, None
            await self._offload(log.close)
        self._abandon()

    def _abandon(self) -> None:
        if self._log is not None:
            self._log.abandon()
            self._log = None


def _last_epoch(found: FoundReplica) -> int:
    """The highest epoch that this node knows of, from wherever."""
    epochs = [_FIRST_EPOCH, *(epoch for epoch, _ in found.epochs), *(each.epoch for each in found.snapshots)]
    return max(epochs if found.election is None else [*epochs, found.election.epoch])


def _committed(batch: LogBatch) -> CommittedBatch:
    return CommittedBatch(
        batch.base_offset, batch.last_offset, batch.epoch, batch.append_time_ms, batch.size_bytes, batch.values
    )
