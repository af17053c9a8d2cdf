"""ListOffsets (2): looks up offsets by timestamp.

Special timestamps came with versions: -3 with v7, -4 with v8, -5 with v9, -6 with v11. Up to v4 there was no error for
"the new leader does not know yet".
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.context import RequestContext
from barnabas.broker.services import Services
from barnabas.broker.turns import Steps, awaited
from barnabas.metadata.authorizer import AclOperation, Resource
from barnabas.replication.partition import EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD, LATEST_TIERED, MAX_TIMESTAMP
from barnabas.replication.roles import Isolation
from barnabas.storage.errors import LogError
from barnabas.storage.searching import Search
from barnabas.storage.timestamp_search import TimestampAndOffset
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

API_KEY = ApiKey.LIST_OFFSETS

_CONSUMER: Final = -1
_FIRST_WITH_NOT_AVAILABLE: Final = 5
_FIRST_VERSIONS: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


def handle(services: Services, context: RequestContext, request: ListOffsetsRequest) -> Steps[ListOffsetsResponse]:
    asked: Counter[tuple[str, int]] = Counter()
    for topic in request.topics:
        for each in topic.partitions:
            asked[topic.name, each.partition_index] += 1
            yield None
    isolation = Isolation.LOG_END
    if request.replica_id == _CONSUMER:
        isolation = Isolation.READ_COMMITTED if request.isolation_level else Isolation.READ_UNCOMMITTED
    topics = []
    for topic in request.topics:
        is_allowed = services.authorizer.is_allowed(context, AclOperation.DESCRIBE, Resource.TOPIC, topic.name)
        answers = []
        for each in topic.partitions:
            count = asked[topic.name, each.partition_index]
            if not is_allowed:
                answer = _error(each, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            elif count != 1:
                # Asked for twice, it is refused once.
                asked[topic.name, each.partition_index] = 0
                if not count:
                    yield None
                    continue
                answer = _error(each, ErrorCode.INVALID_REQUEST)
            else:
                answer = yield from _look_up(services, context, topic.name, each, isolation)
            answers.append(answer)
            yield None
        yield None
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return ListOffsetsResponse(topics=topics)


def _look_up(
    services: Services, context: RequestContext, topic: str, asked: ListOffsetsPartition, isolation: Isolation
) -> Steps[ListOffsetsPartitionResponse]:
    timestamp_ms = asked.timestamp
    if timestamp_ms < EARLIEST_PENDING_UPLOAD or context.version < _FIRST_VERSIONS.get(timestamp_ms, 0):
        return _error(asked, ErrorCode.UNSUPPORTED_VERSION)
    key = (topic, asked.partition_index)
    partition = services.replica_manager.index.get(key)
    if partition is None:
        return _error(asked, services.replica_manager.why_missing(services.metadata.image, key))
    try:
        search = partition.search_timestamp(timestamp_ms, isolation, asked.current_leader_epoch)
        found = yield from _with_help(services, search)
    except LogError as failure:
        services.replica_manager.log_failed(partition, failure)
        code = failure.code
        if code is ErrorCode.OFFSET_NOT_AVAILABLE and context.version < _FIRST_WITH_NOT_AVAILABLE:
            code = ErrorCode.LEADER_NOT_AVAILABLE
        return _error(asked, code)
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        timestamp=found.timestamp_ms,
        offset=found.offset,
        # Before v4 there is no field for it.
        leader_epoch=found.leader_epoch if context.version >= 4 else -1,
    )


def _with_help(services: Services, search: Search[TimestampAndOffset]) -> Steps[TimestampAndOffset]:
    """The outcome of a search whose costly parts are done away from the loop."""
    outcome: Any = None
    try:
        while True:
            outcome = yield from awaited(services.runtime.offload(search.send(outcome)))
    except StopIteration as end:
        found: TimestampAndOffset = end.value
        return found


def _error(asked: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=code)
