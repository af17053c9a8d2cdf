"""OffsetDelete: forgets offsets of a group. Only partitions that exist are passed on."""

from __future__ import annotations

import asyncio

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.answers import once
from barnabas.broker.context import Operation, RequestContext, Resource
from barnabas.broker.services import Services
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

API_KEY = ApiKey.OFFSET_DELETE


def handle(
    services: Services, context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse | asyncio.Future[OffsetDeleteResponse]:
    if not services.authorizer.is_allowed(context, Operation.DELETE, Resource.GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, topics=[])
    answers: dict[str, OffsetDeleteResponseTopic] = {}
    accepted: list[OffsetDeleteRequestTopic] = []
    for topic in request.topics:
        known = services.metadata.image.topics.get(topic.name)
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not services.authorizer.is_allowed(context, Operation.READ, Resource.TOPIC, topic.name):
            known, error = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        count = len(known.partitions) if known is not None else 0
        refused = [each for each in topic.partitions if not 0 <= each.partition_index < count]
        if refused:
            answers[topic.name] = OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=error)
                    for each in refused
                ],
            )
            topic.partitions = [each for each in topic.partitions if 0 <= each.partition_index < count]
        if topic.partitions:
            accepted.append(topic)
    request.topics = accepted
    return once(services.groups.delete_offsets(request), lambda response: _merged(answers, response))


def _merged(answers: dict[str, OffsetDeleteResponseTopic], response: OffsetDeleteResponse) -> OffsetDeleteResponse:
    if response.error_code:
        return response
    for topic in response.topics:
        if topic.name in answers:
            answers[topic.name].partitions += topic.partitions
        else:
            answers[topic.name] = topic
    response.topics = list(answers.values())
    return response
