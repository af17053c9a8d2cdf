"""What can be asked of a group coordinator: each request with its operation, and with its answer if that is not run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from barnabas.base.error_codes import ErrorCode
from barnabas.coordinator.classic import join, membership, responses, sync
from barnabas.coordinator.classic.members import Client
from barnabas.coordinator.config import GroupCoordinatorConfig
from barnabas.coordinator.deletion import delete_failed, delete_group
from barnabas.coordinator.offsets import commits, txn_commits
from barnabas.coordinator.results import CoordinatorResult, Now, Operation, Token
from barnabas.coordinator.shard import GroupCoordinatorShard
from barnabas.wire.messages.delete_groups import DeletableGroupResult
from barnabas.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from barnabas.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from barnabas.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from barnabas.wire.schema import Struct

Q = TypeVar("Q")
R = TypeVar("R", bound=Struct)


class Caller(NamedTuple):
    """Who asks, as far as groups are concerned."""

    version: int
    client: Client


class _OfGroup(Protocol):
    group_id: str


class VerifiedTxnOffsetCommit(NamedTuple):
    """Offsets that are to be written in a transaction, and the proof that their partition belongs to it."""

    request: TxnOffsetCommitRequest
    guard: object


def _none(_: GroupCoordinatorConfig, __: object) -> ErrorCode:
    return ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class GroupRequest(Generic[Q, R]):
    """A kind of request. Those for one group are served in the order in which they come."""

    group_id: Callable[[Q], str]
    run: Callable[[GroupCoordinatorShard, Q, Caller, Token, Now], CoordinatorResult]
    failed: Callable[[Q, ErrorCode], R]
    #: What is wrong with it whatever the group, so that it need not be looked for.
    refusal: Callable[[GroupCoordinatorConfig, Q], ErrorCode] = _none
    is_blind: bool = False
    #: For those that never write, by the monotonic clock: the same answer without an operation, where no records wait
    #: that it must see. Very many of them come.
    answer: Callable[[GroupCoordinatorShard, Q, int], R] | None = None

    def operation(self, request: Q, caller: Caller, shard: GroupCoordinatorShard, token: Token) -> Operation:
        return Operation(
            self.group_id(request),
            partial(self.run, shard, request, caller, token),
            token,
            partial(self.failed, request),
            self.is_blind,
        )


def _without_group_id(_: GroupCoordinatorConfig, request: _OfGroup) -> ErrorCode:
    return ErrorCode.NONE if request.group_id else ErrorCode.INVALID_GROUP_ID


JOIN_GROUP: Final[GroupRequest[JoinGroupRequest, JoinGroupResponse]] = GroupRequest(
    lambda request: request.group_id,
    lambda shard, request, caller, token, now: join.join(
        shard.groups, request, caller.version, caller.client, token, now
    ),
    lambda request, error: responses.join_failed(error, request.member_id),
    join.refusal,
)
SYNC_GROUP: Final[GroupRequest[SyncGroupRequest, SyncGroupResponse]] = GroupRequest(
    lambda request: request.group_id,
    lambda shard, request, _, token, __: sync.sync(shard.groups, request, token),
    lambda _, error: responses.sync_failed(error),
    _without_group_id,
)
HEARTBEAT: Final[GroupRequest[HeartbeatRequest, HeartbeatResponse]] = GroupRequest(
    lambda request: request.group_id,
    lambda shard, request, _, __, now: CoordinatorResult(
        response=membership.heartbeat(shard.groups, request, now.monotonic_ms)
    ),
    membership.heartbeat_failed,
    _without_group_id,
    answer=lambda shard, request, now_ms: membership.heartbeat(shard.groups, request, now_ms),
)
LEAVE_GROUP: Final[GroupRequest[LeaveGroupRequest, LeaveGroupResponse]] = GroupRequest(
    lambda request: request.group_id,
    lambda shard, request, _, __, now: membership.leave(shard.groups, request, now),
    membership.leave_failed,
    _without_group_id,
)
#: Very many of them come for one group, and none looks at the offsets: they share batches.
OFFSET_COMMIT: Final[GroupRequest[OffsetCommitRequest, OffsetCommitResponse]] = GroupRequest(
    lambda request: request.group_id,
    lambda shard, request, caller, _, now: commits.commit(shard.groups, request, caller.version, now),
    commits.commit_failed,
    is_blind=True,
)
OFFSET_DELETE: Final[GroupRequest[OffsetDeleteRequest, OffsetDeleteResponse]] = GroupRequest(
    lambda request: request.group_id,
    lambda shard, request, *_: commits.delete(shard.groups, shard.offsets, request),
    commits.delete_failed,
    _without_group_id,
)
#: As OFFSET_COMMIT, each in a batch of its own.
TXN_OFFSET_COMMIT: Final[GroupRequest[VerifiedTxnOffsetCommit, TxnOffsetCommitResponse]] = GroupRequest(
    lambda asked: asked.request.group_id,
    lambda shard, asked, _, __, now: txn_commits.commit(shard.groups, asked.request, asked.guard, now),
    lambda asked, error: txn_commits.commit_failed(asked.request, error),
    lambda config, asked: _without_group_id(config, asked.request),
    is_blind=True,
)
#: For one group of a DeleteGroups request.
DELETE_GROUP: Final[GroupRequest[str, DeletableGroupResult]] = GroupRequest(
    lambda group_id: group_id,
    lambda shard, group_id, *_: delete_group(shard.groups, shard.offsets, group_id),
    delete_failed,
)
