"""OffsetCommit and OffsetDelete: groups say how far they have read, and have it forgotten."""

from __future__ import annotations

from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.coordinator.classic.group import ClassicGroup
from barnabas.coordinator.classic.membership import restart_known_session
from barnabas.coordinator.classic.states import ClassicGroupState
from barnabas.coordinator.group_metadata_manager import GroupMetadataManager
from barnabas.coordinator.offsets.manager import NO_EXPIRY_MS, OffsetMetadataManager
from barnabas.coordinator.offsets.records import offset_record, offset_tombstone
from barnabas.coordinator.results import CoordinatorRecord, CoordinatorResult, Now
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
from barnabas.wire.stored.consumer_offsets import OffsetCommitValue

_NO_RETENTION_TIME: Final = -1
_NO_TIMESTAMP: Final = -1
_LATEST_MS: Final = 2**63 - 1
#: From this version on a client is told that the group is unknown, before that its generation is illegal.
_FIRST_WITH_GROUP_NOT_FOUND: Final = 9


def commit(manager: GroupMetadataManager, request: OffsetCommitRequest, version: int, now: Now) -> CoordinatorResult:
    """Write offsets of partitions that are known to exist; topics have names, whatever the version."""
    group = manager.find(request.group_id)
    error = commit_error(group, request, version)
    if error is not ErrorCode.NONE:
        return CoordinatorResult(response=commit_failed(request, error))
    if group is not None and group.state in (ClassicGroupState.STABLE, ClassicGroupState.PREPARING_REBALANCE):
        restart_known_session(manager, group, request.member_id, now.monotonic_ms)
    expire_timestamp_ms = NO_EXPIRY_MS
    if request.retention_time_ms != _NO_RETENTION_TIME:
        # A client that means "for ever" must not get an end before the beginning of time, as Java's sum has it.
        expire_timestamp_ms = min(now.wall_ms + request.retention_time_ms, _LATEST_MS)
    records: list[CoordinatorRecord] = []
    longest = manager.config.offset_metadata_max_chars
    topics = [
        _commit_topic(request.group_id, topic, expire_timestamp_ms, longest, records, now.wall_ms)
        for topic in request.topics
    ]
    return CoordinatorResult(records, OffsetCommitResponse(topics=topics))


def commit_error(group: ClassicGroup | None, request: OffsetCommitRequest, version: int) -> ErrorCode:
    generation = request.generation_id_or_member_epoch
    if group is None:
        if generation < 0:
            return ErrorCode.NONE
        is_told = version >= _FIRST_WITH_GROUP_NOT_FOUND
        return ErrorCode.GROUP_ID_NOT_FOUND if is_told else ErrorCode.ILLEGAL_GENERATION
    if generation < 0 and group.state is ClassicGroupState.EMPTY:
        return ErrorCode.NONE
    if generation < 0 and not request.member_id and request.group_instance_id is None:
        # Whoever does not take part may commit only while nobody does.
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.check_member(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is ClassicGroupState.COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def is_too_long(metadata: str, longest: int) -> bool:
    """Java counts UTF-16 units, of which a character has at most two."""
    return len(metadata) > longest or (
        2 * len(metadata) > longest and len(metadata.encode("utf-16-le", "surrogatepass")) > 2 * longest
    )


def commit_failed(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[_committed(each, error) for each in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _committed(partition: OffsetCommitRequestPartition, error: ErrorCode) -> OffsetCommitResponsePartition:
    return OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)


def _commit_topic(
    group_id: str,
    topic: OffsetCommitRequestTopic,
    expire_timestamp_ms: int,
    longest: int,
    records: list[CoordinatorRecord],
    now_ms: int,
) -> OffsetCommitResponseTopic:
    answers = []
    for each in topic.partitions:
        metadata = each.committed_metadata or ""
        if is_too_long(metadata, longest):
            answers.append(_committed(each, ErrorCode.OFFSET_METADATA_TOO_LARGE))
            continue
        answers.append(_committed(each, ErrorCode.NONE))
        value = OffsetCommitValue(
            offset=each.committed_offset,
            leader_epoch=each.committed_leader_epoch,
            metadata=metadata,
            commit_timestamp=now_ms if each.commit_timestamp == _NO_TIMESTAMP else each.commit_timestamp,
            expire_timestamp=expire_timestamp_ms,
            topic_id=topic.topic_id,
        )
        partition = TopicPartition(topic.name, each.partition_index)
        records.append(offset_record(group_id, partition, value))
    return OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers)


def delete(
    manager: GroupMetadataManager, offsets: OffsetMetadataManager, request: OffsetDeleteRequest
) -> CoordinatorResult:
    """Forget offsets of partitions that are known to exist, except where a member may still commit them."""
    group = manager.find(request.group_id)
    if group is None:
        return CoordinatorResult(response=delete_failed(request, ErrorCode.GROUP_ID_NOT_FOUND))
    if group.state is not ClassicGroupState.EMPTY and not group.uses_consumer_protocol:
        return CoordinatorResult(response=delete_failed(request, ErrorCode.NON_EMPTY_GROUP))
    known = set(offsets.known_partitions(request.group_id))
    topics = []
    records: list[CoordinatorRecord] = []
    for topic in request.topics:
        is_subscribed = group.is_subscribed_to(topic.name)
        topics.append(_deleted_topic(topic, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed else ErrorCode.NONE))
        if not is_subscribed:
            asked = [TopicPartition(topic.name, each.partition_index) for each in topic.partitions]
            records += [offset_tombstone(request.group_id, each) for each in asked if each in known]
    return CoordinatorResult(records, OffsetDeleteResponse(topics=topics))


def delete_failed(_: OffsetDeleteRequest, error: ErrorCode) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=error, topics=[])


def _deleted_topic(topic: OffsetDeleteRequestTopic, error: ErrorCode) -> OffsetDeleteResponseTopic:
    return OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[
            OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=error)
            for each in topic.partitions
        ],
    )
