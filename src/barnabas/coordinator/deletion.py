"""The end of groups and offsets: on request, by age, and with the topics that they were about."""

from __future__ import annotations

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.coordinator.commits import deletion
from barnabas.coordinator.effects import Awaited, Now, Token, Write
from barnabas.coordinator.group import Group
from barnabas.coordinator.offsets import NO_EXPIRY_MS, CommittedOffset
from barnabas.coordinator.rebalance import session_key
from barnabas.coordinator.records import group_tombstone
from barnabas.coordinator.state import ShardState
from barnabas.coordinator.states import GroupState
from barnabas.coordinator.timers import Key
from barnabas.wire.messages.delete_groups import DeletableGroupResult

_SWEEP: Key = ("sweep",)
#: So many tombstones go into one write at most; nobody waits for them.
_TOMBSTONES_PER_WRITE = 1_000


def delete_group(shard: ShardState, group_id: str, token: Token, now: Now) -> None:
    """Delete a group that has no members, with its offsets."""
    error = _deletion_error(shard, group_id)
    if error is not ErrorCode.NONE:
        shard.reply(token, DeletableGroupResult(group_id=group_id, error_code=error))
        return
    write = deletion(shard, group_id, shard.offsets.known_partitions(group_id))
    _remove_group(shard, shard.groups[group_id], write)
    write.awaited.append(
        Awaited(
            token,
            DeletableGroupResult(group_id=group_id),
            lambda failure: DeletableGroupResult(group_id=group_id, error_code=failure),
        )
    )
    shard.stage(write, now)


def _deletion_error(shard: ShardState, group_id: str) -> ErrorCode:
    group = shard.groups.get(group_id)
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.NONE if group.state is GroupState.EMPTY else ErrorCode.NON_EMPTY_GROUP


def _remove_group(shard: ShardState, group: Group, write: Write) -> None:
    """Take an empty group out and add its tombstone to a write; if that is not written, the group is back."""
    write.records.append(group_tombstone(group.group_id))
    del shard.groups[group.group_id]
    for member_id in list(group.pending_join):
        shard.timers.cancel(session_key(group.group_id, member_id))
    group.pending_join.clear()

    def fail(_error: ErrorCode, is_in_log: bool, _now: Now) -> None:
        if not is_in_log:
            shard.groups.setdefault(group.group_id, group)

    write.on_failure = fail


def forget_topic(shard: ShardState, topic: str, now: Now) -> None:
    """A topic is deleted: one that comes after it under its name must not begin where others left it."""
    for group_id, partitions in list(shard.offsets.groups_with(topic)):
        _stage_tombstones(shard, group_id, partitions, now)


def _stage_tombstones(shard: ShardState, group_id: str, partitions: list[TopicPartition], now: Now) -> None:
    for start in range(0, len(partitions), _TOMBSTONES_PER_WRITE):
        shard.stage(deletion(shard, group_id, partitions[start : start + _TOMBSTONES_PER_WRITE]), now)


# By age


def schedule_sweep(shard: ShardState, now: Now) -> None:
    """Look for old offsets from time to time."""

    def fire(then: Now) -> None:
        sweep(shard, then)
        schedule_sweep(shard, then)

    shard.timers.schedule(_SWEEP, now.monotonic_ms + shard.limits.retention_check_interval_ms, fire)


def sweep(shard: ShardState, now: Now) -> None:
    """Forget what nobody has used for long, and groups of which nothing is left."""
    for group in list(shard.groups.values()):
        offsets = shard.offsets.latest(group.group_id)
        expired = [
            partition
            for partition, value in offsets.items()
            if _is_expired(shard, group, partition, value, now.wall_ms)
        ]
        if expired:
            _stage_tombstones(shard, group.group_id, expired, now)
        is_over = group.state is GroupState.EMPTY and not group.pending_join and len(expired) == len(offsets)
        if is_over and not shard.offsets.has_transaction(group.group_id):
            write = Write([])
            _remove_group(shard, group, write)
            shard.stage(write, now)


def _is_expired(
    shard: ShardState, group: Group, partition: TopicPartition, value: CommittedOffset, now_ms: int
) -> bool:
    unused_since_ms = _unused_since_ms(group, value)
    if unused_since_ms is None or group.is_subscribed_to(partition.topic):
        return False
    if value.expire_timestamp_ms != NO_EXPIRY_MS:
        is_old = now_ms >= value.expire_timestamp_ms
    else:
        is_old = now_ms - unused_since_ms >= shard.limits.offsets_retention_ms
    return is_old and not shard.offsets.has_transaction(group.group_id, partition)


def _unused_since_ms(group: Group, value: CommittedOffset) -> int | None:
    """From when on an offset counts as unused; None while the group may use it."""
    if group.protocol_type is None:
        return value.commit_timestamp_ms
    if group.state is GroupState.EMPTY:
        return value.commit_timestamp_ms if group.state_since_ms is None else group.state_since_ms
    if group.state is GroupState.STABLE and group.uses_consumer_protocol and group.subscribed_topics is not None:
        return value.commit_timestamp_ms
    return None
