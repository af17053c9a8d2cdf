"""CreateAcls (30): adds access rules. Without an authorizer each is refused, as Kafka does."""

from __future__ import annotations

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.context import NO_AUTHORIZER, RequestContext
from barnabas.broker.services import CommonServices
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

API_KEY = ApiKey.CREATE_ACLS


def handle(services: CommonServices, context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    # Results have no names: the client finds its own by their order.
    refused = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    return CreateAclsResponse(results=[refused] * len(request.creations))
