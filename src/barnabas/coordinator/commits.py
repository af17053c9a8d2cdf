"""OffsetCommit and OffsetDelete: groups say how far they have read, and have it forgotten."""

from __future__ import annotations

from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.coordinator.effects import Awaited, Now, Record, Token, Write
from barnabas.coordinator.group import Group
from barnabas.coordinator.membership import restart_known_session
from barnabas.coordinator.offsets import NO_EXPIRY_MS, CommittedOffset
from barnabas.coordinator.records import offset_record, offset_tombstone
from barnabas.coordinator.state import ShardState
from barnabas.coordinator.states import GroupState
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

_NO_RETENTION_TIME: Final = -1
_NO_TIMESTAMP: Final = -1
_LATEST_MS: Final = 2**63 - 1
#: From this version on a client is told that the group is unknown, before that its generation is illegal.
_FIRST_WITH_GROUP_NOT_FOUND: Final = 9


def commit(shard: ShardState, request: OffsetCommitRequest, version: int, token: Token, now: Now) -> None:
    """Write offsets of partitions that are known to exist; topics have names, whatever the version."""
    group = shard.groups.get(request.group_id)
    error = commit_error(group, request, version)
    if error is not ErrorCode.NONE:
        shard.reply(token, commit_failed(request.topics, error))
        return
    if group is not None and group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
        restart_known_session(shard, group, request.member_id, now.monotonic_ms)
    expire_timestamp_ms = NO_EXPIRY_MS
    if request.retention_time_ms != _NO_RETENTION_TIME:
        # A client that means "for ever" must not get an end before the beginning of time, as Java's sum has it.
        expire_timestamp_ms = min(now.wall_ms + request.retention_time_ms, _LATEST_MS)
    write = Write([])
    topics = [
        _commit_topic(shard, request.group_id, topic, expire_timestamp_ms, write, now) for topic in request.topics
    ]
    response = OffsetCommitResponse(topics=topics)
    if not write.records:
        shard.reply(token, response)
        return
    if group is None:
        _add_simple_group(shard, request.group_id, write, now)
    write.awaited.append(Awaited(token, response, lambda failure: commit_failed(request.topics, failure)))
    shard.stage(write, now)


def commit_error(group: Group | None, request: OffsetCommitRequest, version: int) -> ErrorCode:
    generation = request.generation_id_or_member_epoch
    if group is None:
        if generation < 0:
            return ErrorCode.NONE
        is_told = version >= _FIRST_WITH_GROUP_NOT_FOUND
        return ErrorCode.GROUP_ID_NOT_FOUND if is_told else ErrorCode.ILLEGAL_GENERATION
    if generation < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    if generation < 0 and not request.member_id and request.group_instance_id is None:
        # Whoever does not take part may commit only while nobody does.
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.check_member(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def commit_failed(topics: list[OffsetCommitRequestTopic], error: ErrorCode) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[_committed(each, error) for each in topic.partitions],
            )
            for topic in topics
        ]
    )


def _committed(partition: OffsetCommitRequestPartition, error: ErrorCode) -> OffsetCommitResponsePartition:
    return OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)


def _commit_topic(
    shard: ShardState,
    group_id: str,
    topic: OffsetCommitRequestTopic,
    expire_timestamp_ms: int,
    write: Write,
    now: Now,
) -> OffsetCommitResponseTopic:
    answers = []
    longest = shard.limits.offset_metadata_max_chars
    for each in topic.partitions:
        metadata = each.committed_metadata or ""
        # Java counts UTF-16 units, of which a character has at most two.
        if len(metadata) > longest or (2 * len(metadata) > longest and len(metadata.encode("utf-16-le")) > 2 * longest):
            answers.append(_committed(each, ErrorCode.OFFSET_METADATA_TOO_LARGE))
            continue
        answers.append(_committed(each, ErrorCode.NONE))
        value = CommittedOffset(
            each.committed_offset,
            each.committed_leader_epoch,
            metadata,
            now.wall_ms if each.commit_timestamp == _NO_TIMESTAMP else each.commit_timestamp,
            expire_timestamp_ms,
            topic.topic_id,
        )
        partition = TopicPartition(topic.name, each.partition_index)
        write.records.append(offset_record(group_id, partition, value))
        write.offsets.append(shard.offsets.stage(group_id, partition, value))
    return OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers)


def _add_simple_group(shard: ShardState, group_id: str, write: Write, now: Now) -> None:
    """Offsets without members: the group has no record of its own, it is there because its offsets are."""
    group = shard.groups[group_id] = Group(group_id, now.wall_ms)

    def commit_group(_: Now) -> None:
        group.is_committed = True

    def fail(_error: ErrorCode, is_in_log: bool, _now: Now) -> None:
        is_ours = shard.groups.get(group_id) is group and group.is_simple
        if is_ours and not is_in_log and not shard.offsets.latest(group_id):
            del shard.groups[group_id]

    write.on_commit = commit_group
    write.on_failure = fail


def delete(shard: ShardState, request: OffsetDeleteRequest, token: Token, now: Now) -> None:
    """Forget offsets of partitions that are known to exist, except where a member may still commit them."""
    error = _delete_error(shard, request.group_id)
    if error is not ErrorCode.NONE:
        shard.reply(token, OffsetDeleteResponse(error_code=error, topics=[]))
        return
    group = shard.groups[request.group_id]
    known = shard.offsets.known_partitions(request.group_id)
    topics = []
    doomed: list[TopicPartition] = []
    for topic in request.topics:
        is_subscribed = group.is_subscribed_to(topic.name)
        topics.append(_deleted_topic(topic, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed else ErrorCode.NONE))
        if not is_subscribed:
            asked = [TopicPartition(topic.name, each.partition_index) for each in topic.partitions]
            doomed += [each for each in asked if each in known]
    response = OffsetDeleteResponse(topics=topics)
    if not doomed:
        shard.reply(token, response)
        return
    write = deletion(shard, request.group_id, doomed)
    write.awaited.append(Awaited(token, response, lambda failure: OffsetDeleteResponse(error_code=failure, topics=[])))
    shard.stage(write, now)


def deletion(shard: ShardState, group_id: str, partitions: list[TopicPartition]) -> Write:
    """The write that forgets offsets of a group."""
    records: list[Record] = [offset_tombstone(group_id, partition) for partition in partitions]
    write = Write(records)
    write.offsets = [shard.offsets.stage(group_id, partition, None) for partition in partitions]
    return write


def _delete_error(shard: ShardState, group_id: str) -> ErrorCode:
    if not group_id:
        return ErrorCode.INVALID_GROUP_ID
    group = shard.groups.get(group_id)
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group.state is not GroupState.EMPTY and not group.uses_consumer_protocol:
        return ErrorCode.NON_EMPTY_GROUP
    return ErrorCode.NONE


def _deleted_topic(topic: OffsetDeleteRequestTopic, error: ErrorCode) -> OffsetDeleteResponseTopic:
    return OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[
            OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=error)
            for each in topic.partitions
        ],
    )
