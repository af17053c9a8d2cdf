"""Answers that more than one operation gives."""

from __future__ import annotations

from barnabas.base.error_codes import ErrorCode
from barnabas.coordinator.classic.group import ClassicGroup
from barnabas.coordinator.classic.members import Member
from barnabas.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from barnabas.wire.messages.sync_group import SyncGroupResponse

__all__ = [
    "JoinGroupResponse",
    "SyncGroupResponse",
    "join_failed",
    "joined",
    "sync_failed",
    "synced",
]

NO_GENERATION = -1


def join_failed(error: ErrorCode, member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error, protocol_name=None, leader="", member_id=member_id, members=[])


def joined(
    group: ClassicGroup, member: Member, *, leader_id: str | None = None, skip_assignment: bool = False
) -> JoinGroupResponse:
    """The present generation as one member sees it. Only its leader is told who else is in it."""
    shown_leader_id = leader_id if leader_id is not None else group.leader_id or ""
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=shown_leader_id,
        skip_assignment=skip_assignment,
        member_id=member.member_id,
        members=all_members(group) if shown_leader_id == member.member_id else [],
    )


def all_members(group: ClassicGroup) -> list[JoinGroupResponseMember]:
    return [
        JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            metadata=member.metadata(group.protocol),
        )
        for member in group.members.values()
    ]


def synced(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
    )


def sync_failed(error: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error, assignment=b"")
