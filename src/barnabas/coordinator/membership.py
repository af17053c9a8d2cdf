"""Heartbeat and LeaveGroup: members live, and members go."""

from __future__ import annotations

from barnabas.base.error_codes import ErrorCode
from barnabas.coordinator.effects import Awaited, Now, Token
from barnabas.coordinator.group import Group
from barnabas.coordinator.members import NO_MEMBER_ID
from barnabas.coordinator.rebalance import (
    complete_if_everyone_joined,
    prepare_rebalance,
    remove_member,
    schedule_session,
    session_key,
)
from barnabas.coordinator.state import ShardState
from barnabas.coordinator.states import GroupState
from barnabas.wire.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse


def heartbeat(
    shard: ShardState, group_id: str, generation: int, member_id: str, instance_id: str | None, now_ms: int
) -> ErrorCode:
    """A member lives. The answer tells it whether it must come to the barrier."""
    if not group_id:
        return ErrorCode.INVALID_GROUP_ID
    group = shard.groups.get(group_id)
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.check_member(member_id, instance_id)
    if error is not ErrorCode.NONE:
        return error
    if generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    restart_known_session(shard, group, member_id, now_ms)
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is GroupState.PREPARING_REBALANCE else ErrorCode.NONE


def restart_known_session(shard: ShardState, group: Group, member_id: str, now_ms: int) -> None:
    """What every heartbeat does: as a rule only the deadline moves."""
    deadline_ms = now_ms + group.members[member_id].session_timeout_ms
    if not shard.timers.postpone(session_key(group.group_id, member_id), deadline_ms):
        # Its session ended while its request was parked, which was passed over.
        schedule_session(shard, group.group_id, member_id, deadline_ms)


def leave(shard: ShardState, group_id: str, leaving: list[MemberIdentity], token: Token, now: Now) -> None:
    """Members go, or are sent away by somebody who knows their instance id."""
    if not group_id:
        shard.reply(token, LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
        return
    group = shard.groups.get(group_id)
    if group is None:
        unknown = [_answer(each, ErrorCode.UNKNOWN_MEMBER_ID) for each in leaving]
        shard.reply(token, LeaveGroupResponse(members=unknown))
        return
    answers = [_answer(each, _remove(shard, group, each)) for each in leaving]
    if any(answer.error_code == ErrorCode.NONE for answer in answers):
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            prepare_rebalance(shard, group, now)
        else:
            complete_if_everyone_joined(shard, group, now)
    response = LeaveGroupResponse(members=answers)
    shard.reply_after_writes(Awaited(token, response, lambda error: LeaveGroupResponse(error_code=error)))


def _remove(shard: ShardState, group: Group, leaving: MemberIdentity) -> ErrorCode:
    member_id = leaving.member_id
    if member_id == NO_MEMBER_ID:
        known_id = group.static_ids.get(leaving.group_instance_id or "")
        if known_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = known_id
    elif member_id in group.pending_join:
        group.remove(member_id)
        shard.timers.cancel(session_key(group.group_id, member_id))
        return ErrorCode.NONE
    else:
        error = group.check_member(member_id, leaving.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
    remove_member(shard, group, group.members[member_id])
    return ErrorCode.NONE


def _answer(leaving: MemberIdentity, error: ErrorCode) -> MemberResponse:
    return MemberResponse(member_id=leaving.member_id, group_instance_id=leaving.group_instance_id, error_code=error)
