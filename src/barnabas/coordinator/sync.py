"""SyncGroup: the leader hands in the assignment, everyone gets theirs once it is in the log."""

from __future__ import annotations

from barnabas.base.error_codes import ErrorCode
from barnabas.coordinator import responses
from barnabas.coordinator.effects import Now, Token, Write
from barnabas.coordinator.group import Group
from barnabas.coordinator.members import NO_ASSIGNMENT
from barnabas.coordinator.rebalance import (
    answer_sync,
    prepare_rebalance,
    restart_session,
    sync_key,
    withdraw_assignment,
)
from barnabas.coordinator.records import group_record
from barnabas.coordinator.state import ShardState
from barnabas.coordinator.states import GroupState
from barnabas.wire.messages.sync_group import SyncGroupRequest


def sync(shard: ShardState, request: SyncGroupRequest, token: Token, now: Now) -> None:
    group = shard.groups.get(request.group_id)
    error = _error_of(group, request)
    if error is not ErrorCode.NONE or group is None:
        shard.reply(token, responses.sync_failed(error))
        return
    member = group.members[request.member_id]
    group.pending_sync.pop(member.member_id, None)
    if not group.pending_sync:
        shard.timers.cancel(sync_key(group.group_id))
    if group.state is GroupState.STABLE:
        shard.reply(token, responses.synced(group, member))
        return
    # An earlier request that is still parked was given up by its client.
    answer_sync(shard, member, responses.sync_failed(ErrorCode.REBALANCE_IN_PROGRESS))
    member.sync_token = token
    if group.leader_id == member.member_id:
        _write_assignment(shard, group, request, now)


def _error_of(group: Group | None, request: SyncGroupRequest) -> ErrorCode:
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if group is None or group.state is GroupState.EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.check_member(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if _differ(request.protocol_type, group.protocol_type) or _differ(request.protocol_name, group.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _differ(asked: str | None, known: str | None) -> bool:
    return asked is not None and known is not None and asked != known


def _write_assignment(shard: ShardState, group: Group, request: SyncGroupRequest, now: Now) -> None:
    handed_in = {each.member_id: bytes(each.assignment) for each in request.assignments}
    assignments = {member_id: handed_in.get(member_id, NO_ASSIGNMENT) for member_id in group.members}
    generation = group.generation

    def is_still_so() -> bool:
        return (
            shard.groups.get(group.group_id) is group
            and group.state is GroupState.COMPLETING_REBALANCE
            and group.generation == generation
        )

    def commit(then: Now) -> None:
        if not is_still_so():
            return
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, NO_ASSIGNMENT)
            if answer_sync(shard, member, responses.synced(group, member)):
                # While it waited, the end of its session was passed over.
                restart_session(shard, group, member, then)
        group.is_committed = True
        group.move_to(GroupState.STABLE, then.wall_ms)

    def fail(error: ErrorCode, _: bool, then: Now) -> None:
        if is_still_so():
            withdraw_assignment(shard, group, error, then)
            prepare_rebalance(shard, group, then)

    shard.stage(Write([group_record(group, assignments)], on_commit=commit, on_failure=fail), now)
