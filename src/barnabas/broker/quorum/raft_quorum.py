"""The metadata quorum of a node: the port to it (`metadata.quorum.Quorum`), filled by Raft.

One voter or many, voter or observer: it is the same replica. A sole voter leads as soon as it starts, and what it has
synced is committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError, BrokerError
from barnabas.base.log_context import logger
from barnabas.base.runtime import Runtime
from barnabas.broker.periodic import Scheduler
from barnabas.broker.quorum.formatting import NodeIdentity
from barnabas.broker.quorum.leader_watch import LeaderWatch
from barnabas.broker.quorum.metadata_log import metadata_log_directory, metadata_log_options
from barnabas.broker.quorum.quorum_addresses import quorum_voters
from barnabas.broker.settings import BrokerSettings
from barnabas.broker.settings.endpoints import parse_endpoint
from barnabas.metadata.quorum import QuorumDescription, ReplicaState
from barnabas.raft.batches import LogBatch
from barnabas.raft.driver import RaftDriver
from barnabas.raft.options import QuorumOptions
from barnabas.raft.ports import RaftListener, Transport
from barnabas.raft.raft_log import RaftLog
from barnabas.raft.states.follower import Follower
from barnabas.raft.states.leader import Leader, ReplicaProgress
from barnabas.raft.types import Address, CommittedBatch, LeaderAndEpoch, ReplicaKey, Snapshot
from barnabas.raft.voter_changes import put_voters_into_log
from barnabas.raft.voters import VoterSet
from barnabas.storage.errors import LogDirectoryError, PassingError
from barnabas.storage.files import FileSystem
from barnabas.storage.manager import PeriodicTask

_log = logger("barnabas.metadata")

OnFailure = Callable[[BaseException], None]

_CLEANING_MS: Final = 60_000


def quorum_options(settings: BrokerSettings) -> QuorumOptions:
    return QuorumOptions(
        election_timeout_ms=max(1, settings.controller_quorum_election_timeout_ms),
        fetch_timeout_ms=max(1000, settings.controller_quorum_fetch_timeout_ms),
        election_backoff_max_ms=max(1, settings.controller_quorum_election_backoff_max_ms),
        request_timeout_ms=max(1, settings.controller_quorum_request_timeout_ms),
        retry_backoff_ms=max(1, settings.controller_quorum_retry_backoff_ms),
        fetch_max_bytes=settings.controller_quorum_fetch_max_bytes,
        fetch_snapshot_max_bytes=settings.controller_quorum_fetch_snapshot_max_bytes,
    )


def controller_addresses(settings: BrokerSettings) -> dict[str, Address]:
    """Where other replicas find this one, by the names of its listeners; none if it is no controller."""
    if not settings.is_controller:
        return {}
    own = next((each for each in quorum_voters(settings) or () if each.key.node_id == settings.node_id), None)
    given = settings.listeners if settings.advertised_listeners is None else settings.advertised_listeners
    found = {each.listener: each for each in map(parse_endpoint, [*settings.listeners, *given])}
    addresses = {
        name: Address(found[name].host or "localhost", found[name].port)
        for name in settings.controller_listeners
        if name in found
    }
    # The voters of the settings are found by the first of these listeners: that address counts.
    return addresses if own is None else {**addresses, **own.listeners}


class RaftQuorum:
    """A `Quorum`. `voters` are those of the settings, None where the log names them.

    `open` tells the listener what is committed for certain, and changes nothing that was; `start` takes part.
    `on_failure` is called once, when the disk fails or the listener raises: from then on nothing is committed, and the
    node must end.
    """

    def __init__(
        self,
        files: FileSystem,
        settings: BrokerSettings,
        identity: NodeIdentity,
        runtime: Runtime,
        listener: RaftListener,
        on_failure: OnFailure,
        *,
        transport: Transport,
        voters: VoterSet | None,
        bootstrap: Sequence[Address] = (),
        listeners: Mapping[str, Address] | None = None,
    ) -> None:
        self._settings = settings
        self._runtime = runtime
        directory_id = identity.directory_ids[settings.metadata_dir]
        self.key = ReplicaKey(identity.node_id, directory_id)
        self.log = RaftLog(
            files, metadata_log_directory(settings), metadata_log_options(settings, directory_id), runtime
        )
        self._leader_watch = LeaderWatch(self, runtime.clock)
        self.driver = RaftDriver(
            self.key,
            cluster_id=identity.cluster_id,
            voters=voters,
            bootstrap=bootstrap,
            listeners=listeners or {},
            transport=transport,
            store=self.log,
            listener=listener,
            runtime=runtime,
            options=quorum_options(settings),
            is_never_voter=not settings.is_controller,
            listener_name=settings.controller_listeners[0],
            remedy="put metadata.log.dir on a disk of its own",
            on_failure=on_failure,
            on_loss=self._leader_watch.look if settings.is_controller else lambda _: None,
        )
        self._scheduler: Scheduler | None = None
        self._is_stopping = False

    # What is there

    @property
    def node_id(self) -> int:
        return self.key.node_id

    @property
    def epoch(self) -> int:
        return self.driver.machine.epoch

    @property
    def leader(self) -> LeaderAndEpoch:
        """Who leads, as far as this replica knows; it may not have told its listener yet."""
        return self.driver.machine.leader

    @property
    def leader_address(self) -> Address | None:
        return self.driver.machine.state.leader_address

    @property
    def failure(self) -> BaseException | None:
        """Why nothing can be committed any more."""
        return self.driver.failure

    @property
    def log_end_offset(self) -> int:
        return self.driver.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self.driver.high_watermark

    @property
    def log_start_offset(self) -> int:
        return self.log.start_offset

    @property
    def max_batch_bytes(self) -> int:
        return self.log.max_batch_bytes

    @property
    def is_open(self) -> bool:
        return self.driver.is_open

    @property
    def has_followers(self) -> bool:
        state = self.driver.machine.state
        return isinstance(state, Leader) and bool(state.progress)

    @property
    def gone_leader_id(self) -> int | None:
        return self.driver.machine.gone_leader_id

    @property
    def why_election(self) -> str | None:
        return self._leader_watch.reason

    @property
    def is_stopping(self) -> bool:
        return self._is_stopping

    @property
    def is_alone(self) -> bool:
        """Whether this node is the only voter, so that nobody else can lead."""
        machine = self.driver.machine
        return machine.is_voter and len(machine.voters) == 1

    @property
    def is_caught_up(self) -> bool:
        """Whether this replica has told all that was committed when it last heard from the leader."""
        state = self.driver.machine.state
        return (isinstance(state, Leader) and state.is_ready) or (isinstance(state, Follower) and state.is_caught_up)

    def waits_for(self) -> str:
        """What keeps this replica from being caught up, for a person."""
        machine = self.driver.machine
        state = machine.state
        if isinstance(state, Follower) and state.has_heard and machine.loss is None:
            return f"it reads the metadata log from controller {machine.leader.leader_id} at {self.leader_address}"
        others = ", ".join(
            f"{each.key.node_id} at {machine.address_of(each)}"
            for each in machine.voters
            if each.key.node_id != self.node_id
        )
        # Who led last may be known yet, and asked again and again.
        return f"no controller leads; of the voters {others} enough must run to be a majority"

    def read(self, from_offset: int = 0) -> Iterator[CommittedBatch]:
        log = self.log
        return map(_committed, log.batches(max(from_offset, log.start_offset), self.high_watermark))

    def history(self) -> Iterator[CommittedBatch]:
        """All that the files still tell: the oldest snapshot, as one batch, and the log. Blocks."""
        for oldest in self.log.snapshots[:1]:
            snapshot, _ = self.log.read_snapshot(oldest)
            values = tuple(snapshot.values)
            yield CommittedBatch(0, oldest.end_offset - 1, oldest.epoch, snapshot.last_contained_ms, 0, values)
        yield from self.read()

    def describe(self) -> QuorumDescription:
        machine, now_ms = self.driver.machine, self._runtime.clock.now_ms()
        mono_ms = self._runtime.clock.monotonic_ms()
        state = machine.state

        def shown(key: ReplicaKey, progress: ReplicaProgress | None) -> ReplicaState:
            if key.node_id == self.node_id:
                return ReplicaState(key.node_id, key.directory_id, self.log_end_offset, now_ms, now_ms)
            if progress is None:
                return ReplicaState(key.node_id, key.directory_id, -1, -1, -1)
            caught_up_ms = progress.last_caught_up_ms
            return ReplicaState(
                key.node_id,
                key.directory_id,
                progress.end_offset,
                now_ms - (mono_ms - progress.last_fetch_ms),
                now_ms - (mono_ms - caught_up_ms) if caught_up_ms >= 0 else -1,
            )

        progress = state.progress if isinstance(state, Leader) else {}
        voters = [
            shown(each.key, state.progress_of(each.key) if isinstance(state, Leader) else None)
            for each in machine.voters
        ]
        observers = [shown(key, each) for key, each in sorted(progress.items()) if not machine.voters.is_voter(key)]
        listeners = {each.key.node_id: each.listeners for each in machine.voters}
        return QuorumDescription(machine.leader, self.high_watermark, voters, observers, listeners)

    @property
    def kraft_version(self) -> int:
        return self.driver.machine.kraft_version

    def upgrade_kraft_version(self, level: int, validate_only: bool) -> None:
        state, voters = self.driver.machine.state, self.driver.machine.voters
        followers = state.progress if isinstance(state, Leader) else {}
        # A voter that was started on another disk is there twice: who fetched last is at work.
        by_age = sorted(followers.items(), key=lambda each: each[1].last_fetch_ms)
        keys = {key.node_id: key for key, _ in by_age if voters.is_voter(key)} | {self.node_id: self.key}
        unheard = ", ".join(str(node_id) for node_id in voters.ids if node_id not in keys)
        why = f"the directory of voter {unheard} is not known, since it has not fetched from this leader yet"
        if not unheard and not validate_only:
            why = "this node is not ready to lead, or its voters change just now"
            change = self.driver.change_voters(
                lambda machine, token, now_ms: put_voters_into_log(
                    machine, token, [keys[each] for each in voters.ids], now_ms
                )
            )
            # Whoever asked waits for what is appended behind it, and need not hear of this.
            asyncio.ensure_future(change).add_done_callback(lambda done: done.cancelled() or done.exception())
        if unheard or (self.kraft_version != level and not validate_only):
            raise BrokerError(ErrorCode.INVALID_UPDATE_VERSION, f"Invalid upgrade of kraft.version to {level}: {why}")

    # Life

    async def open(self) -> None:
        """Recover the log, and tell the listener what of it is committed."""
        await self.driver.open()

    async def start(self) -> None:
        """Take part: vote, lead or follow."""
        await self.driver.start()
        self._scheduler = Scheduler([PeriodicTask("clean the metadata log", _CLEANING_MS, self._clean)])

    async def stop(self) -> None:
        """Let what was appended be committed, hand leadership over, close the files."""
        self._is_stopping = True
        if self._scheduler is not None:
            await self._scheduler.stop()
        try:
            await self.driver.stop()
        except OSError as failure:
            raise LogDirectoryError(self._settings.metadata_dir, str(failure)) from failure

    # Writing

    def append(self, values: Sequence[bytes], epoch: int) -> int:
        if self._is_stopping:
            raise BrokerError(ErrorCode.NOT_CONTROLLER, "the node is stopping")
        if not values:
            return self.log_end_offset - 1
        try:
            return self.driver.append(values, epoch)
        except PassingError:
            raise
        except BrokerError as refused:
            why = refused.message
            if self.failure is not None:
                why = f"the metadata log has failed: {self.failure}"
            raise BrokerError(ErrorCode.NOT_CONTROLLER, why) from None

    def resign(self, epoch: int) -> None:
        self.driver.resign(epoch)

    async def take_snapshot(self, snapshot: Snapshot) -> None:
        try:
            await self.driver.take_snapshot(snapshot)
        except OSError as failure:
            raise LogDirectoryError(self._settings.metadata_dir, str(failure)) from failure

    async def _clean(self) -> None:
        try:
            self.driver.clean()
        except (OSError, BarnabasError) as failure:
            _log.error("old files of the metadata log could not be deleted: %s", failure)


def _committed(batch: LogBatch) -> CommittedBatch:
    return CommittedBatch(
        batch.base_offset, batch.last_offset, batch.epoch, batch.append_time_ms, batch.size_bytes, batch.values
    )
