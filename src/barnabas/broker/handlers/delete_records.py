"""DeleteRecords (21): lets partitions begin at a later offset; -1 stands for the high watermark.

The records are gone for readers at once, their files with the next round of retention. The answer waits until the logs
of all live replicas begin there.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.context import RequestContext
from barnabas.broker.data.deleting import DeleteRecords, UncertainDeletion
from barnabas.broker.services import Services
from barnabas.broker.turns import Steps
from barnabas.metadata.authorizer import AclOperation, Resource
from barnabas.metadata.topic_names import is_internal
from barnabas.net import Connection
from barnabas.replication.roles import NO_OFFSET
from barnabas.storage.errors import LogError
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

API_KEY = ApiKey.DELETE_RECORDS

_UNKNOWN: Final = -1


def handle(
    services: Services, context: RequestContext, request: DeleteRecordsRequest, connection: Connection
) -> Steps[DeleteRecordsResponse | Awaitable[DeleteRecordsResponse]]:
    topics = []
    uncertain: list[UncertainDeletion] = []
    for topic in request.topics:
        refusal = _why_not(services, context, topic.name)
        partitions = []
        for each in topic.partitions:
            if refusal is not None:
                partitions.append(_error(each, refusal))
            else:
                partitions.append(_delete(services, topic.name, each, uncertain))
            yield None
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=partitions))
        yield None
    response = DeleteRecordsResponse(topics=topics)
    if not uncertain:
        return response
    return DeleteRecords(services, connection, response, uncertain).answer(request.timeout_ms)


def _why_not(services: Services, context: RequestContext, topic: str) -> ErrorCode | None:
    if not services.authorizer.is_allowed(context, AclOperation.DELETE, Resource.TOPIC, topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.INVALID_TOPIC_EXCEPTION if is_internal(topic) else None


def _delete(
    services: Services, topic: str, asked: DeleteRecordsPartition, uncertain: list[UncertainDeletion]
) -> DeleteRecordsPartitionResult:
    key = (topic, asked.partition_index)
    partition = services.replica_manager.index.get(key)
    if partition is None:
        return _error(asked, services.replica_manager.why_missing(services.metadata.image, key))
    try:
        log_start_offset = partition.delete_records(asked.offset)
        leader = partition.leading()
    except LogError as failure:
        services.replica_manager.log_failed(partition, failure)
        return _error(asked, failure.code)
    answer = DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=leader.low_watermark)
    required_offset = log_start_offset if asked.offset == NO_OFFSET else asked.offset
    if answer.low_watermark < required_offset:
        uncertain.append(UncertainDeletion(leader, required_offset, answer))
    return answer


def _error(asked: DeleteRecordsPartition, code: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=_UNKNOWN, error_code=code)
