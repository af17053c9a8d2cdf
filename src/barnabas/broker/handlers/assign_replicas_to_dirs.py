"""AssignReplicasToDirs (73): a broker says in which directory its replicas lie. The controller takes note."""

from __future__ import annotations

from barnabas.broker.context import RequestContext
from barnabas.broker.controller.forwarding import forwarded
from barnabas.broker.services import CommonServices
from barnabas.broker.turns import Steps
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse

API_KEY = ApiKey.ASSIGN_REPLICAS_TO_DIRS


def handle(
    services: CommonServices, context: RequestContext, request: AssignReplicasToDirsRequest
) -> Steps[AssignReplicasToDirsResponse]:
    return forwarded(services, context, request, AssignReplicasToDirsResponse)
