"""OffsetCommit: stores how far a group has read. Only partitions that exist are passed on."""

from __future__ import annotations

import asyncio

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.answers import once
from barnabas.broker.context import Operation, RequestContext, Resource
from barnabas.broker.services import Services
from barnabas.coordinator.commits import commit_failed
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

API_KEY = ApiKey.OFFSET_COMMIT

_FIRST_WITH_TOPIC_IDS = 10


def handle(
    services: Services, context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | asyncio.Future[OffsetCommitResponse]:
    if not services.authorizer.is_allowed(context, Operation.READ, Resource.GROUP, request.group_id):
        return commit_failed(request.topics, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    refused: list[OffsetCommitResponseTopic] = []
    accepted: list[OffsetCommitRequestTopic] = []
    for topic in request.topics:
        _sort_out(services, context, topic, accepted, refused)
    if not accepted:
        return OffsetCommitResponse(topics=refused)
    request.topics = accepted
    answer = services.groups.commit_offsets(request, context.version)
    return answer if not refused else once(answer, lambda response: _merged(refused, response))


def _sort_out(
    services: Services,
    context: RequestContext,
    topic: OffsetCommitRequestTopic,
    accepted: list[OffsetCommitRequestTopic],
    refused: list[OffsetCommitResponseTopic],
) -> None:
    image = services.metadata.image
    uses_id = context.version >= _FIRST_WITH_TOPIC_IDS
    known = image.topic_by_id(topic.topic_id) if uses_id else image.topics.get(topic.name)
    name = known.name if known is not None else topic.name
    if known is None and uses_id:
        refused.append(_refused(topic, ErrorCode.UNKNOWN_TOPIC_ID))
    elif not services.authorizer.is_allowed(context, Operation.READ, Resource.TOPIC, name):
        refused.append(_refused(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    elif known is None:
        refused.append(_refused(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    else:
        count = len(known.partitions)
        unknown = [each for each in topic.partitions if not 0 <= each.partition_index < count]
        if unknown:
            topic.partitions = [each for each in topic.partitions if 0 <= each.partition_index < count]
            missing = OffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=unknown)
            refused.append(_refused(missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        if topic.partitions:
            # The log keeps both, whichever the client knows.
            topic.name, topic.topic_id = name, known.topic_id
            accepted.append(topic)


def _refused(topic: OffsetCommitRequestTopic, error: ErrorCode) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error)
            for each in topic.partitions
        ],
    )


def _merged(refused: list[OffsetCommitResponseTopic], response: OffsetCommitResponse) -> OffsetCommitResponse:
    """Each topic once: what was refused, and after it what was committed."""
    topics = {(each.topic_id, each.name): each for each in refused}
    for topic in response.topics:
        known = next((each for each in refused if _is_same(each, topic)), None)
        if known is None:
            topics[topic.topic_id, topic.name] = topic
        else:
            known.partitions += topic.partitions
    response.topics = list(topics.values())
    return response


def _is_same(refused: OffsetCommitResponseTopic, topic: OffsetCommitResponseTopic) -> bool:
    return refused.name == topic.name if refused.name else refused.topic_id == topic.topic_id
