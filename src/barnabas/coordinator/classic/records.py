"""The records of `__consumer_offsets` that classic groups write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from barnabas.coordinator.classic.group import ClassicGroup
from barnabas.coordinator.classic.members import NO_ASSIGNMENT, Member
from barnabas.coordinator.results import CoordinatorRecord, Record
from barnabas.wire.stored.consumer_offsets import GroupMetadataKey, GroupMetadataValue, MemberMetadata

_VERSION: Final = 3
_NO_TIMESTAMP_MS: Final = -1


def new_group_record(group: ClassicGroup) -> CoordinatorRecord:
    """Of a group that somebody has begun to join: nothing is known of it yet."""
    return _record(
        group.group_id,
        GroupMetadataValue(
            protocol_type="",
            generation=0,
            protocol=None,
            leader=None,
            current_state_timestamp=_timestamp_of(group),
            members=[],
        ),
    )


def group_record(
    group: ClassicGroup, members: Iterable[Member], leader_id: str | None, assignments: Mapping[str, bytes]
) -> CoordinatorRecord:
    """Of a generation: who is in it, and what each was assigned."""
    return _record(
        group.group_id,
        GroupMetadataValue(
            protocol_type=group.protocol_type or "",
            generation=group.generation,
            protocol=group.protocol,
            leader=leader_id,
            current_state_timestamp=_timestamp_of(group),
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client.client_id,
                    client_host=member.client.host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(group.protocol),
                    assignment=assignments.get(member.member_id, NO_ASSIGNMENT),
                )
                for member in members
            ],
        ),
    )


def group_tombstone(group_id: str) -> CoordinatorRecord:
    key = GroupMetadataKey(group=group_id)
    return CoordinatorRecord(key, None, Record(key.encode_key(), None))


def _record(group_id: str, value: GroupMetadataValue) -> CoordinatorRecord:
    key = GroupMetadataKey(group=group_id)
    return CoordinatorRecord(key, value, Record(key.encode_key(), value.encode_value(_VERSION)))


def _timestamp_of(group: ClassicGroup) -> int:
    return _NO_TIMESTAMP_MS if group.state_since_ms is None else group.state_since_ms
