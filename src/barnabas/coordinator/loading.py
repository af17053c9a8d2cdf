"""Reading a shard back from its partition.

Records are taken in as they lie in the log. Offsets of a transaction wait for its marker; a transaction that has none
yet is still open.

Whether batches are as they were written was checked by whoever read them. A whole record that is not understood is
passed over and counted (`skipped`): it may come from a newer broker, from a kind of group that is not built, or from
somebody who writes to this topic by hand, and must not keep all groups of the partition from their coordinator.
"""

from __future__ import annotations

from barnabas.base.errors import RemoteProtocolError
from barnabas.base.ids import TopicPartition
from barnabas.coordinator.effects import Now
from barnabas.coordinator.group import Group
from barnabas.coordinator.members import Client, Member, Protocol
from barnabas.coordinator.offsets import CommittedOffset
from barnabas.coordinator.rebalance import prepare_rebalance, restart_session
from barnabas.coordinator.skipped import Oddity
from barnabas.coordinator.state import ShardState
from barnabas.coordinator.states import GroupState
from barnabas.records.batch import NO_PRODUCER_ID, BatchView
from barnabas.records.control import read_marker
from barnabas.records.legacy import LegacyMessage
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
        try:
            _load_entry(shard, entry, now_ms)
        except RemoteProtocolError as reason:
            shard.skipped.add(Oddity.BATCH, entry.last_offset, reason)
    return next_offset


def _load_entry(shard: ShardState, entry: BatchView | LegacyMessage, now_ms: int) -> None:
    producer_id = NO_PRODUCER_ID
    if isinstance(entry, BatchView):
        if entry.is_control:
            marker = read_marker(entry)
            if marker is not None:
                shard.offsets.end_transaction(marker.producer_id, committed=marker.committed)
            return
        if entry.is_transactional:
            producer_id = entry.producer_id
    for record in entry.records():
        replay(shard, record.key, record.value, record.offset, producer_id, now_ms)


def replay(
    shard: ShardState,
    key: bytes | None,
    value: bytes | None,
    record_offset: int,
    producer_id: int = NO_PRODUCER_ID,
    now_ms: int = _NO_TIMESTAMP_MS,
) -> None:
    """Take in one record, or count it among those that were skipped."""
    if key is None:
        shard.skipped.add(Oddity.NO_KEY, record_offset)
        return
    try:
        decoded = GroupKey.decode_key(key)
    except RemoteProtocolError as reason:
        shard.skipped.add(Oddity.KEY, record_offset, reason)
        return
    if decoded is None:
        shard.skipped.add(Oddity.TYPE, record_offset, f"type {int.from_bytes(key[:2], 'big', signed=True)}")
        return
    try:
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
            case _:
                shard.skipped.add(Oddity.KIND_OF_GROUP, record_offset, type(decoded).__name__)
    except RemoteProtocolError as reason:
        shard.skipped.add(Oddity.VALUE, record_offset, f"group {decoded.group!r:.40}: {reason}")


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
        if each.member_id in group.members:
            raise RemoteProtocolError(f"it has the member {each.member_id!r:.40} twice")
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
