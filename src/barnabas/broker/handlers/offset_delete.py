"""OffsetDelete: forgets offsets of a group. Only partitions that exist are passed on."""

from __future__ import annotations

from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.broker.context import RequestContext
from barnabas.broker.services import Services
from barnabas.broker.turns import Steps, chunks, settled, spent
from barnabas.coordinator.requests import OFFSET_DELETE
from barnabas.metadata.authorizer import AclOperation, Resource
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

API_KEY = ApiKey.OFFSET_DELETE

#: How many are deleted in one part; others have their turn between parts.
_PARTITIONS_AT_ONCE: Final = 256


def handle(services: Services, context: RequestContext, request: OffsetDeleteRequest) -> Steps[OffsetDeleteResponse]:
    if not services.authorizer.is_allowed(context, AclOperation.DELETE, Resource.GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, topics=[])
    answers: dict[str, OffsetDeleteResponseTopic] = {}
    accepted: dict[TopicPartition, OffsetDeleteRequestPartition] = {}
    for topic in request.topics:
        yield None
        known = services.metadata.image.topics.get(topic.name)
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not services.authorizer.is_allowed(context, AclOperation.READ, Resource.TOPIC, topic.name):
            known, error = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        count = len(known.partitions) if known is not None else 0
        for each in topic.partitions:
            yield None
            if 0 <= each.partition_index < count:
                accepted[TopicPartition(topic.name, each.partition_index)] = each
                continue
            answer = answers.setdefault(topic.name, OffsetDeleteResponseTopic(name=topic.name, partitions=[]))
            refused = OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=error)
            answer.partitions.append(refused)
    # At least once, since the group may be the error.
    for part in chunks(list(accepted.items()), _PARTITIONS_AT_ONCE) if accepted else [[]]:
        partial = OffsetDeleteRequest(group_id=request.group_id, topics=_by_topic(part))
        response = yield from settled(services.groups.submit(OFFSET_DELETE, partial))
        yield from spent(len(part))
        if response.error_code:
            return response
        for deleted in response.topics:
            known_answer = answers.setdefault(deleted.name, deleted)
            if known_answer is not deleted:
                known_answer.partitions += deleted.partitions
    return OffsetDeleteResponse(topics=list(answers.values()))


def _by_topic(
    partitions: list[tuple[TopicPartition, OffsetDeleteRequestPartition]],
) -> list[OffsetDeleteRequestTopic]:
    topics: dict[str, OffsetDeleteRequestTopic] = {}
    for name, each in partitions:
        topic = topics.setdefault(name.topic, OffsetDeleteRequestTopic(name=name.topic, partitions=[]))
        topic.partitions.append(each)
    return list(topics.values())
