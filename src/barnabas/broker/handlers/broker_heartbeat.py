"""BrokerHeartbeat (63): a broker says that it lives, or that it wants to stop. The controller decides."""

from __future__ import annotations

from barnabas.broker.context import RequestContext
from barnabas.broker.controller.forwarding import forwarded
from barnabas.broker.services import ControllerServices
from barnabas.broker.turns import Steps
from barnabas.net import Connection
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

API_KEY = ApiKey.BROKER_HEARTBEAT


def handle(
    services: ControllerServices, context: RequestContext, request: BrokerHeartbeatRequest, connection: Connection
) -> Steps[BrokerHeartbeatResponse]:
    response: BrokerHeartbeatResponse = yield from forwarded(services, context, request)
    if response.should_shut_down:
        services.early_fencing.let_go(request.broker_id)
    else:
        services.early_fencing.heard(request.broker_id, request.broker_epoch, connection)
    return response
