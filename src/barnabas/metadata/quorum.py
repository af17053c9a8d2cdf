"""The port to the metadata quorum: a log of opaque records that a majority keeps, led by one node at a time.

Whatever fills it knows records as bytes, epochs and offsets, and nothing of topics. Its owner is told what was
committed, in the order of the log, and who leads; to write, it must lead. What the records mean, what a new leader
writes first, and when a snapshot is due are the owner's business.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, Self

from barnabas.base.ids import Uuid

NO_LEADER_ID: Final = -1
CHECKPOINT_SUFFIX: Final = ".checkpoint"

_SNAPSHOT_NAME: Final = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")


class LeaderAndEpoch(NamedTuple):
    """Who leads in an epoch; -1 while nobody is known to."""

    leader_id: int
    epoch: int


class SnapshotId(NamedTuple):
    """Which state a snapshot holds: all before `end_offset`, the last of it written in `epoch`. They sort by age."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}{CHECKPOINT_SUFFIX}"

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """The id that a file's name tells, if it is a finished snapshot's."""
        match = _SNAPSHOT_NAME.fullmatch(name)
        return cls(int(match[1]), int(match[2])) if match else None


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """Records that will not be lost any more. Offsets count every record of the log: a batch without values is one
    that the quorum wrote for itself."""

    base_offset: int
    last_offset: int
    epoch: int
    append_time_ms: int
    size_bytes: int
    values: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole state as of an offset. `last_contained_ms` is when the last record in it was written to the log."""

    snapshot_id: SnapshotId
    last_contained_ms: int
    values: Iterable[bytes]


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


class QuorumListener(Protocol):
    """The owner of the log. Each is told once, in order; one that raises ends the quorum."""

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """Forget what you know: the state is this."""
        ...

    def on_commit(self, batch: CommittedBatch) -> None: ...

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Somebody leads, or nobody. A node hears of itself once it was told all that was written before its epoch."""
        ...


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
