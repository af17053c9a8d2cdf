"""UnregisterBroker (64): forgets a broker that will not come back.

As in Kafka, nobody checks whether it is gone: one that still runs leads nothing until it is started again.
"""

from __future__ import annotations

from barnabas.broker.context import RequestContext
from barnabas.broker.controller.forwarding import forwarded
from barnabas.broker.services import CommonServices
from barnabas.broker.turns import Steps
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

API_KEY = ApiKey.UNREGISTER_BROKER


def handle(
    services: CommonServices, context: RequestContext, request: UnregisterBrokerRequest
) -> Steps[UnregisterBrokerResponse]:
    return forwarded(services, context, request, UnregisterBrokerResponse)
