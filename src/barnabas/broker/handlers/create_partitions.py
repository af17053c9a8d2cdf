"""CreatePartitions (37): adds partitions to topics."""

from __future__ import annotations

from typing import Final

from barnabas.broker.context import RequestContext
from barnabas.broker.controller.forwarding import forwarded
from barnabas.broker.services import CommonServices
from barnabas.broker.turns import Steps
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse

API_KEY = ApiKey.CREATE_PARTITIONS
#: Enough for as many partitions as one request may create, with replicas on many brokers each.
MAX_ELEMENTS: Final = 200_000


def handle(
    services: CommonServices, context: RequestContext, request: CreatePartitionsRequest
) -> Steps[CreatePartitionsResponse]:
    return forwarded(services, context, request, CreatePartitionsResponse)
