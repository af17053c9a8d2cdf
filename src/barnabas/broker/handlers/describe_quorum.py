"""DescribeQuorum (55): who leads the metadata log, and how far each replica of it is. The controller knows."""

from __future__ import annotations

from typing import Final

from barnabas.broker.context import RequestContext
from barnabas.broker.controller.forwarding import forwarded
from barnabas.broker.services import CommonServices
from barnabas.broker.turns import Steps
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse

API_KEY = ApiKey.DESCRIBE_QUORUM
#: There is one partition to ask for.
MAX_ELEMENTS: Final = 1000


def handle(
    services: CommonServices, context: RequestContext, request: DescribeQuorumRequest
) -> Steps[DescribeQuorumResponse]:
    return forwarded(services, context, request, DescribeQuorumResponse)
