"""DescribeTopicPartitions (75): partitions of topics, page by page, in the order of the topics' names.

A page ends at the limit of the request or of the node, whichever is lower; the cursor tells where the next begins.
"""

from __future__ import annotations

from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.ids import Uuid
from barnabas.broker.context import NOT_ASKED, RequestContext
from barnabas.broker.services import Services
from barnabas.broker.turns import Steps, chunks, each_of, spent
from barnabas.metadata.authorizer import AclOperation, Resource, authorized_operations
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
#: A page has a bound.
ANSWER_BYTES_PER_ELEMENT: Final = 0

#: How many topics an answer names at most, whether they exist or not.
_TOPICS_PER_PAGE: Final = 2000
#: How many names are put in order in the time of one step.
_NAMES_PER_STEP: Final = 20


def handle(
    services: Services, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> Steps[DescribeTopicPartitionsResponse]:
    image = services.metadata.image
    asks_for_all = not request.topics
    asked = list(image.topics) if asks_for_all else (yield from each_of(request.topics, lambda topic: topic.name))
    first_name, first_partition = "", 0
    if request.cursor is not None:
        first_name, first_partition = request.cursor.topic_name, request.cursor.partition_index
        if first_partition < 0:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"the cursor points to the partition {first_partition}")
    names, is_first_asked = yield from _first_names(asked, first_name)
    if request.cursor is not None and not asks_for_all and not is_first_asked:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"the cursor points to {first_name!r}, which was not asked for")
    room = max(1, min(request.response_partition_limit, services.settings.max_request_partition_size_limit))
    response = DescribeTopicPartitionsResponse(topics=[])
    for number, name in enumerate(names):
        yield None
        if number == _TOPICS_PER_PAGE:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        if not services.authorizer.is_allowed(
            context, AclOperation.DESCRIBE, Resource.TOPIC, name, log_if_denied=not asks_for_all
        ):
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
        yield from spent(len(shown))
        room -= len(shown)
        if start + len(shown) < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=start + len(shown))
            break
    return response


def _first_names(asked: list[str], first: str) -> Steps[tuple[list[str], bool]]:
    """A page of the names from `first` on, in order, and one more if there are more; and whether `first` is among all.

    Not all that are asked for are put in order: there may be very many, of which an answer has room for a few.
    """
    found: list[str] = []
    is_first_asked = False
    for part in chunks(asked, _TOPICS_PER_PAGE):
        is_first_asked = is_first_asked or first in part
        found = sorted({*found, *(name for name in part if name >= first)})[: _TOPICS_PER_PAGE + 1]
        yield from spent(len(part) // _NAMES_PER_STEP)
    return found, is_first_asked


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
                offline_replicas=image.offline_replicas(each, alive),
            )
            for number, each in enumerate(shown, start)
        ],
        topic_authorized_operations=operations,
    )
