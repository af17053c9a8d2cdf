"""UnregisterBroker (64): forgets a broker that will not come back.

As in Kafka, nobody checks whether it is gone: one that still runs leads nothing until it is started again.
"""

from __future__ import annotations

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.broker.context import CLUSTER_NAME, Operation, RequestContext, Resource
from barnabas.broker.services import Services
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

API_KEY = ApiKey.UNREGISTER_BROKER


async def handle(
    services: Services, context: RequestContext, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    if not services.authorizer.is_allowed(context, Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
        raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not allowed to unregister brokers")
    await services.controller.submit(lambda controller: controller.unregister_broker(request.broker_id))
    return UnregisterBrokerResponse()
