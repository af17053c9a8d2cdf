"""The records of `__consumer_offsets` that classic groups write."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from barnabas.base.ids import TopicPartition
from barnabas.coordinator.effects import Record
from barnabas.coordinator.group import Group
from barnabas.coordinator.members import NO_ASSIGNMENT
from barnabas.coordinator.offsets import NO_EXPIRY_MS, CommittedOffset
from barnabas.wire.stored.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)

_GROUP_VERSION: Final = 3
_OFFSET_VERSION: Final = 4
#: The only version with a time of expiry.
_EXPIRING_OFFSET_VERSION: Final = 1
_NO_TIMESTAMP_MS: Final = -1


def offset_record(group_id: str, partition: TopicPartition, value: CommittedOffset) -> Record:
    is_expiring = value.expire_timestamp_ms != NO_EXPIRY_MS
    stored = OffsetCommitValue(
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        commit_timestamp=value.commit_timestamp_ms,
        expire_timestamp=value.expire_timestamp_ms,
        topic_id=value.topic_id,
    )
    version = _EXPIRING_OFFSET_VERSION if is_expiring else _OFFSET_VERSION
    return Record(_offset_key(group_id, partition), stored.encode_value(version))


def offset_tombstone(group_id: str, partition: TopicPartition) -> Record:
    return Record(_offset_key(group_id, partition), None)


def _offset_key(group_id: str, partition: TopicPartition) -> bytes:
    return _key_before_partition(group_id, partition.topic) + partition.partition.to_bytes(4, "big", signed=True)


@lru_cache(maxsize=4096)
def _key_before_partition(group_id: str, topic: str) -> bytes:
    """Commits come again and again for the same topics, and the partition is what the key ends with."""
    return OffsetCommitKey(group=group_id, topic=topic, partition=0).encode_key()[:-4]


def new_group_record(group: Group) -> Record:
    """Of a group that somebody has begun to join: nothing is known of it yet."""
    value = GroupMetadataValue(
        protocol_type="",
        generation=0,
        protocol=None,
        leader=None,
        current_state_timestamp=_timestamp_of(group),
        members=[],
    )
    return Record(_group_key(group.group_id), value.encode_value(_GROUP_VERSION))


def group_record(group: Group, assignments: dict[str, bytes]) -> Record:
    """Of a generation: who is in it, and what each was assigned."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader_id,
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
            for member in group.members.values()
        ],
    )
    return Record(_group_key(group.group_id), value.encode_value(_GROUP_VERSION))


def group_tombstone(group_id: str) -> Record:
    return Record(_group_key(group_id), None)


def _group_key(group_id: str) -> bytes:
    return GroupMetadataKey(group=group_id).encode_key()


def _timestamp_of(group: Group) -> int:
    return _NO_TIMESTAMP_MS if group.state_since_ms is None else group.state_since_ms
