"""AllocateProducerIds (67): a broker takes ids for its producers. The controller decides."""

from __future__ import annotations

from barnabas.broker.context import RequestContext
from barnabas.broker.controller.forwarding import forwarded
from barnabas.broker.services import CommonServices
from barnabas.broker.turns import Steps
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

API_KEY = ApiKey.ALLOCATE_PRODUCER_IDS


def handle(
    services: CommonServices, context: RequestContext, request: AllocateProducerIdsRequest
) -> Steps[AllocateProducerIdsResponse]:
    return forwarded(services, context, request, AllocateProducerIdsResponse)
