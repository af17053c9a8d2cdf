"""TxnOffsetCommit: offsets that count once the transaction is committed.

They are written at once, under the producer's id, and replayed as pending; the marker in the same partition decides
what becomes of them.
"""

from __future__ import annotations

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.coordinator.classic.group import ClassicGroup
from barnabas.coordinator.classic.states import ClassicGroupState
from barnabas.coordinator.group_metadata_manager import GroupMetadataManager
from barnabas.coordinator.offsets.commits import is_too_long
from barnabas.coordinator.offsets.manager import NO_EXPIRY_MS
from barnabas.coordinator.offsets.records import offset_record
from barnabas.coordinator.results import CoordinatorRecord, CoordinatorResult, Now, ProducerWrite
from barnabas.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas.wire.stored.consumer_offsets import OffsetCommitValue


def commit(
    manager: GroupMetadataManager, request: TxnOffsetCommitRequest, guard: object, now: Now
) -> CoordinatorResult:
    """Write offsets of partitions that are known to exist, as pending."""
    error = commit_error(manager.find(request.group_id), request)
    if error is not ErrorCode.NONE:
        return CoordinatorResult(response=commit_failed(request, error))
    records: list[CoordinatorRecord] = []
    longest = manager.config.offset_metadata_max_chars
    topics = [_commit_topic(request.group_id, topic, longest, records, now.wall_ms) for topic in request.topics]
    producer = ProducerWrite(request.producer_id, request.producer_epoch, guard)
    return CoordinatorResult(records, TxnOffsetCommitResponse(topics=topics), producer=producer if records else None)


def commit_error(group: ClassicGroup | None, request: TxnOffsetCommitRequest) -> ErrorCode:
    """Who takes part in a group is told apart only by those who say who they are: before version 3 nobody could."""
    generation = request.generation_id
    if group is None:
        return ErrorCode.NONE if generation < 0 else ErrorCode.ILLEGAL_GENERATION
    if generation < 0 and group.state is ClassicGroupState.EMPTY:
        return ErrorCode.NONE
    if generation < 0 and not request.member_id and request.group_instance_id is None:
        return ErrorCode.NONE
    error = group.check_member(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    return ErrorCode.NONE if generation == group.generation else ErrorCode.ILLEGAL_GENERATION


def commit_failed(request: TxnOffsetCommitRequest, error: ErrorCode) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _commit_topic(
    group_id: str, topic: TxnOffsetCommitRequestTopic, longest: int, records: list[CoordinatorRecord], now_ms: int
) -> TxnOffsetCommitResponseTopic:
    answers = []
    for each in topic.partitions:
        metadata = each.committed_metadata or ""
        error = ErrorCode.OFFSET_METADATA_TOO_LARGE if is_too_long(metadata, longest) else ErrorCode.NONE
        answers.append(TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error))
        if error is ErrorCode.NONE:
            value = OffsetCommitValue(
                offset=each.committed_offset,
                leader_epoch=each.committed_leader_epoch,
                metadata=metadata,
                commit_timestamp=now_ms,
                expire_timestamp=NO_EXPIRY_MS,
            )
            records.append(offset_record(group_id, TopicPartition(topic.name, each.partition_index), value))
    return TxnOffsetCommitResponseTopic(name=topic.name, partitions=answers)
