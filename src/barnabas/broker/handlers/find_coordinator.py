"""FindCoordinator: which broker coordinates a group or a transactional id."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.context import RequestContext
from barnabas.broker.controller.controller_channel import broker_caller
from barnabas.broker.services import Services
from barnabas.broker.turns import Steps, each_of, once_each
from barnabas.metadata.authorizer import AclOperation, Resource
from barnabas.metadata.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

API_KEY = ApiKey.FIND_COORDINATOR

_FIRST_WITH_SEVERAL: Final = 4


class _KeyType(IntEnum):
    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class _Found(NamedTuple):
    """Who coordinates, or why nobody is named."""

    error: ErrorCode
    node_id: int = -1
    host: str = ""
    port: int = -1
    reason: str | None = None


def handle(
    services: Services, context: RequestContext, request: FindCoordinatorRequest
) -> Steps[FindCoordinatorResponse]:
    if context.version >= _FIRST_WITH_SEVERAL:
        keys = yield from once_each(request.coordinator_keys)
        found_all = yield from each_of(keys, lambda key: _answer(services, context, request.key_type, key))
        return FindCoordinatorResponse(coordinators=found_all)
    found = _find(services, context, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error,
        error_message=_message(found) or ErrorCode.NONE.name,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _answer(services: Services, context: RequestContext, key_type: int, key: str) -> Coordinator:
    found = _find(services, context, key_type, key)
    return Coordinator(
        key=key,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
        error_code=found.error,
        error_message=_message(found) or "",
    )


def _message(found: _Found) -> str | None:
    return None if found.error is ErrorCode.NONE else found.reason or found.error.text


def _find(services: Services, context: RequestContext, key_type: int, key: str) -> _Found:
    is_allowed = services.authorizer.is_allowed
    if key_type == _KeyType.TRANSACTION:
        if not is_allowed(context, AclOperation.DESCRIBE, Resource.TRANSACTIONAL_ID, key):
            return _Found(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return _leader(services, context, TRANSACTION_STATE, services.transactions.partition_for(key))
    if key_type != _KeyType.GROUP:
        is_share = key_type == _KeyType.SHARE
        reason = "share groups are not served" if is_share else f"there are no coordinators of type {key_type}"
        return _Found(ErrorCode.INVALID_REQUEST, reason=reason)
    if not is_allowed(context, AclOperation.DESCRIBE, Resource.GROUP, key):
        return _Found(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return _leader(services, context, CONSUMER_OFFSETS, services.groups.partition_for(key))


def _leader(services: Services, context: RequestContext, topic: str, index: int) -> _Found:
    """Who leads a partition of a coordinators' topic, which comes about when it is asked for."""
    image = services.metadata.image
    if topic not in image.topics:
        # The broker's own wish: whoever asks need not be allowed to create topics.
        services.auto_topic_creation.create_topics([topic], broker_caller(services.node_id))
        return _Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    partition = image.partition(topic, index)
    broker = image.brokers.get(partition.leader) if partition is not None else None
    endpoint = broker.endpoint(context.listener) if broker is not None and not broker.is_fenced else None
    if broker is None or endpoint is None:
        return _Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return _Found(ErrorCode.NONE, broker.broker_id, endpoint.host, endpoint.port)
