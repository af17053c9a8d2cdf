"""The records of `__consumer_offsets` that say how far a group has read."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from barnabas.base.ids import TopicPartition, Uuid
from barnabas.coordinator.offsets.manager import NO_EXPIRY_MS
from barnabas.coordinator.results import CoordinatorRecord, Record
from barnabas.wire.stored.consumer_offsets import OffsetCommitKey, OffsetCommitValue

_VERSION: Final = 4
#: The only version with a time of expiry. It has neither a leader epoch nor a topic id.
_EXPIRING_VERSION: Final = 1
_NO_LEADER_EPOCH: Final = -1


def offset_record(group_id: str, partition: TopicPartition, value: OffsetCommitValue) -> CoordinatorRecord:
    version = _VERSION
    if value.expire_timestamp != NO_EXPIRY_MS:
        version = _EXPIRING_VERSION
        # What this version cannot say is not replayed either.
        value.leader_epoch, value.topic_id = _NO_LEADER_EPOCH, Uuid.ZERO
    key = OffsetCommitKey(group=group_id, topic=partition.topic, partition=partition.partition)
    return CoordinatorRecord(key, value, Record(_key(group_id, partition), value.encode_value(version)))


def offset_tombstone(group_id: str, partition: TopicPartition) -> CoordinatorRecord:
    key = OffsetCommitKey(group=group_id, topic=partition.topic, partition=partition.partition)
    return CoordinatorRecord(key, None, Record(_key(group_id, partition), None))


def _key(group_id: str, partition: TopicPartition) -> bytes:
    return _key_before_partition(group_id, partition.topic) + partition.partition.to_bytes(4, "big", signed=True)


@lru_cache(maxsize=4096)
def _key_before_partition(group_id: str, topic: str) -> bytes:
    """Commits come again and again for the same topics, and the partition is what the key ends with."""
    return OffsetCommitKey(group=group_id, topic=topic, partition=0).encode_key()[:-4]
