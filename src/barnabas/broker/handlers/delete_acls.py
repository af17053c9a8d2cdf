"""DeleteAcls (31): removes access rules. Without an authorizer each filter is refused, as Kafka does."""

from __future__ import annotations

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.context import NO_AUTHORIZER, RequestContext
from barnabas.broker.services import CommonServices
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse

API_KEY = ApiKey.DELETE_ACLS


def handle(services: CommonServices, context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    # Results have no names: the client finds its own by their order.
    refused = DeleteAclsFilterResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER, matching_acls=[]
    )
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
