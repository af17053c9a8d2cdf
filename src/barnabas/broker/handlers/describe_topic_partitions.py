"""DescribeTopicPartitions (75): partitions of topics, page by page, in the order of the topics' names.

A page ends at the limit of the request or of the node, whichever is lower; the cursor tells where the next begins.
"""

from __future__ import annotations

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.ids import Uuid
from barnabas.broker.context import NOT_ASKED, Operation, RequestContext, Resource, authorized_operations
from barnabas.broker.services import Services
from barnabas.metadata.image import NO_LEADER, ClusterImage, PartitionImage, TopicImage
from barnabas.metadata.topic_names import is_internal, what_is_wrong_with_name
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

API_KEY = ApiKey.DESCRIBE_TOPIC_PARTITIONS


def handle(
    services: Services, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    image = services.metadata.image
    asks_for_all = not request.topics
    names = sorted(set(image.topics) if asks_for_all else {topic.name for topic in request.topics})
    first_name, first_partition = "", 0
    if request.cursor is not None:
        first_name, first_partition = request.cursor.topic_name, request.cursor.partition_index
        if first_partition < 0:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"the cursor points to the partition {first_partition}")
        if not asks_for_all and first_name not in names:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, f"the cursor points to {first_name!r}, which was not asked for"
            )
        names = [name for name in names if name >= first_name]
    room = max(1, min(request.response_partition_limit, services.settings.max_request_partition_size_limit))
    response = DescribeTopicPartitionsResponse(topics=[])
    for name in names:
        if not services.authorizer.is_allowed(context, Operation.DESCRIBE, Resource.TOPIC, name):
            if not asks_for_all:
                response.topics.append(_missing(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        operations = authorized_operations(services.authorizer, context, Resource.TOPIC, name)
        topic = image.topics.get(name)
        if topic is None:
            is_valid = what_is_wrong_with_name(name) is None
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_valid else ErrorCode.INVALID_TOPIC_EXCEPTION
            response.topics.append(_missing(name, code, operations))
            continue
        start = first_partition if name == first_name else 0
        if not room:
            response.next_cursor = Cursor(topic_name=name, partition_index=start)
            break
        shown = topic.partitions[start : start + room]
        response.topics.append(_described(image, topic, start, shown, operations))
        room -= len(shown)
        if start + len(shown) < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=start + len(shown))
            break
    return response


def _missing(name: str, code: ErrorCode, operations: int = NOT_ASKED) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        topic_id=Uuid.ZERO,
        is_internal=is_internal(name),
        partitions=[],
        topic_authorized_operations=operations,
    )


def _described(
    image: ClusterImage, topic: TopicImage, start: int, shown: tuple[PartitionImage, ...], operations: int
) -> DescribeTopicPartitionsResponseTopic:
    alive = {broker.broker_id for broker in image.brokers.values() if not broker.is_fenced}
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                error_code=ErrorCode.LEADER_NOT_AVAILABLE if each.leader == NO_LEADER else ErrorCode.NONE,
                partition_index=number,
                leader_id=each.leader,
                leader_epoch=each.leader_epoch,
                replica_nodes=list(each.replicas),
                isr_nodes=list(each.isr),
                eligible_leader_replicas=list(each.eligible_leader_replicas),
                last_known_elr=list(each.last_known_elr),
                offline_replicas=[replica for replica in each.replicas if replica not in alive],
            )
            for number, each in enumerate(shown, start)
        ],
        topic_authorized_operations=operations,
    )
