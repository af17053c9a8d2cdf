"""What replicas say to each other, flat: one log, no lists of topics. `wire_form` makes Kafka's messages of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from barnabas.base.error_codes import ErrorCode
from barnabas.raft.types import Address, LeaderAndEpoch, OffsetAndEpoch, ReplicaKey, SnapshotId

#: The high watermark of a fetcher that does not tell it (before Fetch v18).
UNKNOWN_HIGH_WATERMARK = 0x7FFF_FFFF_FFFF_FFFF


@dataclass(frozen=True, slots=True)
class Vote:
    """Elect me in `epoch`. With `pre_vote`: would you, in the epoch after it? `last` is the end of the asker's log."""

    cluster_id: str | None
    epoch: int
    candidate: ReplicaKey
    #: Whom the asker means; None from versions that do not say so.
    voter: ReplicaKey | None
    last: OffsetAndEpoch
    pre_vote: bool = False


@dataclass(frozen=True, slots=True)
class BeginQuorumEpoch:
    """I lead in `epoch`: fetch from me."""

    cluster_id: str | None
    epoch: int
    leader_id: int
    voter: ReplicaKey | None
    listeners: Mapping[str, Address]


@dataclass(frozen=True, slots=True)
class EndQuorumEpoch:
    """I do not lead in `epoch` any more. `successors` are who should, the best first."""

    cluster_id: str | None
    epoch: int
    leader_id: int
    successors: tuple[ReplicaKey, ...]
    #: Whom it is for. It does not travel.
    voter: ReplicaKey | None = None


class FetchLog(NamedTuple):
    """Send me what follows `offset`; my last record is of `last_fetched_epoch`, and all before `offset` is synced. With
    room for nothing it says that somebody lives, and asks who else does."""

    cluster_id: str | None
    epoch: int
    replica: ReplicaKey
    offset: int
    last_fetched_epoch: int
    high_watermark: int
    max_wait_ms: int
    max_bytes: int

    @property
    def is_sign_of_life(self) -> bool:
        return self.max_bytes <= 0


@dataclass(frozen=True, slots=True)
class FetchSnapshot:
    """Send me a piece of a snapshot."""

    cluster_id: str | None
    epoch: int
    replica: ReplicaKey
    snapshot_id: SnapshotId
    position: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class UpdateVoter:
    """I vote, listen there, and know these levels of kraft.version. The leader answers when that is noted."""

    cluster_id: str | None
    epoch: int
    voter: ReplicaKey
    listeners: Mapping[str, Address]
    min_kraft_version: int
    max_kraft_version: int


@dataclass(frozen=True, slots=True)
class VoteResult:
    """Every result says who leads, as far as its sender knows, and where that one listens."""

    error: ErrorCode
    leader: LeaderAndEpoch
    leader_address: Address | None = None
    granted: bool = False


@dataclass(frozen=True, slots=True)
class EpochResult:
    """The answer to `BeginQuorumEpoch`, `EndQuorumEpoch` and `UpdateVoter`."""

    error: ErrorCode
    leader: LeaderAndEpoch
    leader_address: Address | None = None


class FetchResult(NamedTuple):
    """Records, or where the fetcher's history leaves the leader's, or which snapshot it should load first."""

    error: ErrorCode
    leader: LeaderAndEpoch
    leader_address: Address | None = None
    high_watermark: int = -1
    log_start_offset: int = -1
    diverging: OffsetAndEpoch | None = None
    snapshot_id: SnapshotId | None = None
    records: bytes | bytearray | memoryview = b""

    def with_records(self, records: bytes | bytearray | memoryview) -> FetchResult:
        return FetchResult(*self[:-1], records)

    @property
    def is_same_history(self) -> bool:
        """Whether the fetcher's log is the leader's up to where it fetched."""
        diverges = self.diverging is not None and self.diverging.epoch >= 0
        return not diverges and (self.snapshot_id is None or self.snapshot_id.epoch < 0)


@dataclass(frozen=True, slots=True)
class FetchSnapshotResult:
    """A piece of a snapshot of `size_bytes` in all."""

    error: ErrorCode
    leader: LeaderAndEpoch
    leader_address: Address | None = None
    snapshot_id: SnapshotId | None = None
    size_bytes: int = 0
    position: int = 0
    data: bytes | bytearray | memoryview = b""


RaftRequest: TypeAlias = Vote | BeginQuorumEpoch | EndQuorumEpoch | FetchLog | FetchSnapshot | UpdateVoter
RaftResult: TypeAlias = VoteResult | EpochResult | FetchResult | FetchSnapshotResult
