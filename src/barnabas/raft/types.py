"""What all of Raft speaks of: replicas, epochs, offsets, snapshots, and what was committed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, Self

from barnabas.base.ids import Uuid

NO_LEADER_ID: Final = -1
CHECKPOINT_SUFFIX: Final = ".checkpoint"

_SNAPSHOT_NAME: Final = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")


class ReplicaKey(NamedTuple):
    """One copy of the log: a node, and which of its disks. A node with a new disk is another replica.

    Quorums whose voters stand in their settings (kraft.version 0) know no directories: theirs is `Uuid.ZERO`.
    """

    node_id: int
    directory_id: Uuid = Uuid.ZERO

    def __str__(self) -> str:
        return str(self.node_id) if self.directory_id == Uuid.ZERO else f"{self.node_id}@{self.directory_id}"


class Address(NamedTuple):
    """Where a replica listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class OffsetAndEpoch(NamedTuple):
    """A place in the history: the end offset of a log, and the epoch of the record before it."""

    offset: int
    epoch: int


class LeaderAndEpoch(NamedTuple):
    """Who leads in an epoch; -1 while nobody is known to."""

    leader_id: int
    epoch: int


class LossCause(Enum):
    """Why a replica has no leader any more, or leads no more."""

    SILENT = "the leader was not heard of"
    GONE = "the leader's process was seen to end"
    RESIGNED = "the leader said that it resigns, or this one did as it was told to"
    UNHEARD = "this one led, and no majority fetched from it"
    OUTVOTED = "another began an epoch"


class LeaderLoss(NamedTuple):
    """How a replica lost its leader, which may be itself. `silent_ms`: for how long too little was heard;
    `other_id`: who began another epoch, -1 if nobody said."""

    cause: LossCause
    leader_id: int
    epoch: int
    silent_ms: int = 0
    other_id: int = NO_LEADER_ID


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
class ElectionState:
    """What `quorum-state` keeps: the epoch, who leads in it, and whom this replica voted for in it."""

    epoch: int
    leader_id: int = NO_LEADER_ID
    voted: ReplicaKey | None = None


class WrittenBatch(NamedTuple):
    """Where a change lies, when it was written, and how large it is."""

    first_offset: int
    last_offset: int
    append_time_ms: int
    size_bytes: int


class CommittedBatch(NamedTuple):
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
