"""DescribeQuorum (55): who leads the metadata log, and how far each replica of it is. Here, a quorum of one.

v1 adds timestamps; v2 directory ids, messages and the controllers' listeners.
"""

from __future__ import annotations

from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.context import CLUSTER_NAME, Operation, RequestContext, Resource
from barnabas.broker.services import Services
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionResult,
    ReplicaState,
    TopicResult,
)

API_KEY = ApiKey.DESCRIBE_QUORUM

_METADATA_TOPIC: Final = "__cluster_metadata"


def handle(services: Services, context: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    if not services.authorizer.is_allowed(context, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        return DescribeQuorumResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, topics=[])
    return DescribeQuorumResponse(
        topics=[
            TopicResult(
                topic_name=topic.topic_name,
                partitions=[
                    _described(services)
                    if (topic.topic_name, each.partition_index) == (_METADATA_TOPIC, 0)
                    else _unknown(each.partition_index)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ],
        nodes=[
            Node(
                node_id=services.node_id,
                listeners=[
                    Listener(name=name, host=services.endpoints[name][0], port=services.endpoints[name][1])
                    for name in services.settings.controller_listeners
                ],
            )
        ],
    )


def _described(services: Services) -> PartitionResult:
    quorum = services.quorum.describe()
    return PartitionResult(
        partition_index=0,
        leader_id=quorum.leader_id,
        leader_epoch=quorum.leader_epoch,
        high_watermark=quorum.high_watermark,
        current_voters=[
            ReplicaState(
                replica_id=quorum.leader_id,
                replica_directory_id=quorum.directory_id,
                log_end_offset=quorum.log_end_offset,
                last_fetch_timestamp=quorum.now_ms,
                last_caught_up_timestamp=quorum.now_ms,
            )
        ],
        observers=[],
    )


def _unknown(partition: int) -> PartitionResult:
    return PartitionResult(
        partition_index=partition,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        leader_id=-1,
        leader_epoch=-1,
        high_watermark=-1,
        current_voters=[],
        observers=[],
    )
