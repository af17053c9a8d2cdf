"""A replicated state machine, for programs: write `apply`, `snapshot` and `restore`, and the quorum does the rest.

    class Counter:
        def __init__(self) -> None:
            self.value = 0

        def apply(self, command: bytes) -> int:
            self.value += int(command)
            return self.value

        def snapshot(self) -> list[bytes]:
            return [b"%d" % self.value]

        def restore(self, values: Iterable[bytes]) -> None:
            self.value = sum(int(each) for each in values)

    node = RaftNode(1, "localhost:16010:1,localhost:16020:2,localhost:16030:3", Counter(), RaftOptions(data_dir="d1"))
    async with node:
        await node.propose(b"5")        # at the leader; `NotLeaderError` elsewhere says who that is

`docs/raft.md` teaches Raft with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Protocol, Self

from barnabas.base.errors import BarnabasError, BrokerError, SettingsError
from barnabas.base.ids import Uuid
from barnabas.base.log_context import logger
from barnabas.base.runtime import Runtime
from barnabas.base.system_runtime import SystemRuntime
from barnabas.raft.batches import MAX_BATCH_BYTES
from barnabas.raft.driver import RaftDriver
from barnabas.raft.log_options import RaftLogOptions
from barnabas.raft.options import QuorumOptions
from barnabas.raft.ports import LogStore, Transport
from barnabas.raft.raft_log import RaftLog
from barnabas.raft.socket_transport import SocketTransport
from barnabas.raft.types import (
    Address,
    CommittedBatch,
    LeaderAndEpoch,
    ReplicaKey,
    Snapshot,
    SnapshotId,
)
from barnabas.raft.voters import DEFAULT_LISTENER, VoterSet
from barnabas.storage.errors import PassingError
from barnabas.storage.files import FileSystem, directory_of, join
from barnabas.storage.meta_properties import MetaProperties, read_meta_properties, write_meta_properties
from barnabas.storage.real_files import RealFileSystem

_log = logger("barnabas.raft")

#: The largest command: what a batch of the log holds, less what surrounds a record in it.
MAX_COMMAND_BYTES: Final = MAX_BATCH_BYTES - 1024

#: A record without content: it stands for no command, and its commit shows that this node still leads.
_BARRIER: Final = b""


class StateMachine(Protocol):
    """What is replicated. Every replica applies the same commands in the same order, so all that `apply` does must
    follow from its state and the command: no clock, no chance, no files."""

    def apply(self, command: bytes) -> Any:
        """Change the state; what is returned is what `propose` returns."""
        ...

    def snapshot(self) -> Iterable[bytes]:
        """The whole state, in records of any size. It is walked through at once."""
        ...

    def restore(self, values: Iterable[bytes]) -> None:
        """Forget the state, and take up that of a snapshot."""
        ...


class NotLeaderError(BarnabasError):
    """Another node leads, or none does. Nothing was done. `leader_id` is who to ask, None if nobody knows."""

    def __init__(self, node_id: int, leader_id: int | None, address: Address | None) -> None:
        self.leader_id = leader_id
        self.address = address
        who = "nobody leads at the moment" if leader_id is None else f"{leader_id} leads, at {address}"
        super().__init__(f"node {node_id} does not lead: {who}")


class OutcomeUnknownError(BarnabasError):
    """The node lost its leadership before the command was committed. The next leader may have it, or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftOptions:
    """What a node is told.

    - `data_dir`: where its files lie; no other node may use it.
    - `cluster_id`: nodes of another cluster are refused.
    - `snapshot_bytes`, `snapshot_interval_s`: a snapshot is taken when the log has grown by so much since the last
      one, or so long after it if anything changed.
    - `segment_bytes`: the log is cut into files of this size; they are deleted when a snapshot covers them.
    - `sync`: False trades safety for speed: a machine that loses power may lose what was committed.
    - `quorum`: time-outs.
    """

    data_dir: str
    cluster_id: str = "barnabas-raft"
    snapshot_bytes: int = 20 * 1024 * 1024
    snapshot_interval_s: float = 3600.0
    segment_bytes: int = 64 * 1024 * 1024
    sync: bool = True
    quorum: QuorumOptions = field(default_factory=QuorumOptions)


def parse_voters(text: str) -> dict[int, Address]:
    """The voters in `host:port:id,host:port:id,…`."""
    voters: dict[int, Address] = {}
    for part in text.split(","):
        host, _, rest = part.strip().rpartition(":")
        host, _, port = host.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]  # as addresses of IPv6 are written before a port
        elif ":" in host:
            host = ""
        if not host or not port.isdecimal() or not rest.isdecimal() or not 0 < int(port) < 65536:
            raise SettingsError(f"{part.strip()!r} is not a voter: host:port:id is expected, such as localhost:16010:1")
        if int(rest) in voters:
            raise SettingsError(f"voter {rest} is named twice in {text!r}")
        voters[int(rest)] = Address(host, int(port))
    return voters


class RaftNode:
    """One replica of a state machine. `on_leader_change` is told who leads, None while nobody is known to."""

    def __init__(
        self,
        node_id: int,
        voters: Mapping[int, Address] | str,
        state_machine: StateMachine,
        options: RaftOptions,
        *,
        on_leader_change: Callable[[int | None], None] = lambda _: None,
        runtime: Runtime | None = None,
        files: FileSystem | None = None,
        transport: Transport | None = None,
        store: LogStore | None = None,
    ) -> None:
        self._voters = parse_voters(voters) if isinstance(voters, str) else dict(voters)
        if node_id not in self._voters:
            raise SettingsError(f"node {node_id} is not among the voters {sorted(self._voters)}")
        self.node_id = node_id
        self.state_machine = state_machine
        self.options = options
        self._tell_leader = on_leader_change
        self._runtime = runtime or SystemRuntime()
        self._is_own_runtime = runtime is None
        self._files = files or RealFileSystem()
        self._transport = transport
        self._store = store
        self._driver: RaftDriver | None = None
        self._leader = LeaderAndEpoch(-1, 0)
        self._leader_news: list[asyncio.Future[None]] = []
        self._proposals: list[tuple[bytes, asyncio.Future[Any]]] = []
        # Who waits for the commit at an offset.
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._applied = SnapshotId(0, 0)
        self._applied_ms = 0
        self._bytes_since_snapshot = 0
        self._snapshot_task: asyncio.Task[None] | None = None
        self._snapshot_timer: asyncio.TimerHandle | None = None
        self._failed: asyncio.Future[None] | None = None

    # Life

    async def start(self) -> None:
        """Recover, listen, and take part. Returns before anybody leads; see `leader_known`."""
        key = ReplicaKey(self.node_id, self._directory_id())
        address = self._voters[self.node_id]
        self._failed = asyncio.get_running_loop().create_future()
        self._driver = RaftDriver(
            key,
            cluster_id=self.options.cluster_id,
            voters=VoterSet.of(self._voters),
            listeners={DEFAULT_LISTENER: address},
            transport=self._transport or SocketTransport(address, randomness=self._runtime.randomness),
            store=self._store or self._own_store(key),
            listener=_Listener(self),
            runtime=self._runtime,
            options=self.options.quorum,
            on_failure=self._fail,
        )
        try:
            await self._driver.start()
        except BaseException:
            # Nothing that was opened stays behind: the directory is free, and nobody listens.
            await self.stop()
            raise
        self._set_snapshot_timer()

    def _directory_id(self) -> Uuid:
        """Whose directory it is, noted in it: two nodes that share one by mistake are refused."""
        directory, files, cluster_id = self.options.data_dir, self._files, self.options.cluster_id
        found = read_meta_properties(files, directory)
        if found is None:
            if not files.exists(directory):
                files.make_directory(directory)
                files.sync_directory(directory_of(directory))
            found = MetaProperties(cluster_id, self.node_id, Uuid.random(self._runtime.randomness))
            write_meta_properties(files, directory, found)
        if (found.cluster_id, found.node_id) != (cluster_id, self.node_id):
            raise BarnabasError(
                f"{directory} belongs to node {found.node_id} of cluster {found.cluster_id}, not to node "
                f"{self.node_id} of {cluster_id}; use another data_dir"
            )
        return found.directory_id or Uuid.ZERO

    def _own_store(self, key: ReplicaKey) -> RaftLog:
        options = RaftLogOptions(
            segment_bytes=self.options.segment_bytes,
            # A snapshot makes all before it superfluous, and the log is not kept for anybody else.
            retention_bytes=0,
            retention_ms=-1,
            directory_id=key.directory_id,
            lock_path=join(self.options.data_dir, ".lock"),
            sync=self.options.sync,
        )
        return RaftLog(self._files, join(self.options.data_dir, "log-0"), options, self._runtime)

    async def stop(self) -> None:
        """Leave in good order: another node leads within a moment."""
        if self._snapshot_timer is not None:
            self._snapshot_timer.cancel()
        if self._snapshot_task is not None:
            await asyncio.gather(self._snapshot_task, return_exceptions=True)
        driver, self._driver = self._driver, None
        if driver is not None:
            await driver.stop()
        self._end(BarnabasError(f"node {self.node_id} was stopped"))
        if self._is_own_runtime and isinstance(self._runtime, SystemRuntime):
            self._runtime.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        await self.stop()

    async def until_failed(self) -> None:
        """Wait until the node cannot go on, and raise why: its disk failed, or its log is damaged."""
        if self._failed is not None:
            await asyncio.shield(self._failed)

    def _fail(self, failure: BaseException) -> None:
        self._end(failure)
        if self._failed is not None and not self._failed.done():
            self._failed.set_exception(failure)
            self._failed.exception()  # whoever does not wait for it was told by the log

    def _end(self, reason: BaseException) -> None:
        """It hears of no leader any more, and leads no more."""
        news, self._leader_news = self._leader_news, []
        for each in news:
            if not each.done():
                each.set_exception(reason)
        if self.leader_id is not None:
            self._on_leader_change(LeaderAndEpoch(-1, self._leader.epoch))
        self._give_up_waiting()

    # Who leads

    @property
    def leader_id(self) -> int | None:
        return self._leader.leader_id if self._leader.leader_id >= 0 else None

    @property
    def is_leader(self) -> bool:
        return self._leader.leader_id == self.node_id

    async def leader_known(self) -> int:
        """Wait until somebody leads; who. Raises why, if the node cannot go on or is stopped."""
        while self.leader_id is None:
            if self._failed is not None and self._failed.done():
                self._failed.result()
            news = asyncio.get_running_loop().create_future()
            self._leader_news.append(news)
            await news
        return self._leader.leader_id

    def address_of(self, node_id: int) -> Address:
        return self._voters[node_id]

    def _not_leader(self) -> NotLeaderError:
        leader_id = self.leader_id
        if leader_id == self.node_id:
            leader_id = None
        return NotLeaderError(self.node_id, leader_id, self._voters.get(leader_id) if leader_id is not None else None)

    # Commands and reads

    async def propose(self, command: bytes) -> Any:
        """Have every replica apply a command; what `apply` returned here, once a majority has it on disk.

        Raises `NotLeaderError` or, if the disk is full, `PassingError`, and nothing was done; or
        `OutcomeUnknownError`.
        """
        if not 0 < len(command) <= MAX_COMMAND_BYTES:
            raise ValueError(f"a command has from 1 to {MAX_COMMAND_BYTES:,} bytes, not {len(command):,}")
        return await self._enqueue(command)

    async def read_barrier(self) -> None:
        """Wait until the state machine here has all that was committed anywhere before this call; then read from it.

        Only the leader can say so: elsewhere this raises `NotLeaderError`, and what is read may be old.
        """
        await self._enqueue(_BARRIER)

    def _enqueue(self, command: bytes) -> asyncio.Future[Any]:
        if not self.is_leader or self._driver is None:
            raise self._not_leader()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        if not self._proposals:
            # What is proposed in one turn of the loop shares a batch, a sync and a round to the others.
            loop.call_soon(self._append)
        self._proposals.append((command, future))
        return future

    def _append(self) -> None:
        proposals, self._proposals = self._proposals, []
        waiting = [each for each in proposals if not each[1].done()]
        if not waiting:
            return
        driver = self._driver
        first_offset = -1 if driver is None else driver.log_end_offset
        try:
            if driver is None:
                raise self._not_leader()
            for offset, (_, future) in enumerate(waiting, first_offset):
                self._waiting[offset] = future
            driver.append([command for command, _ in waiting], self._leader.epoch)
        except (BrokerError, NotLeaderError, PassingError) as refusal:
            # Each who waits gets an exception of its own: a traceback belongs to one place.
            for offset, (_, future) in enumerate(waiting, first_offset):
                self._waiting.pop(offset, None)
                if not future.done():
                    is_full = isinstance(refusal, PassingError)
                    future.set_exception(PassingError(str(refusal)) if is_full else self._not_leader())

    def _give_up_waiting(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(
                    OutcomeUnknownError(
                        f"node {self.node_id} lost its leadership; whether the command was committed is not known here"
                    )
                )

    # What the quorum tells

    def _on_commit(self, batch: CommittedBatch) -> None:
        apply, waiting = self.state_machine.apply, self._waiting
        for offset, command in enumerate(batch.values, batch.base_offset):
            result = apply(command) if command else None
            future = waiting.pop(offset, None)
            if future is not None and not future.done():
                future.set_result(result)
        self._applied = SnapshotId(batch.last_offset + 1, batch.epoch)
        self._applied_ms = batch.append_time_ms
        self._bytes_since_snapshot += batch.size_bytes
        if self._bytes_since_snapshot >= self.options.snapshot_bytes:
            self._begin_snapshot()

    def _on_snapshot(self, snapshot: Snapshot) -> None:
        self.state_machine.restore(snapshot.values)
        self._applied = snapshot.snapshot_id
        self._applied_ms = snapshot.last_contained_ms
        self._bytes_since_snapshot = 0

    def _on_leader_change(self, leader: LeaderAndEpoch) -> None:
        was_leader, told_id = self.is_leader, self.leader_id
        self._leader = leader
        if was_leader and not self.is_leader:
            self._give_up_waiting()
        if self.leader_id is not None:
            news, self._leader_news = self._leader_news, []
            for each in news:
                if not each.done():
                    each.set_result(None)
        if self.leader_id != told_id:
            self._tell_leader(self.leader_id)

    # Snapshots

    def _set_snapshot_timer(self) -> None:
        def look() -> None:
            if self._bytes_since_snapshot:
                self._begin_snapshot()
            self._set_snapshot_timer()

        self._snapshot_timer = asyncio.get_running_loop().call_later(self.options.snapshot_interval_s, look)

    def _begin_snapshot(self) -> None:
        if self._snapshot_task is None and self._driver is not None:
            values: Sequence[bytes] = list(self.state_machine.snapshot())
            snapshot = Snapshot(self._applied, self._applied_ms, values)
            self._bytes_since_snapshot = 0
            self._snapshot_task = asyncio.get_running_loop().create_task(self._take_snapshot(self._driver, snapshot))

    async def _take_snapshot(self, driver: RaftDriver, snapshot: Snapshot) -> None:
        try:
            await driver.take_snapshot(snapshot)
        except (OSError, BarnabasError) as failure:
            # The log still has everything; the next attempt comes when as much was written again.
            _log.error("node %d: a snapshot could not be written: %s", self.node_id, failure)
        finally:
            self._snapshot_task = None


class _Listener:
    """The node's ears, kept out of its public names."""

    def __init__(self, node: RaftNode) -> None:
        self.on_snapshot = node._on_snapshot
        self.on_commit = node._on_commit
        self.on_leader_change = node._on_leader_change
