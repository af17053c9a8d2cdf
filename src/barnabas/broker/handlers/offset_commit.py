"""OffsetCommit: stores how far a group has read. Only partitions that exist are passed on.

A request with very many partitions is written in parts: between them others have their turn, so a rebalance may come
in between, and the rest is then refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from copy import copy
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import Uuid
from barnabas.broker.context import RequestContext
from barnabas.broker.services import Services
from barnabas.broker.turns import Steps, each_of, settled, spent
from barnabas.coordinator.classic.members import Client
from barnabas.coordinator.requests import OFFSET_COMMIT, Caller
from barnabas.metadata.authorizer import AclOperation, Resource
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

API_KEY = ApiKey.OFFSET_COMMIT

_FIRST_WITH_TOPIC_IDS = 10
_FEW_TOPICS: Final = 16
#: How many are written in one part.
_PARTITIONS_AT_ONCE: Final = 256


def handle(
    services: Services, context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | asyncio.Future[OffsetCommitResponse] | Steps[OffsetCommitResponse]:
    if not _is_usual(services, context, request):
        return _commit_in_steps(services, context, request)
    caller = Caller(context.version, Client(context.client_id or "", ""))
    return services.groups.submit(OFFSET_COMMIT, request, caller)


def _is_usual(services: Services, context: RequestContext, request: OffsetCommitRequest) -> bool:
    """Whether few partitions are named, each topic once, and all of them can be committed: it is passed on as it is."""
    topics = request.topics
    if not 0 < len(topics) <= _FEW_TOPICS:
        return False
    counts = [len(topic.partitions) for topic in topics]
    if not min(counts) or sum(counts) > _PARTITIONS_AT_ONCE:
        return False
    if len(topics) > 1 and len({(each.name, each.topic_id) for each in topics}) < len(topics):
        return False
    # Who may not is told, and written of, with the others.
    if not services.authorizer.is_allowed(
        context, AclOperation.READ, Resource.GROUP, request.group_id, log_if_denied=False
    ):
        return False
    for topic in topics:
        if _why_not(services, context, topic, log_if_denied=False) is not ErrorCode.NONE:
            return False
        count = len(services.metadata.image.topics[topic.name].partitions)
        for each in topic.partitions:
            if not 0 <= each.partition_index < count:
                return False
    return True


def _commit_in_steps(
    services: Services, context: RequestContext, request: OffsetCommitRequest
) -> Steps[OffsetCommitResponse]:
    is_allowed = services.authorizer.is_allowed(context, AclOperation.READ, Resource.GROUP, request.group_id)
    answers: list[OffsetCommitResponseTopic] = []
    accepted: list[OffsetCommitRequestTopic] = []
    for topic in request.topics:
        yield None
        error = _why_not(services, context, topic) if is_allowed else ErrorCode.GROUP_AUTHORIZATION_FAILED
        if error is ErrorCode.NONE:
            yield from _sort_out(services, topic, accepted, answers)
        else:
            answers.append((yield from _refused(topic, topic.partitions, error)))
    waiting: list[OffsetCommitResponse | asyncio.Future[OffsetCommitResponse]] = []
    caller = Caller(context.version, Client(context.client_id or "", ""))
    for part in _parts(accepted):
        # As a rule there is one part, and the request becomes that.
        partial = copy(request) if waiting else request
        partial.topics = part
        waiting.append(services.groups.submit(OFFSET_COMMIT, partial, caller))
        yield from spent(sum(len(topic.partitions) for topic in part))
    for each in waiting:
        answers += (yield from settled(each)).topics
    return (yield from _each_topic_once(answers))


def _why_not(
    services: Services, context: RequestContext, topic: OffsetCommitRequestTopic, *, log_if_denied: bool = True
) -> ErrorCode:
    """Why nothing of a topic is committed. If it can be, it gets its name or id from here: the log keeps both."""
    image = services.metadata.image
    uses_id = context.version >= _FIRST_WITH_TOPIC_IDS
    known = image.topic_by_id(topic.topic_id) if uses_id else image.topics.get(topic.name)
    if known is None and uses_id:
        return ErrorCode.UNKNOWN_TOPIC_ID
    name = known.name if known is not None else topic.name
    is_allowed = services.authorizer.is_allowed
    if not is_allowed(context, AclOperation.READ, Resource.TOPIC, name, log_if_denied=log_if_denied):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if known is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topic.name, topic.topic_id = name, known.topic_id
    return ErrorCode.NONE


def _sort_out(
    services: Services,
    topic: OffsetCommitRequestTopic,
    accepted: list[OffsetCommitRequestTopic],
    answers: list[OffsetCommitResponseTopic],
) -> Steps[None]:
    """Pass on the partitions that the topic has, refuse the others."""
    count = len(services.metadata.image.topics[topic.name].partitions)
    known: list[OffsetCommitRequestPartition] = []
    unknown: list[OffsetCommitRequestPartition] = []
    for each in topic.partitions:
        (known if 0 <= each.partition_index < count else unknown).append(each)
        yield None
    if unknown:
        answers.append((yield from _refused(topic, unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
    if known:
        topic.partitions = known
        accepted.append(topic)


def _refused(
    topic: OffsetCommitRequestTopic, partitions: list[OffsetCommitRequestPartition], error: ErrorCode
) -> Steps[OffsetCommitResponseTopic]:
    refused = yield from each_of(
        partitions,
        lambda each: OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error),
    )
    return OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=refused)


def _parts(topics: list[OffsetCommitRequestTopic]) -> Iterator[list[OffsetCommitRequestTopic]]:
    """The topics in parts of a bounded number of partitions."""
    part: list[OffsetCommitRequestTopic] = []
    room = _PARTITIONS_AT_ONCE
    for topic in topics:
        start = 0
        while start < len(topic.partitions):
            taken = topic.partitions[start : start + room]
            part.append(OffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=taken))
            start += len(taken)
            room -= len(taken)
            if not room:
                yield part
                part, room = [], _PARTITIONS_AT_ONCE
    if part:
        yield part


def _each_topic_once(answers: list[OffsetCommitResponseTopic]) -> Steps[OffsetCommitResponse]:
    """Each topic once: what was refused, and after it what was committed."""
    topics: dict[tuple[Uuid, str], OffsetCommitResponseTopic] = {}
    for answer in answers:
        yield None
        known = topics.setdefault((answer.topic_id, answer.name), answer)
        if known is not answer:
            known.partitions += answer.partitions
    return OffsetCommitResponse(topics=list(topics.values()))
