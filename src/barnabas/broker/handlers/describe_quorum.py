"""DescribeQuorum (55): who leads the metadata log, and how far each replica of it is. Here, a quorum of one.

v1 adds timestamps; v2 messages and the controllers' listeners, and ids of directories, which only voters have whose set
may change.
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
    TopicData,
    TopicResult,
)

API_KEY = ApiKey.DESCRIBE_QUORUM
#: There is one partition to ask for.
MAX_ELEMENTS: Final = 1000

_METADATA_TOPIC: Final = "__cluster_metadata"
_FIRST_WITH_NODES: Final = 2


def handle(services: Services, context: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    if not services.authorizer.is_allowed(context, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        return DescribeQuorumResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, topics=[])
    asked = [(topic.topic_name, each.partition_index) for topic in request.topics for each in topic.partitions]
    if asked != [(_METADATA_TOPIC, 0)]:
        # As in Kafka, one wrong partition makes the whole request wrong.
        return DescribeQuorumResponse(topics=[_unknown(topic, context.version) for topic in request.topics])
    response = DescribeQuorumResponse(
        topics=[TopicResult(topic_name=_METADATA_TOPIC, partitions=[_described(services)])]
    )
    if context.version >= _FIRST_WITH_NODES:
        response.nodes = [_node(services)]
    return response


def _node(services: Services) -> Node:
    return Node(
        node_id=services.node_id,
        listeners=[
            Listener(name=name, host=services.endpoints[name][0], port=services.endpoints[name][1])
            for name in services.settings.controller_listeners
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
                log_end_offset=quorum.log_end_offset,
                last_fetch_timestamp=quorum.now_ms,
                last_caught_up_timestamp=quorum.now_ms,
            )
        ],
        observers=[],
    )


def _unknown(topic: TopicData, version: int) -> TopicResult:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    results = [
        PartitionResult(
            partition_index=each.partition_index,
            error_code=code,
            error_message=code.text if version >= _FIRST_WITH_NODES else "",
            leader_id=0,
            leader_epoch=0,
            high_watermark=0,
            current_voters=[],
            observers=[],
        )
        for each in topic.partitions
    ]
    return TopicResult(topic_name=topic.topic_name, partitions=results)
