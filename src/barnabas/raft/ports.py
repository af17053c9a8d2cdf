"""What Raft is handed: a way to other replicas, a log, and an owner who is told what was committed.

`driver.RaftDriver` runs the machine over these. One of each comes with it: `socket_transport.SocketTransport` and
`raft_log.RaftLog`; the simulator has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from barnabas.raft.batches import ControlRecord, LogBatch
from barnabas.raft.types import (
    Address,
    CommittedBatch,
    ElectionState,
    LeaderAndEpoch,
    Snapshot,
    SnapshotId,
    WrittenBatch,
)
from barnabas.records.batch import BatchView
from barnabas.wire.message import Request, Response

#: Takes the one answer to a request.
Reply = Callable[[Response], None]


class RequestReceiver(Protocol):
    """Who is given the requests of others. `version` is the one in which the request came and the answer must go;
    `listener` is the name of the listener on which it came, where there may be several."""

    def __call__(self, request: Request, version: int, reply: Reply, /, listener: str | None = None) -> None: ...


class Transport(Protocol):
    """Requests to other replicas, and theirs to this one. Messages are Kafka's (`barnabas.wire.messages`).

    Nothing is promised of order or delivery, only that an answer is given at most once and to its own request.
    """

    async def start(self, receive: RequestReceiver, on_refused: Callable[[Address], None]) -> None:
        """Listen, and hand over what comes. `on_refused` is told that a peer closed its connection to us and refuses a
        new one: its process is gone."""
        ...

    def send(
        self, to: Address, request: Request, on_response: Callable[[Response | None], None], *, timeout_ms: int
    ) -> None:
        """Send a request in the highest version that both sides know.

        `on_response` is called once, after this has returned: with the response, or with None if there will be none
        (nobody listens there, the connection broke, the time is over, the peer does not know such requests).
        """
        ...

    async def stop(self) -> None:
        """Stop listening and close all connections. Whoever waits for a response is not told."""
        ...


@dataclass(frozen=True, slots=True)
class FoundReplica:
    """What a log held when it was opened.

    `epochs` are the leader epochs that the log has records of, each with the offset of its first, in order. All that is
    there is synced. `controls` are the records by which voters are known (KRaftVersion and Voters), with their offsets,
    in order: first those in the header of the newest snapshot, with its end offset - 1 (so -1 in the bootstrap snapshot
    of a dynamic quorum, whose id is (0, 0)), then those of the log behind it.
    """

    election: ElectionState | None
    start_offset: int
    end_offset: int
    epochs: Sequence[tuple[int, int]]
    snapshots: Sequence[SnapshotId]
    controls: Sequence[tuple[int, ControlRecord]]
    #: All before it is committed for certain. More may be.
    committed_offset: int = 0
    #: Nothing is ever synced: what was written counts as safe.
    is_safe_when_written: bool = False


class SyncJob(Protocol):
    """Makes what was written so far safe. `run` blocks and may be called in another thread."""

    def run(self) -> None: ...


class SnapshotReceiver(Protocol):
    """A snapshot on its way from the leader. All of it blocks and may be called in another thread."""

    @property
    def size_bytes(self) -> int:
        """How much has come."""
        ...

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """The next piece. Raises `RemoteProtocolError` if it does not go on where the last one ended."""
        ...

    def finish(self) -> None:
        """Check that it is whole and put it under its name, safe from every crash. Raises `BarnabasError` if it is
        not."""
        ...

    def abandon(self) -> None:
        """Remove what has come."""
        ...


class LogStore(Protocol):
    """The files of one replica: the log, its snapshots, and `quorum-state`.

    What was appended is there after a crash of the process; after one of the machine, any prefix of what no finished
    sync covered. Only `SyncJob.run`, `save_election`, what `begin_snapshot` returns and a `SnapshotReceiver` may be
    called away from the event loop. `OSError` and `LogDirectoryError` mean that the replica must stop; a `PassingError`
    (the disk is full) that nothing was written, and the next attempt may succeed.
    """

    def open(self) -> FoundReplica:
        """Take the lock, recover, and tell what is there. Blocks."""
        ...

    @property
    def end_offset(self) -> int: ...

    @property
    def synced_offset(self) -> int:
        """All before it is safe from a crash of the machine."""
        ...

    # The log

    def append(self, values: Sequence[bytes], epoch: int) -> WrittenBatch:
        """As the leader: write records at the end. They are one batch, all or none, if they fit into one."""
        ...

    def append_control(self, records: Sequence[ControlRecord], epoch: int) -> WrittenBatch: ...

    def append_fetched(
        self, batches: bytes | bytearray | memoryview, checked: Sequence[BatchView] | None = None
    ) -> None:
        """As a follower: write whole batches that begin at the end of the log, as they came.

        A last one that was cut off is left out. Raises `RemoteProtocolError`, and writes nothing, if they do not follow
        what is there, fall back to an earlier epoch, or are damaged.
        """
        ...

    def truncate(self, offset: int) -> None:
        """Forget everything from `offset` on, and no crash brings it back; it is a boundary of batches.

        Raises `InvariantError` for what is committed.
        """
        ...

    def read(self, offset: int, max_bytes: int) -> bytes | bytearray | memoryview:
        """Whole batches from the one that holds `offset` on: at least one, if there is one, else up to `max_bytes`."""
        ...

    def batches(self, from_offset: int, to_offset: int) -> Iterable[LogBatch]:
        """Decoded batches that begin in this range."""
        ...

    def begin_sync(self) -> SyncJob | None:
        """What makes everything written so far safe; None if it is."""
        ...

    def finish_sync(self, job: SyncJob) -> None:
        """Take note that a job has run; `synced_offset` rises, unless the log was cut meanwhile."""
        ...

    def set_high_watermark(self, offset: int) -> None:
        """All before `offset` is committed, as far as the log reaches. What of it is synced here is noted, so that
        damage to it can be recognised later."""
        ...

    # The election

    def save_election(self, state: ElectionState, *, kraft_version: int, voter_ids: Sequence[int]) -> None:
        """Write `quorum-state`. Once this returns, no crash takes it back. Blocks."""
        ...

    # Snapshots

    def begin_snapshot(self, snapshot: Snapshot, voters: Sequence[ControlRecord]) -> Callable[[], int]:
        """What writes a snapshot of what is committed and returns its size; `voters` go into its header. It blocks."""
        ...

    def add_snapshot(self, snapshot: SnapshotId, size_bytes: int, last_contained_ms: int) -> None:
        """Take note of a snapshot that was written."""
        ...

    def clean(self, in_use: Container[SnapshotId] = ()) -> int:
        """Delete old snapshots and the log that a newer one covers, as the options ask, but none that is in use, and
        nothing behind it; the new start of the log. To be called from time to time: files go some time after they were
        deleted."""
        ...

    def read_snapshot(self, snapshot: SnapshotId) -> tuple[Snapshot, Sequence[ControlRecord]]:
        """A snapshot that is here, checked, and what its header says of the voters. Blocks."""
        ...

    def read_snapshot_bytes(self, snapshot: SnapshotId, position: int, max_bytes: int) -> tuple[bytes, int] | None:
        """A piece of a snapshot's file, empty beyond its end, and the size of the whole; None if there is none of that
        id."""
        ...

    def receive_snapshot(self, snapshot: SnapshotId) -> SnapshotReceiver: ...

    def start_anew(self, snapshot: SnapshotId) -> None:
        """A snapshot was received, and is finished: take note of it, forget the whole log, and go on at its end. Raises
        `InvariantError` if that is below what is committed."""
        ...

    # The end

    def close(self) -> None:
        """Bring everything to disk and close the files. Blocks."""
        ...

    def abandon(self) -> None:
        """Close the files and nothing more."""
        ...


class RaftListener(Protocol):
    """The owner of the log. Each is told once, in order; one that raises ends the replica."""

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """Forget what you know: the state is this."""
        ...

    def on_commit(self, batch: CommittedBatch) -> None: ...

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Somebody leads, or nobody. A node hears of itself once it was told all that was written before its epoch."""
        ...
