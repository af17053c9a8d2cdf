"""What the machine wants done, as values. The driver does them in this order; a `SaveElection` with a vote or an epoch
that is not on disk holds up all that follows it until it is, so whatever a replica says after it survives a crash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from barnabas.base.error_codes import ErrorCode
from barnabas.raft.batches import ControlRecord
from barnabas.raft.messages import FetchResult, FetchSnapshotResult, RaftRequest, RaftResult
from barnabas.raft.types import Address, ElectionState, LeaderAndEpoch, SnapshotId
from barnabas.records.batch import BatchView

#: Names a request of a peer until it is answered; the driver knows what it stands for.
ReplyTo: TypeAlias = object


@dataclass(frozen=True, slots=True)
class SaveElection:
    """Write `quorum-state`, and go on when the epoch and the vote in it are safe. Who leads need not be: it is a hint
    for the next start."""

    state: ElectionState
    kraft_version: int
    voter_ids: tuple[int, ...]


class Append(NamedTuple):
    """Write records of the application, as the leader."""

    base_offset: int
    values: Sequence[bytes]
    epoch: int


@dataclass(frozen=True, slots=True)
class AppendControl:
    """Write records of the quorum itself, as the leader."""

    base_offset: int
    records: Sequence[ControlRecord]
    epoch: int


class AppendFetched(NamedTuple):
    """Write whole batches as the leader sent them. They were looked at (`check_fetched`)."""

    base_offset: int
    data: memoryview
    batches: Sequence[BatchView]


@dataclass(frozen=True, slots=True)
class Truncate:
    """Forget all from `offset` on."""

    offset: int


@dataclass(frozen=True, slots=True)
class SyncLog:
    """Make safe what was written. It holds up nothing; when it is done, tell `synced`."""


class Send(NamedTuple):
    """Ask a peer."""

    to: Address
    request: RaftRequest


class Answer(NamedTuple):
    """Answer a peer."""

    reply_to: ReplyTo
    result: RaftResult


class AnswerFetch(NamedTuple):
    """Answer a peer with `result` and the records from `offset` on, as many as fit."""

    reply_to: ReplyTo
    result: FetchResult
    offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class AnswerFetchSnapshot:
    """Answer a peer with `result` and a piece of the snapshot's file."""

    reply_to: ReplyTo
    result: FetchSnapshotResult
    max_bytes: int


class Commit(NamedTuple):
    """All before `high_watermark` is committed: tell the owner."""

    high_watermark: int


@dataclass(frozen=True, slots=True)
class TellLeader:
    """Tell the owner who leads."""

    leader: LeaderAndEpoch


@dataclass(frozen=True, slots=True)
class ReceiveSnapshot:
    """A piece of a snapshot came. With the last one, finish it and tell `snapshot_received`."""

    snapshot_id: SnapshotId
    position: int
    data: memoryview
    is_last: bool


@dataclass(frozen=True, slots=True)
class AbandonSnapshot:
    """The snapshot that was being received is not wanted any more."""


@dataclass(frozen=True, slots=True)
class StartAnew:
    """Replace the whole log by a snapshot that was received, and give it to the owner."""

    snapshot_id: SnapshotId


@dataclass(frozen=True, slots=True)
class VotersChanged:
    """A change of the voters that was asked for has ended, with or without an error."""

    token: object
    error: ErrorCode
    reason: str = ""


Effect: TypeAlias = (
    SaveElection
    | Append
    | AppendControl
    | AppendFetched
    | Truncate
    | SyncLog
    | Send
    | Answer
    | AnswerFetch
    | AnswerFetchSnapshot
    | Commit
    | TellLeader
    | ReceiveSnapshot
    | AbandonSnapshot
    | StartAnew
    | VotersChanged
)
