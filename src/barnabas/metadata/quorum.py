"""The port to the metadata quorum: a log of opaque records that a majority keeps, led by one node at a time.

Whatever fills it knows records as bytes, epochs and offsets, and nothing of topics. Its owner, a `RaftListener`, is
told what was committed, in the order of the log, and who leads; to write, it must lead. What the records mean, what a
new leader writes first, and when a snapshot is due are the owner's business.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from barnabas.base.ids import Uuid
from barnabas.raft.types import Address, CommittedBatch, LeaderAndEpoch, Snapshot


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """How far one replica of the log is, as its leader knows."""

    replica_id: int
    directory_id: Uuid
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """What DescribeQuorum tells."""

    leader: LeaderAndEpoch
    high_watermark: int
    voters: Sequence[ReplicaState]
    observers: Sequence[ReplicaState]
    #: Where the voters listen, by the names of their listeners.
    listeners: Mapping[int, Mapping[str, Address]] = field(default_factory=dict)


class Quorum(Protocol):
    """One replica of the log, as its owner sees it."""

    @property
    def node_id(self) -> int: ...

    @property
    def log_end_offset(self) -> int:
        """Where the next record will be written, if this node leads."""
        ...

    @property
    def high_watermark(self) -> int:
        """All before it is committed."""
        ...

    @property
    def is_alone(self) -> bool:
        """Whether this node is the only voter, so that nobody else can lead."""
        ...

    @property
    def has_followers(self) -> bool:
        """Whether anybody else reads the log, as far as this node, if it leads, knows."""
        ...

    @property
    def gone_leader_id(self) -> int | None:
        """Whose process was seen to end while it led, before this node became the leader."""
        ...

    @property
    def why_election(self) -> str | None:
        """What became of the last leader, for a person; None if nothing is known, or it leads."""
        ...

    def append(self, values: Sequence[bytes], epoch: int) -> int:
        """Write records, which get consecutive offsets; that of the last. They are committed later.

        They are one batch, all or none, if they fit into `max_batch_bytes`. Raises `BrokerError` with NOT_CONTROLLER
        unless this node leads in `epoch`.
        """
        ...

    @property
    def max_batch_bytes(self) -> int: ...

    def resign(self, epoch: int) -> None:
        """Stop leading, if this node leads in `epoch`. A sole voter leads again, in the next one."""
        ...

    def read(self, from_offset: int = 0) -> Iterator[CommittedBatch]:
        """What the log holds from an offset on, as far back as it reaches."""
        ...

    async def take_snapshot(self, snapshot: Snapshot) -> None:
        """Write a snapshot and delete what it makes superfluous. Its values are iterated away from the event loop."""
        ...

    def describe(self) -> QuorumDescription: ...

    @property
    def kraft_version(self) -> int:
        """0 if the voters stand in the settings of the nodes, 1 if the log names them."""
        ...

    def upgrade_kraft_version(self, level: int, validate_only: bool) -> None:
        """Put the voters into the log, if this node leads: it is committed with what is appended next. Raises
        `BrokerError` if that cannot be."""
        ...
