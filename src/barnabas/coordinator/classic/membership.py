"""Heartbeat and LeaveGroup: members live, and members go."""

from __future__ import annotations

from barnabas.base.error_codes import ErrorCode
from barnabas.coordinator.classic.group import ClassicGroup
from barnabas.coordinator.classic.members import NO_MEMBER_ID
from barnabas.coordinator.classic.rebalance import (
    complete_if_everyone_joined,
    prepare_rebalance,
    remove_member,
    schedule_session,
)
from barnabas.coordinator.classic.states import ClassicGroupState
from barnabas.coordinator.group_metadata_manager import GroupMetadataManager, session_key
from barnabas.coordinator.results import NO_RECORDS, CoordinatorResult, Now, Records
from barnabas.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse


def heartbeat(manager: GroupMetadataManager, request: HeartbeatRequest, now_ms: int) -> HeartbeatResponse:
    """A member lives: only its deadline moves. The answer tells it whether it must come to the barrier."""
    return HeartbeatResponse(error_code=_beat(manager, request, now_ms))


def heartbeat_failed(_: HeartbeatRequest, error: ErrorCode) -> HeartbeatResponse:
    # While its group is loaded a member has nothing to fear.
    is_loading = error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else error)


def _beat(manager: GroupMetadataManager, request: HeartbeatRequest, now_ms: int) -> ErrorCode:
    group = manager.find(request.group_id)
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.check_member(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is ClassicGroupState.EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    restart_known_session(manager, group, request.member_id, now_ms)
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is ClassicGroupState.PREPARING_REBALANCE else ErrorCode.NONE


def restart_known_session(manager: GroupMetadataManager, group: ClassicGroup, member_id: str, now_ms: int) -> None:
    """What every heartbeat does: as a rule only the deadline moves."""
    deadline_ms = now_ms + group.members[member_id].session_timeout_ms
    if not manager.timer.postpone(session_key(group.group_id, member_id), deadline_ms):
        # Its session ended while its request was parked, which was passed over.
        schedule_session(manager, group.group_id, member_id, deadline_ms)


def leave(manager: GroupMetadataManager, request: LeaveGroupRequest, now: Now) -> CoordinatorResult:
    """Members go, or are sent away by somebody who knows their instance id."""
    group = manager.find(request.group_id)
    if group is None:
        unknown = [_answer(each, ErrorCode.UNKNOWN_MEMBER_ID) for each in request.members]
        return CoordinatorResult(response=LeaveGroupResponse(members=unknown))
    answers = [_answer(each, _remove(manager, group, each)) for each in request.members]
    records: Records = NO_RECORDS
    if any(answer.error_code == ErrorCode.NONE for answer in answers):
        if group.state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE):
            records = prepare_rebalance(manager, group, now)
        else:
            records = complete_if_everyone_joined(manager, group, now)
    return CoordinatorResult(records, LeaveGroupResponse(members=answers), after_writes=True)


def leave_failed(_: LeaveGroupRequest, error: ErrorCode) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=error)


def _remove(manager: GroupMetadataManager, group: ClassicGroup, leaving: MemberIdentity) -> ErrorCode:
    member_id = leaving.member_id
    if member_id == NO_MEMBER_ID:
        known_id = group.static_ids.get(leaving.group_instance_id or "")
        if known_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = known_id
    elif member_id in group.pending_join:
        group.remove(member_id)
        manager.timer.cancel(session_key(group.group_id, member_id))
        return ErrorCode.NONE
    else:
        error = group.check_member(member_id, leaving.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
    remove_member(manager, group, group.members[member_id])
    return ErrorCode.NONE


def _answer(leaving: MemberIdentity, error: ErrorCode) -> MemberResponse:
    return MemberResponse(member_id=leaving.member_id, group_instance_id=leaving.group_instance_id, error_code=error)
