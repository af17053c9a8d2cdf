"""Requests that the controller decides, forwarded to it in parts that it decides without a break.

What somebody asks for at once may be very much. The parts are requests of the same kind, and their answers are put
together again. What is named twice stays in one part, so that the controller sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from copy import copy
from typing import Any, Final, NamedTuple

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.context import RequestContext
from barnabas.broker.error_responses import error_response
from barnabas.broker.services import CommonServices
from barnabas.broker.turns import Steps, awaited, parts_for_the_controller
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.options import MAX_RECORDS_PER_REQUEST
from barnabas.wire.apis import ApiKey
from barnabas.wire.message import Request, Response
from barnabas.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryData,
)
from barnabas.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from barnabas.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

#: What brokers forward.
FORWARDED: Final = frozenset(
    {
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.CREATE_ACLS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_ACLS,
        ApiKey.DELETE_TOPICS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.ELECT_LEADERS,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.UPDATE_FEATURES,
    }
)


class _Division(NamedTuple):
    """How a request is cut: the list in it, what names an item, what it costs, and the list in the answer."""

    items: str
    key: Callable[[Any], Hashable]
    cost: Callable[[Any], int]
    response: type[Response]
    results: str
    #: How many records an item stands for, where that is more than its bytes tell: all of them together are bounded.
    records: Callable[[Any, ClusterImage], int] | None = None


def _partitions_of_topic(topic: CreatableTopic, _: ClusterImage | None = None) -> int:
    return max(1, topic.num_partitions, len(topic.assignments))


def _cost_of_topic(topic: CreatableTopic) -> int:
    return _partitions_of_topic(topic) + len(topic.configs)


def _added_partitions(topic: CreatePartitionsTopic, image: ClusterImage) -> int:
    existing = image.topics.get(topic.name)
    return 0 if existing is None else max(0, topic.count - len(existing.partitions))


def _cost_of_partitions(topic: CreatePartitionsTopic) -> int:
    return max(1, len(topic.assignments or ()))


def _resource(resource: Any) -> tuple[int, str]:
    return resource.resource_type, resource.resource_name


def _entity(entry: EntryData) -> Hashable:
    return frozenset((each.entity_type, each.entity_name) for each in entry.entity)


def _settings_of(resource: Any) -> int:
    return len(resource.configs)


_DIVISIONS: Final[dict[type[Request], _Division]] = {
    CreateTopicsRequest: _Division(
        "topics", lambda topic: topic.name, _cost_of_topic, CreateTopicsResponse, "topics", _partitions_of_topic
    ),
    CreatePartitionsRequest: _Division(
        "topics", lambda topic: topic.name, _cost_of_partitions, CreatePartitionsResponse, "results", _added_partitions
    ),
    DeleteTopicsRequest: _Division(
        "topics", lambda topic: (topic.name, topic.topic_id), lambda _: 1, DeleteTopicsResponse, "responses"
    ),
    AlterConfigsRequest: _Division("resources", _resource, _settings_of, AlterConfigsResponse, "responses"),
    AlterClientQuotasRequest: _Division(
        "entries", _entity, lambda entry: len(entry.ops), AlterClientQuotasResponse, "entries"
    ),
    IncrementalAlterConfigsRequest: _Division(
        "resources", _resource, _settings_of, IncrementalAlterConfigsResponse, "responses"
    ),
}


#: Before v6 there were only names. A request stays in the form of its version, in which it travels on.
_DELETION_BY_NAME: Final = _Division("topic_names", lambda name: name, lambda _: 1, DeleteTopicsResponse, "responses")


def _division_of(request: Request) -> _Division | None:
    if isinstance(request, DeleteTopicsRequest) and not request.topics:
        return _DELETION_BY_NAME
    return _DIVISIONS.get(type(request))


def forwarded(services: CommonServices, context: RequestContext, request: Request) -> Steps[Any]:
    """The controller's answer. Where nothing else is to be done, this is the handler."""
    division = _division_of(request)
    if division is None:
        return (yield from awaited(services.controller.submit(request, context.version, context)))
    merged = division.response(**{division.results: []})
    items = getattr(request, division.items)
    if division.records is not None:
        # In parts the controller would take them all: a few bytes ask for very many partitions.
        total = yield from _records_of(items, division.records, services.metadata.image)
        if total > MAX_RECORDS_PER_REQUEST:
            why = f"{total} records are more than a request may have ({MAX_RECORDS_PER_REQUEST}): ask in smaller steps"
            return (yield from error_response(context, request, ErrorCode.POLICY_VIOLATION, why))
    for part in (yield from parts_for_the_controller(items, division.key, division.cost)):
        partial_request = copy(request)
        setattr(partial_request, division.items, part)
        answer = yield from awaited(services.controller.submit(partial_request, context.version, context))
        getattr(merged, division.results).extend(getattr(answer, division.results))
        merged.throttle_time_ms = max(merged.throttle_time_ms, answer.throttle_time_ms)  # type: ignore[attr-defined]
    return merged


def _records_of(items: Sequence[Any], records: Callable[[Any, ClusterImage], int], image: ClusterImage) -> Steps[int]:
    total = 0
    for item in items:
        total += records(item, image)
        yield None
    return total
