"""InitProducerId (22): gives a producer its id and epoch.

Without a transactional id, an id that nobody has had, with epoch 0; whatever it had before (v3) makes no difference.
With one, what the transaction coordinator says.
"""

from __future__ import annotations

from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.context import RequestContext
from barnabas.broker.services import Services
from barnabas.broker.turns import Steps, awaited, settled
from barnabas.coordinator.transactions.init_producer_id import init_failed
from barnabas.coordinator.transactions.requests import INIT_PRODUCER_ID
from barnabas.metadata.authorizer import CLUSTER_NAME, AclOperation, Resource
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

API_KEY = ApiKey.INIT_PRODUCER_ID

_FIRST_EPOCH: Final = 0


def handle(
    services: Services, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse | Steps[InitProducerIdResponse]:
    is_allowed = services.authorizer.is_allowed
    if request.transactional_id is not None:
        if not is_allowed(context, AclOperation.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id):
            return init_failed(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return _init_transactional(services, context, request)
    if not is_allowed(
        context, AclOperation.IDEMPOTENT_WRITE, Resource.CLUSTER, CLUSTER_NAME, log_if_denied=False
    ) and not services.authorizer.is_allowed_by_type(context, AclOperation.WRITE, Resource.TOPIC):
        return init_failed(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    producer_id = services.producer_ids.take()
    return _wait(services) if producer_id is None else _given(producer_id)


def _init_transactional(
    services: Services, context: RequestContext, request: InitProducerIdRequest
) -> Steps[InitProducerIdResponse]:
    if not services.producer_ids.has_some():
        yield from awaited(services.producer_ids.more())
    answer = services.transactions.submit(INIT_PRODUCER_ID, request, context.version)
    return (yield from settled(answer))


def _wait(services: Services) -> Steps[InitProducerIdResponse]:
    yield from awaited(services.producer_ids.more())
    producer_id = services.producer_ids.take()
    # An error that clients of all ages take for "ask again".
    return init_failed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) if producer_id is None else _given(producer_id)


def _given(producer_id: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=_FIRST_EPOCH)
