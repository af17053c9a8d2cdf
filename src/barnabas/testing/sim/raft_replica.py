"""One replica of a simulated quorum: a driver in whatever process its host runs, and a state machine that is easily
compared."""

from __future__ import annotations

import asyncio
from asyncio import Task
from binascii import crc32
from collections.abc import Callable
from dataclasses import dataclass

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import Uuid
from barnabas.raft.driver import RaftDriver
from barnabas.raft.machine import RaftMachine
from barnabas.raft.options import QuorumOptions
from barnabas.raft.types import (
    Address,
    CommittedBatch,
    LeaderAndEpoch,
    OffsetAndEpoch,
    ReplicaKey,
    Snapshot,
    SnapshotId,
)
from barnabas.raft.voters import DEFAULT_LISTENER, VoterSet
from barnabas.storage.errors import LogDirectoryError, PassingError
from barnabas.testing.sim.faults import SimulatedCrash
from barnabas.testing.sim.raft_checkers import Invariant, RaftChecker
from barnabas.testing.sim.raft_depths import PORT, Depth
from barnabas.testing.sim.raft_watch import WatchedLog, WatchedTransport

__all__ = ["QuorumPlan", "SimulatedReplica"]

CLUSTER_ID = "a-simulated-quorum-1"


@dataclass(frozen=True, slots=True)
class QuorumPlan:
    """What all replicas of a run have in common. A snapshot is taken every so many batches, or never."""

    voters: VoterSet
    bootstrap: tuple[Address, ...]
    options: QuorumOptions
    snapshot_every: int | None = None
    snapshot_bytes: int = 0


class ComparableState:
    """The owner of a replica's log. Its state is a checksum of all values, so equal states show equal histories."""

    def __init__(
        self, replica: SimulatedReplica, plan: QuorumPlan, on_commit: Callable[[CommittedBatch], None]
    ) -> None:
        self._replica = replica
        self._plan = plan
        self._on_commit = on_commit
        self.end_offset = 0
        self.state = 0
        self.leader = LeaderAndEpoch(-1, 0)
        self._batches_since_snapshot = 0
        self._snapshot: Task[None] | None = None

    def on_commit(self, batch: CommittedBatch) -> None:
        replica = self._replica
        if batch.base_offset != self.end_offset:
            replica.checker.break_(
                Invariant.SAME_STATE,
                f"replica {replica.node_id} was told of offset {batch.base_offset} after {self.end_offset - 1}",
            )
        state = self.state
        for value in batch.values:
            state = crc32(value, state)
        self.state = state
        self.end_offset = batch.last_offset + 1
        replica.checker.applied(replica.node_id, self.end_offset, state)
        self._on_commit(batch)
        self._batches_since_snapshot += 1
        every = self._plan.snapshot_every
        if every is not None and self._batches_since_snapshot >= every and self._snapshot is None:
            self._take_snapshot(batch)

    def _take_snapshot(self, batch: CommittedBatch) -> None:
        self._batches_since_snapshot = 0
        values = (b"%d" % self.state, bytes(self._plan.snapshot_bytes))
        snapshot = Snapshot(SnapshotId(self.end_offset, batch.epoch), batch.append_time_ms, values)
        driver = self._replica.driver
        if driver is not None:
            self._replica.tell(f"takes a snapshot at {self.end_offset}")
            self._snapshot = asyncio.get_running_loop().create_task(driver.take_snapshot(snapshot))
            self._snapshot.add_done_callback(self._snapshot_taken)

    def _snapshot_taken(self, task: Task[None]) -> None:
        self._snapshot = None
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._replica.fail(failure)

    def on_snapshot(self, snapshot: Snapshot) -> None:
        replica = self._replica
        values = list(snapshot.values)
        self.state = int(values[0])
        self.end_offset = snapshot.snapshot_id.end_offset
        replica.tell(f"loads the snapshot at {self.end_offset}")
        replica.checker.applied(replica.node_id, self.end_offset, self.state)

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.leader = leader


class SimulatedReplica:
    """See the module."""

    def __init__(
        self,
        node_id: int,
        host: str,
        depth: Depth,
        checker: RaftChecker,
        plan: QuorumPlan,
        on_commit: Callable[[SimulatedReplica, CommittedBatch], None],
        tell: Callable[[str], None] | None,
    ) -> None:
        self.node_id = node_id
        self.key = ReplicaKey(node_id, Uuid.random(depth.random(f"{host}/directory")))
        self.host = host
        self.checker = checker
        self.plan = plan
        self.driver: RaftDriver | None = None
        self.state: ComparableState | None = None
        #: Of the present process, once its log is open.
        self.machine: RaftMachine | None = None
        self._depth = depth
        self._on_commit = on_commit
        self._tell = tell

    def tell(self, text: str) -> None:
        if self._tell is not None:
            self._tell(f"{self.node_id} {text}")

    @property
    def is_running(self) -> bool:
        return self._depth.host(self.host).is_running

    def start(self) -> None:
        """Begin a process, unless one runs."""
        if self.is_running:
            return
        self.machine = self.driver = self.state = None
        process = self._depth.start_process(self.host)
        self.tell("starts")
        with process.enter():
            self._depth.loop.create_task(self._run())

    async def _run(self) -> None:
        try:
            self.driver = driver = self._make_driver()
            await driver.start()
        except (OSError, BarnabasError) as failure:
            self.fail(failure)

    def _make_driver(self) -> RaftDriver:
        transport, store, runtime = self._depth.parts(self.host)
        plan = self.plan
        self.state = ComparableState(self, plan, lambda batch: self._on_commit(self, batch))
        tell = None if self._tell is None else self.tell
        return RaftDriver(
            self.key,
            cluster_id=CLUSTER_ID,
            voters=plan.voters,
            listeners={DEFAULT_LISTENER: Address(self.host, PORT)},
            transport=WatchedTransport(self.node_id, transport, self.checker, self._log_end, tell),
            store=WatchedLog(self.node_id, store, self.checker, self._epoch, tell),
            listener=self.state,
            runtime=runtime,
            bootstrap=plan.bootstrap,
            options=plan.options,
            on_failure=self.fail,
        )

    def _epoch(self) -> int:
        return self.driver.machine.epoch if self.driver is not None else 0

    def _log_end(self) -> OffsetAndEpoch:
        return self.driver.machine.log.end if self.driver is not None else OffsetAndEpoch(0, 0)

    def fail(self, failure: BaseException) -> None:
        """The replica cannot go on. Its process ends, and whoever watches over it starts another."""
        if isinstance(failure, SimulatedCrash):
            return  # it has ended already
        self.tell(f"stops: {failure}")
        if not isinstance(failure, OSError | LogDirectoryError | PassingError):
            self.checker.break_(Invariant.NO_FAILURE, f"replica {self.node_id} failed: {failure!r}")
        self._depth.loop.call_soon(self._depth.host(self.host).kill)

    def look(self) -> None:
        """After an event of this replica's process."""
        machine = self.machine
        if machine is None:
            if self.driver is None or not self.driver.is_open:
                return
            machine = self.machine = self.driver.machine
        # One that has failed hears nothing any more, though its process lives for a moment.
        if self.driver is None or self.driver.failure is None:
            self.checker.look_at(self.node_id, machine)
        elif self.checker.broken is not None:
            raise self.checker.broken
