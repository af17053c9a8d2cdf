"""The end of groups and offsets: on request, by age, and with the topics that they were about."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from math import ceil
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.coordinator.classic.group import ClassicGroup
from barnabas.coordinator.classic.records import group_tombstone
from barnabas.coordinator.classic.states import ClassicGroupState
from barnabas.coordinator.group_metadata_manager import GroupMetadataManager
from barnabas.coordinator.offsets.manager import NO_EXPIRY_MS, CommittedOffset, OffsetMetadataManager
from barnabas.coordinator.offsets.records import offset_tombstone
from barnabas.coordinator.results import NO_RECORDS, CoordinatorResult, Now, Operation, Records, WriteCallback
from barnabas.coordinator.timer import Key
from barnabas.wire.messages.delete_groups import DeletableGroupResult

_SWEEP: Final[Key] = ("sweep",)
#: So many tombstones go into one write at most; nobody waits for them.
_TOMBSTONES_PER_WRITE: Final = 1_000


def delete_group(manager: GroupMetadataManager, offsets: OffsetMetadataManager, group_id: str) -> CoordinatorResult:
    """Delete a group that has no members, with its offsets."""
    group = manager.find(group_id)
    if group is None:
        return CoordinatorResult(response=delete_failed(group_id, ErrorCode.GROUP_ID_NOT_FOUND))
    if group.state is not ClassicGroupState.EMPTY:
        return CoordinatorResult(response=delete_failed(group_id, ErrorCode.NON_EMPTY_GROUP))
    records = [*_tombstones(group_id, offsets.known_partitions(group_id)), group_tombstone(group_id)]
    return CoordinatorResult(records, DeletableGroupResult(group_id=group_id), _GroupDeleted(manager, group_id))


def delete_failed(group_id: str, error: ErrorCode) -> DeletableGroupResult:
    return DeletableGroupResult(group_id=group_id, error_code=error)


class _GroupDeleted(WriteCallback):
    """Who was told to come back to the group finds it gone."""

    __slots__ = ("_group_id", "_manager")

    def __init__(self, manager: GroupMetadataManager, group_id: str) -> None:
        self._manager = manager
        self._group_id = group_id

    def appended(self, now: Now) -> Records:
        self._manager.drop(self._group_id)
        return NO_RECORDS


def _tombstones(group_id: str, partitions: Iterable[TopicPartition]) -> Records:
    return [offset_tombstone(group_id, partition) for partition in partitions]


def forget_topic(offsets: OffsetMetadataManager, topic: str, _: Now) -> CoordinatorResult:
    """Forget what groups have read of a topic."""
    operations = [
        Operation(
            group_id, partial(_forget, group_id, partitions[start : start + _TOMBSTONES_PER_WRITE]), is_blind=True
        )
        for group_id, partitions in offsets.groups_with(topic)
        for start in range(0, len(partitions), _TOMBSTONES_PER_WRITE)
    ]
    return CoordinatorResult(then=operations)


def _forget(group_id: str, partitions: list[TopicPartition], _: Now) -> CoordinatorResult:
    return CoordinatorResult(_tombstones(group_id, partitions))


# By age


def schedule_sweep(manager: GroupMetadataManager, offsets: OffsetMetadataManager, now: Now) -> None:
    """Look for old offsets from time to time."""
    deadline_ms = now.monotonic_ms + manager.config.retention_check_interval_ms
    manager.timer.schedule(_SWEEP, deadline_ms, Operation(None, partial(_sweep, manager, offsets)))


def _sweep(manager: GroupMetadataManager, offsets: OffsetMetadataManager, now: Now) -> CoordinatorResult:
    """Forget what nobody has used for long, and groups of which nothing is left."""
    schedule_sweep(manager, offsets, now)
    operations = []
    for group_id in manager.ids():
        group = manager.peek(group_id)
        expired = 0 if group is None else len(_expired(manager, offsets, group, now.wall_ms))
        if expired or not offsets.latest(group_id):
            expire = Operation(group_id, partial(_expire, manager, offsets, group_id))
            operations += [expire] * max(1, ceil(expired / _TOMBSTONES_PER_WRITE))
    return CoordinatorResult(then=operations)


def _expire(
    manager: GroupMetadataManager, offsets: OffsetMetadataManager, group_id: str, now: Now
) -> CoordinatorResult:
    """Forget old offsets of a group, so many as go into one write, and the group if nothing else is left of it."""
    group = manager.peek(group_id)
    if group is None:
        return CoordinatorResult()
    expired = _expired(manager, offsets, group, now.wall_ms)[:_TOMBSTONES_PER_WRITE]
    records = _tombstones(group_id, expired)
    is_over = (
        group.state is ClassicGroupState.EMPTY
        and not group.pending_join
        and len(expired) == len(offsets.latest(group_id))
        and not offsets.has_transaction(group_id)
    )
    if not is_over:
        return CoordinatorResult(records)
    return CoordinatorResult([*records, group_tombstone(group_id)], callback=_GroupDeleted(manager, group_id))


def _expired(
    manager: GroupMetadataManager, offsets: OffsetMetadataManager, group: ClassicGroup, now_ms: int
) -> list[TopicPartition]:
    return [
        partition
        for partition, value in offsets.latest(group.group_id).items()
        if _is_expired(manager, offsets, group, partition, value, now_ms)
    ]


def _is_expired(
    manager: GroupMetadataManager,
    offsets: OffsetMetadataManager,
    group: ClassicGroup,
    partition: TopicPartition,
    value: CommittedOffset,
    now_ms: int,
) -> bool:
    unused_since_ms = _unused_since_ms(group, value)
    if unused_since_ms is None or group.is_subscribed_to(partition.topic):
        return False
    if value.expire_timestamp_ms != NO_EXPIRY_MS:
        is_old = now_ms >= value.expire_timestamp_ms
    else:
        is_old = now_ms - unused_since_ms >= manager.config.offsets_retention_ms
    return is_old and not offsets.has_transaction(group.group_id, partition)


def _unused_since_ms(group: ClassicGroup, value: CommittedOffset) -> int | None:
    """From when on an offset counts as unused; None while the group may use it."""
    if group.protocol_type is None:
        return value.commit_timestamp_ms
    if group.state is ClassicGroupState.EMPTY:
        return value.commit_timestamp_ms if group.state_since_ms is None else group.state_since_ms
    if group.state is ClassicGroupState.STABLE and group.uses_consumer_protocol and group.subscribed_topics is not None:
        return value.commit_timestamp_ms
    return None
