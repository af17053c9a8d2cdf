"""SyncGroup: the leader hands in the assignment, everyone gets theirs once it is in the log."""

from __future__ import annotations

from barnabas.base.error_codes import ErrorCode
from barnabas.coordinator.classic import responses
from barnabas.coordinator.classic.group import ClassicGroup
from barnabas.coordinator.classic.members import NO_ASSIGNMENT
from barnabas.coordinator.classic.rebalance import prepare_rebalance, restart_session, withdraw_assignment
from barnabas.coordinator.classic.records import group_record
from barnabas.coordinator.classic.states import ClassicGroupState
from barnabas.coordinator.group_metadata_manager import GroupMetadataManager, sync_key
from barnabas.coordinator.results import NO_RECORDS, CoordinatorResult, Now, Records, Token, WriteCallback
from barnabas.wire.messages.sync_group import SyncGroupRequest


def sync(manager: GroupMetadataManager, request: SyncGroupRequest, token: Token) -> CoordinatorResult:
    group = manager.find(request.group_id)
    error = _error_of(group, request)
    if error is not ErrorCode.NONE or group is None:
        return CoordinatorResult(response=responses.sync_failed(error))
    member = group.members[request.member_id]
    group.pending_sync.pop(member.member_id, None)
    if not group.pending_sync:
        manager.timer.cancel(sync_key(group.group_id))
    if group.state is ClassicGroupState.STABLE:
        return CoordinatorResult(response=responses.synced(group, member))
    # An earlier request that is still parked was given up by its client.
    manager.answer_sync(member, responses.sync_failed(ErrorCode.REBALANCE_IN_PROGRESS))
    member.sync_token = token
    if group.leader_id != member.member_id:
        return CoordinatorResult()
    handed_in = {each.member_id: bytes(each.assignment) for each in request.assignments}
    assignments = {member_id: handed_in.get(member_id, NO_ASSIGNMENT) for member_id in group.members}
    record = group_record(group, group.members.values(), group.leader_id, assignments)
    return CoordinatorResult([record], callback=_AssignmentWritten(manager, group, assignments))


def _error_of(group: ClassicGroup | None, request: SyncGroupRequest) -> ErrorCode:
    if group is None or group.state is ClassicGroupState.EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.check_member(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if _differ(request.protocol_type, group.protocol_type) or _differ(request.protocol_name, group.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _differ(asked: str | None, known: str | None) -> bool:
    return asked is not None and known is not None and asked != known


class _AssignmentWritten(WriteCallback):
    """The members get their assignment when it is committed. If that is not known in time, the group begins again."""

    __slots__ = ("_assignments", "_generation", "_group", "_manager")

    def __init__(self, manager: GroupMetadataManager, group: ClassicGroup, assignments: dict[str, bytes]) -> None:
        self._manager = manager
        self._group = group
        self._generation = group.generation
        self._assignments = assignments

    def committed(self, now: Now) -> Records:
        if self._is_still_awaited():
            for member in self._group.members.values():
                member.assignment = self._assignments.get(member.member_id, NO_ASSIGNMENT)
                if self._manager.answer_sync(member, responses.synced(self._group, member)):
                    # While it waited, the end of its session was passed over.
                    restart_session(self._manager, self._group, member, now)
            self._group.move_to(ClassicGroupState.STABLE, now.wall_ms)
        return NO_RECORDS

    def failed(self, error: ErrorCode, now: Now) -> Records:
        if not self._is_still_awaited():
            return NO_RECORDS
        withdraw_assignment(self._manager, self._group, error, now)
        return prepare_rebalance(self._manager, self._group, now)

    def _is_still_awaited(self) -> bool:
        """Whether no rebalance has begun meanwhile."""
        return (
            self._manager.active.get(self._group.group_id) is self._group
            and self._group.state is ClassicGroupState.COMPLETING_REBALANCE
            and self._group.generation == self._generation
        )
