"""OffsetFetch: how far groups have read. Before version 8 it is one group, in another shape."""

from __future__ import annotations

import asyncio

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.answers import all_of, once
from barnabas.broker.context import Operation, RequestContext, Resource
from barnabas.broker.services import Services
from barnabas.coordinator.fetches import fetch_failed
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

API_KEY = ApiKey.OFFSET_FETCH

_FIRST_WITH_GROUP_ERROR = 2
_FIRST_WITH_GROUPS = 8
_FIRST_WITH_TOPIC_IDS = 10

_Group = OffsetFetchResponseGroup | asyncio.Future[OffsetFetchResponseGroup]


def handle(
    services: Services, context: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse | asyncio.Future[OffsetFetchResponse]:
    if context.version >= _FIRST_WITH_GROUPS:
        answers = [_fetch(services, context, group, request.require_stable) for group in request.groups]
        return all_of(answers, lambda groups: OffsetFetchResponse(groups=groups))
    topics = request.topics
    group = OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=None
        if topics is None
        else [OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes) for each in topics],
    )
    answer = _fetch(services, context, group, request.require_stable)
    return once(answer, lambda response: _for_one_group(response, group, context.version))


def _fetch(services: Services, context: RequestContext, group: OffsetFetchRequestGroup, require_stable: bool) -> _Group:
    if not services.authorizer.is_allowed(context, Operation.DESCRIBE, Resource.GROUP, group.group_id):
        return fetch_failed(group.group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if group.topics is None:
        answer = services.groups.fetch_offsets(group.group_id, None, require_stable=require_stable)
        return once(answer, lambda response: _only_visible(services, context, response))
    refused: list[OffsetFetchResponseTopics] = []
    wanted: list[OffsetFetchRequestTopics] = []
    for topic in group.topics:
        error = _name(services, topic) if context.version >= _FIRST_WITH_TOPIC_IDS else ErrorCode.NONE
        if error is ErrorCode.NONE and not _is_visible(services, context, topic.name):
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if error is ErrorCode.NONE:
            wanted.append(topic)
        else:
            refused.append(_refused(topic, error))
    answer = services.groups.fetch_offsets(group.group_id, wanted, require_stable=require_stable)
    if not refused and context.version < _FIRST_WITH_TOPIC_IDS:
        return answer
    return once(answer, lambda response: _merged(response, wanted, refused))


def _name(services: Services, topic: OffsetFetchRequestTopics) -> ErrorCode:
    """Offsets are kept by name."""
    known = services.metadata.image.topic_by_id(topic.topic_id)
    if known is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    topic.name = known.name
    return ErrorCode.NONE


def _is_visible(services: Services, context: RequestContext, topic: str) -> bool:
    return services.authorizer.is_allowed(context, Operation.DESCRIBE, Resource.TOPIC, topic)


def _only_visible(
    services: Services, context: RequestContext, response: OffsetFetchResponseGroup
) -> OffsetFetchResponseGroup:
    shown = [topic for topic in response.topics if _is_visible(services, context, topic.name)]
    if context.version >= _FIRST_WITH_TOPIC_IDS:
        topics = services.metadata.image.topics
        # A topic that is gone has no id to name it by.
        shown = [topic for topic in shown if topic.name in topics]
        for topic in shown:
            topic.topic_id = topics[topic.name].topic_id
    response.topics = shown
    return response


def _merged(
    response: OffsetFetchResponseGroup,
    wanted: list[OffsetFetchRequestTopics],
    refused: list[OffsetFetchResponseTopics],
) -> OffsetFetchResponseGroup:
    if response.error_code == ErrorCode.NONE:
        for asked, topic in zip(wanted, response.topics, strict=True):
            topic.topic_id = asked.topic_id
        response.topics += refused
    return response


def _refused(topic: OffsetFetchRequestTopics, error: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, metadata="", error_code=error)
            for index in topic.partition_indexes
        ],
    )


def _for_one_group(
    group: OffsetFetchResponseGroup, asked: OffsetFetchRequestGroup, version: int
) -> OffsetFetchResponse:
    topics = group.topics
    if group.error_code and version < _FIRST_WITH_GROUP_ERROR:
        # There was no other place for the group's error than with each partition.
        topics = [_refused(topic, ErrorCode.of(group.error_code)) for topic in asked.topics or []]
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=each.partition_index,
                        committed_offset=each.committed_offset,
                        committed_leader_epoch=each.committed_leader_epoch,
                        metadata=each.metadata,
                        error_code=each.error_code,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in topics
        ],
    )
