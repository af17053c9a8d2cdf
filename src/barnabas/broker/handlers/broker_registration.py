"""BrokerRegistration (62): a broker joins the cluster. The controller decides."""

from __future__ import annotations

from barnabas.broker.context import RequestContext
from barnabas.broker.controller.forwarding import forwarded
from barnabas.broker.services import CommonServices
from barnabas.broker.turns import Steps
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse

API_KEY = ApiKey.BROKER_REGISTRATION


def handle(
    services: CommonServices, context: RequestContext, request: BrokerRegistrationRequest
) -> Steps[BrokerRegistrationResponse]:
    return forwarded(services, context, request, BrokerRegistrationResponse)
