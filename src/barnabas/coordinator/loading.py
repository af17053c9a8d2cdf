"""Reading a shard back from its partition.

Records are taken in as they lie in the log. Offsets of a transaction wait for its marker; a transaction that has none
yet is still open. Types of records that we do not know belong to newer brokers, or to kinds of groups that are not
built, and are passed over.
"""

from __future__ import annotations

from barnabas.base.ids import TopicPartition
from barnabas.coordinator.effects import Now
from barnabas.coordinator.group import Group
from barnabas.coordinator.members import Client, Member, Protocol
from barnabas.coordinator.offsets import CommittedOffset
from barnabas.coordinator.rebalance import prepare_rebalance, restart_session
from barnabas.coordinator.state import ShardState
from barnabas.coordinator.states import GroupState
from barnabas.records.batch import NO_PRODUCER_ID, BatchView
from barnabas.records.control import read_marker
from barnabas.records.reading import iter_entries
from barnabas.wire.compiler import Buffer
from barnabas.wire.stored.consumer_offsets import (
    GroupKey,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupValue,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
    OffsetCommitValue,
)

_NO_TIMESTAMP_MS = -1
_NO_TIMEOUT_MS = -1


def load_batches(shard: ShardState, data: Buffer, now_ms: int) -> int | None:
    """Take in whole batches, which follow those of the call before; where they end, or None if there were none."""
    next_offset = None
    for entry in iter_entries(data):
        next_offset = entry.next_offset
        producer_id = NO_PRODUCER_ID
        if isinstance(entry, BatchView):
            if entry.is_control:
                marker = read_marker(entry)
                if marker is not None:
                    shard.offsets.end_transaction(marker.producer_id, committed=marker.committed)
                continue
            if entry.is_transactional:
                producer_id = entry.producer_id
        for record in entry.records():
            if record.key is not None:
                replay(shard, record.key, record.value, record.offset, producer_id, now_ms)
    return next_offset


def replay(
    shard: ShardState,
    key: bytes,
    value: bytes | None,
    record_offset: int,
    producer_id: int = NO_PRODUCER_ID,
    now_ms: int = _NO_TIMESTAMP_MS,
) -> None:
    """Take in one record."""
    decoded = GroupKey.decode_key(key)
    match decoded:
        case OffsetCommitKey() | LegacyOffsetCommitKey():
            partition = TopicPartition(decoded.topic, decoded.partition)
            if value is None:
                shard.offsets.replay(decoded.group, partition, None)
                return
            stored = GroupValue.decode_value(OffsetCommitKey.TYPE, value)
            _replay_offset(shard, decoded.group, partition, stored, record_offset, producer_id, now_ms)
        case GroupMetadataKey():
            if value is None:
                shard.groups.pop(decoded.group, None)
            else:
                stored_group = GroupValue.decode_value(GroupMetadataKey.TYPE, value)
                shard.groups[decoded.group] = _restored(decoded.group, stored_group)


def _replay_offset(
    shard: ShardState,
    group_id: str,
    partition: TopicPartition,
    stored: OffsetCommitValue,
    record_offset: int,
    producer_id: int,
    now_ms: int,
) -> None:
    if group_id not in shard.groups:
        group = shard.groups[group_id] = Group(group_id, now_ms)
        group.is_committed = True
    shard.offsets.replay(group_id, partition, CommittedOffset.from_value(stored, record_offset), producer_id)


def _restored(group_id: str, stored: GroupMetadataValue) -> Group:
    since_ms = stored.current_state_timestamp
    group = Group(group_id, since_ms)
    group.state_since_ms = None if since_ms == _NO_TIMESTAMP_MS else since_ms
    group.is_committed = True
    group.generation = stored.generation
    group.protocol = stored.protocol
    group.leader_id = stored.leader
    for each in stored.members:
        member = Member(
            each.member_id,
            each.group_instance_id,
            Client(each.client_id, each.client_host),
            each.session_timeout if each.rebalance_timeout == _NO_TIMEOUT_MS else each.rebalance_timeout,
            each.session_timeout,
            # The log keeps only what was said for the protocol that was chosen.
            (Protocol(stored.protocol or "", each.subscription),),
            each.assignment,
        )
        group.add(member, stored.protocol_type)
    group.protocol_type = stored.protocol_type or None
    group.state = GroupState.STABLE if group.members else GroupState.EMPTY
    group.subscribed_topics = group.find_subscribed_topics()
    return group


def finish_loading(shard: ShardState, now: Now) -> None:
    """All is read: members have their session timeout to show that they live."""
    for group in list(shard.groups.values()):
        for member in group.members.values():
            restart_session(shard, group, member, now)
        if len(group.members) > shard.limits.max_size:
            # The limit was lowered. The members come back to the barrier, and the last ones find no room.
            prepare_rebalance(shard, group, now)
