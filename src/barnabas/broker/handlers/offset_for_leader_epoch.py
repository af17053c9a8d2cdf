"""OffsetForLeaderEpoch (23): where the log of a leader epoch ended.

Consumers find out with it whether the log was cut below their position, followers where theirs left the leader's.
Brokers may ask of any topic.
"""

from __future__ import annotations

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.context import RequestContext
from barnabas.broker.services import Services
from barnabas.broker.turns import Steps
from barnabas.metadata.authorizer import CLUSTER_NAME, AclOperation, Resource
from barnabas.storage.errors import LogError
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

API_KEY = ApiKey.OFFSET_FOR_LEADER_EPOCH


def handle(
    services: Services, context: RequestContext, request: OffsetForLeaderEpochRequest
) -> Steps[OffsetForLeaderEpochResponse]:
    results = []
    is_broker = services.authorizer.is_allowed(
        context, AclOperation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME, log_if_denied=False
    )
    for topic in request.topics:
        is_allowed = is_broker or services.authorizer.is_allowed(
            context, AclOperation.DESCRIBE, Resource.TOPIC, topic.topic
        )
        partitions = []
        for each in topic.partitions:
            if is_allowed:
                partitions.append(_end_of_epoch(services, topic.topic, each))
            else:
                denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                partitions.append(EpochEndOffset(partition=each.partition, error_code=denied))
            yield None
        results.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
        yield None
    return OffsetForLeaderEpochResponse(topics=results)


def _end_of_epoch(services: Services, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    key = (topic, asked.partition)
    partition = services.replica_manager.index.get(key)
    if partition is None:
        code = services.replica_manager.why_missing(services.metadata.image, key)
        return EpochEndOffset(partition=asked.partition, error_code=code)
    try:
        end = partition.end_of_epoch(asked.leader_epoch, asked.current_leader_epoch)
    except LogError as failure:
        return EpochEndOffset(partition=asked.partition, error_code=failure.code)
    return EpochEndOffset(partition=asked.partition, leader_epoch=end.epoch, end_offset=end.end_offset)
