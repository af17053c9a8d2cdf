"""What stories of a quorum are made of: replicas with their disks, and messages on their way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from barnabas.base.ids import Uuid
from barnabas.raft.batches import ControlRecord, read_batch
from barnabas.raft.machine import RaftMachine
from barnabas.raft.messages import BeginQuorumEpoch, EndQuorumEpoch, RaftRequest, UpdateVoter, Vote
from barnabas.raft.ports import FoundReplica
from barnabas.raft.states.base import RaftState
from barnabas.raft.transitions import Role
from barnabas.raft.types import Address, ElectionState, ReplicaKey, SnapshotId
from barnabas.records.batch import BatchView


def address_of(node_id: int) -> Address:
    return Address(f"host{node_id}", 9093)


def directory_of(node_id: int) -> Uuid:
    return Uuid(bytes([0xAA] * 15 + [node_id]))


def key_of(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, directory_of(node_id))


def request_source(request: RaftRequest) -> int:
    if isinstance(request, Vote):
        return request.candidate.node_id
    if isinstance(request, UpdateVoter):
        return request.voter.node_id
    return request.leader_id if isinstance(request, BeginQuorumEpoch | EndQuorumEpoch) else request.replica.node_id


@dataclass
class Disk:
    """What outlives a process: batches, how many of them are synced, the vote, snapshots with the voters in them."""

    batches: list[bytes] = field(default_factory=list)
    start_offset: int = 0
    synced_offset: int = 0
    #: Noted without a sync, as a lower bound.
    committed_offset: int = 0
    election: ElectionState | None = None
    snapshots: dict[SnapshotId, list[ControlRecord]] = field(default_factory=dict)

    @property
    def end_offset(self) -> int:
        return BatchView(self.batches[-1]).last_offset + 1 if self.batches else self.start_offset

    def truncate(self, offset: int) -> None:
        self.batches = [each for each in self.batches if BatchView(each).last_offset < offset]
        self.synced_offset = min(self.synced_offset, offset)

    def found(self) -> FoundReplica:
        epochs: list[tuple[int, int]] = []
        controls = []
        newest = max(self.snapshots, default=None)
        if newest is not None:
            controls += [(newest.end_offset - 1, record) for record in self.snapshots[newest]]
        for each in self.batches:
            batch = read_batch(BatchView(each))
            if not epochs or epochs[-1][0] != batch.epoch:
                epochs.append((batch.epoch, batch.base_offset))
            controls += [(batch.base_offset + place, record) for place, record in enumerate(batch.controls)]
        return FoundReplica(
            self.election,
            self.start_offset,
            self.end_offset,
            epochs,
            sorted(self.snapshots),
            controls,
            min(self.committed_offset, self.end_offset),
        )

    def copy(self) -> Disk:
        return replace(self, batches=list(self.batches), snapshots=dict(self.snapshots))


@dataclass
class Replica:
    key: ReplicaKey
    is_voter: bool
    #: All that it knows of others, if its settings name no voters.
    bootstrap: Sequence[Address] | None = None
    disk: Disk = field(default_factory=Disk)
    backup: Disk | None = None
    machine: ToldMachine | None = None
    #: Whether the machine is off, so that it does not even refuse connections.
    is_off: bool = False
    syncs_hang: bool = False


@dataclass
class Asked:
    """A request, until it is answered or given up."""

    machine: RaftMachine | None
    source: int
    target: int
    #: As the asker knows it; what arrives has been on the wire.
    request: RaftRequest
    timeout_at_ms: float


@dataclass
class Message:
    """In flight: what happens when it arrives."""

    at_ms: int
    arrive: Callable[[], None]


class ToldMachine(RaftMachine):
    """Keeps what it went through, also when one thing led to the next within one step."""

    changes: list[tuple[Role, Role, int, int]]

    def _change(self, new: RaftState, now_ms: int) -> None:
        self.changes.append((self.state.role, new.role, self.epoch, new.leader_id))
        super()._change(new, now_ms)
