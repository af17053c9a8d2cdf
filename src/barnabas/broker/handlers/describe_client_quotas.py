"""DescribeClientQuotas (48): how much users, client ids and addresses may use."""

from __future__ import annotations

from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.broker.context import RequestContext
from barnabas.broker.services import CommonServices
from barnabas.broker.turns import Steps
from barnabas.metadata.authorizer import CLUSTER_NAME, AclOperation, Resource
from barnabas.metadata.client_quotas import ClientQuotaFilter, described
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse

API_KEY = ApiKey.DESCRIBE_CLIENT_QUOTAS
MAX_ELEMENTS: Final = 1000
#: The answer grows with what there is, not with what was asked.
ANSWER_BYTES_PER_ELEMENT: Final = 0


def handle(
    services: CommonServices, context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse | Steps[DescribeClientQuotasResponse]:
    if not services.authorizer.is_allowed(context, AclOperation.DESCRIBE_CONFIGS, Resource.CLUSTER, CLUSTER_NAME):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return _refused(code, code.text)
    try:
        wanted = ClientQuotaFilter(request)
    except BrokerError as refusal:
        return _refused(refusal.code, refusal.message or refusal.code.text)
    return _described(services, wanted)


def _described(services: CommonServices, wanted: ClientQuotaFilter) -> Steps[DescribeClientQuotasResponse]:
    """One entity a step."""
    found = []
    for entity, quotas in services.metadata.image.client_quotas.items():
        if wanted.matches(entity):
            found.append(described(entity, quotas))
        yield None
    return DescribeClientQuotasResponse(entries=found)


def _refused(code: ErrorCode, message: str) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None)
