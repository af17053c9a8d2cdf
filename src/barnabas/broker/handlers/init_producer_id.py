"""InitProducerId (22): gives an idempotent producer an id that nobody has had, with epoch 0.

Whatever id and epoch it had before (v3) makes no difference without a transactional id. Transactional ids are refused:
their coordinator is not built. Of all errors only those of authorization make both Java clients and librdkafka give up
at once; others are retried until a timeout, or reported as something odd.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.context import RequestContext
from barnabas.broker.services import Services
from barnabas.metadata.authorizer import CLUSTER_NAME, AclOperation, Resource
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

API_KEY = ApiKey.INIT_PRODUCER_ID

_NO_EPOCH: Final = -1
_FIRST_EPOCH: Final = 0


def handle(
    services: Services, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    if request.transactional_id == "":
        return _error(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        services.refused_transactions.tell(context.client_id, request.transactional_id)
        return _error(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not services.authorizer.is_allowed(context, AclOperation.IDEMPOTENT_WRITE, Resource.CLUSTER, CLUSTER_NAME):
        return _error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    producer_id = services.producer_ids.take()
    return _wait(services) if producer_id is None else _given(producer_id)


async def _wait(services: Services) -> InitProducerIdResponse:
    await services.producer_ids.more()
    producer_id = services.producer_ids.take()
    # An error that clients of all ages take for "ask again".
    return _error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) if producer_id is None else _given(producer_id)


def _given(producer_id: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=_FIRST_EPOCH)


def _error(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=_NO_EPOCH)
