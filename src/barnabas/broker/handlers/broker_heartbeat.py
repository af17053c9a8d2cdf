"""BrokerHeartbeat (63): a broker says that it lives, or that it wants to stop. The controller decides."""

from __future__ import annotations

from barnabas.broker.context import RequestContext
from barnabas.broker.controller.forwarding import forwarded
from barnabas.broker.services import CommonServices
from barnabas.broker.turns import Steps
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

API_KEY = ApiKey.BROKER_HEARTBEAT


def handle(
    services: CommonServices, context: RequestContext, request: BrokerHeartbeatRequest
) -> Steps[BrokerHeartbeatResponse]:
    return forwarded(services, context, request, BrokerHeartbeatResponse)
