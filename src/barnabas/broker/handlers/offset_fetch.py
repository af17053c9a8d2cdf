"""OffsetFetch: how far groups have read. Before version 8 it is one group, in another shape."""

from __future__ import annotations

from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.context import RequestContext
from barnabas.broker.services import Services
from barnabas.broker.turns import Room, Steps, each_of, once_each, settled
from barnabas.coordinator.offsets.fetches import OFFSET_BYTES, fetch_failed
from barnabas.metadata.authorizer import AclOperation, Resource
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
#: It asks for room itself.
ANSWER_BYTES_PER_ELEMENT: Final = 0

_FIRST_WITH_GROUP_ERROR = 2
_FIRST_WITH_GROUPS = 8
_FIRST_WITH_TOPIC_IDS = 10


def handle(services: Services, context: RequestContext, request: OffsetFetchRequest) -> Steps[OffsetFetchResponse]:
    if context.version < _FIRST_WITH_GROUPS:
        return (yield from _fetch_of_one(services, context, request))
    groups = yield from _once_each(request.groups)
    room_bytes = 0
    for group in groups:
        room_bytes += yield from _expected_bytes(services, group)
        yield None
    yield Room(room_bytes)
    answers = []
    for group in groups:
        answers.append((yield from _fetch(services, context, group, request.require_stable)))
        yield None
    return OffsetFetchResponse(groups=answers)


def _fetch_of_one(
    services: Services, context: RequestContext, request: OffsetFetchRequest
) -> Steps[OffsetFetchResponse]:
    topics: list[OffsetFetchRequestTopics] | None = None
    if request.topics is not None:
        topics = yield from each_of(
            request.topics,
            lambda each: OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes),
        )
    group = OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)
    yield Room((yield from _expected_bytes(services, group)))
    answer = yield from _fetch(services, context, group, request.require_stable)
    return (yield from _for_one_group(answer, group, context.version))


def _once_each(groups: list[OffsetFetchRequestGroup]) -> Steps[list[OffsetFetchRequestGroup]]:
    """Each group once, with all topics that are asked of it."""
    found: dict[str, OffsetFetchRequestGroup] = {}
    for group in groups:
        yield None
        known = found.setdefault(group.group_id, group)
        if known is not group and known.topics is not None:
            if group.topics is None:
                known.topics = None
            else:
                known.topics += group.topics
    return list(found.values())


def _expected_bytes(services: Services, group: OffsetFetchRequestGroup) -> Steps[int]:
    """About how much memory the answer takes: what the group has committed, and an entry for whatever is asked."""
    size_bytes = yield from services.groups.fetched_bytes(group.group_id)
    for topic in group.topics or ():
        size_bytes += len(topic.partition_indexes) * OFFSET_BYTES
        yield None
    return size_bytes


def _fetch(
    services: Services, context: RequestContext, group: OffsetFetchRequestGroup, require_stable: bool
) -> Steps[OffsetFetchResponseGroup]:
    if not services.authorizer.is_allowed(context, AclOperation.DESCRIBE, Resource.GROUP, group.group_id):
        return fetch_failed(group.group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if group.topics is None:
        answer = yield from services.groups.fetch_offsets(group.group_id, None, require_stable=require_stable)
        return (yield from _only_visible(services, context, (yield from settled(answer))))
    refused: list[OffsetFetchResponseTopics] = []
    # Each topic once, with all partitions that are asked of it.
    wanted: dict[str, OffsetFetchRequestTopics] = {}
    for topic in group.topics:
        yield None
        error = _name(services, topic) if context.version >= _FIRST_WITH_TOPIC_IDS else ErrorCode.NONE
        if error is ErrorCode.NONE and not _is_visible(services, context, topic.name):
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if error is not ErrorCode.NONE:
            refused.append((yield from _refused(topic, error)))
            continue
        known = wanted.setdefault(topic.name, topic)
        if known is not topic:
            known.partition_indexes += topic.partition_indexes
    asked = list(wanted.values())
    answer = yield from services.groups.fetch_offsets(group.group_id, asked, require_stable=require_stable)
    response = yield from settled(answer)
    if response.error_code == ErrorCode.NONE:
        for topic, told in zip(asked, response.topics, strict=True):
            told.topic_id = topic.topic_id
            yield None
        response.topics += refused
    return response


def _name(services: Services, topic: OffsetFetchRequestTopics) -> ErrorCode:
    """Offsets are kept by name."""
    known = services.metadata.image.topic_by_id(topic.topic_id)
    if known is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    topic.name = known.name
    return ErrorCode.NONE


def _is_visible(services: Services, context: RequestContext, topic: str) -> bool:
    return services.authorizer.is_allowed(context, AclOperation.DESCRIBE, Resource.TOPIC, topic)


def _only_visible(
    services: Services, context: RequestContext, response: OffsetFetchResponseGroup
) -> Steps[OffsetFetchResponseGroup]:
    topics = services.metadata.image.topics
    shown = []
    for told in response.topics:
        yield None
        if not _is_visible(services, context, told.name):
            continue
        if context.version >= _FIRST_WITH_TOPIC_IDS:
            if told.name not in topics:
                # A topic that is gone has no id to name it by.
                continue
            told.topic_id = topics[told.name].topic_id
        shown.append(told)
    response.topics = shown
    return response


def _refused(topic: OffsetFetchRequestTopics, error: ErrorCode) -> Steps[OffsetFetchResponseTopics]:
    partitions = yield from each_of(
        (yield from once_each(topic.partition_indexes)),
        lambda index: OffsetFetchResponsePartitions(
            partition_index=index, committed_offset=-1, metadata="", error_code=error
        ),
    )
    return OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def _for_one_group(
    group: OffsetFetchResponseGroup, asked: OffsetFetchRequestGroup, version: int
) -> Steps[OffsetFetchResponse]:
    topics = group.topics
    if group.error_code and version < _FIRST_WITH_GROUP_ERROR:
        # There was no other place for the group's error than with each partition.
        topics = []
        for topic in asked.topics or ():
            topics.append((yield from _refused(topic, ErrorCode.of(group.error_code))))
    response = OffsetFetchResponse(error_code=group.error_code, topics=[])
    for each in topics:
        yield None
        partitions = yield from each_of(each.partitions, _in_old_shape)
        response.topics.append(OffsetFetchResponseTopic(name=each.name, partitions=partitions))
    return response


def _in_old_shape(each: OffsetFetchResponsePartitions) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=each.partition_index,
        committed_offset=each.committed_offset,
        committed_leader_epoch=each.committed_leader_epoch,
        metadata=each.metadata,
        error_code=each.error_code,
    )
