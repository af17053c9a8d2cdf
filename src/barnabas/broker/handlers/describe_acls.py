"""DescribeAcls (29): access rules. A node without an authorizer has none and says so, as Kafka does."""

from __future__ import annotations

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.context import NO_AUTHORIZER, RequestContext
from barnabas.broker.services import CommonServices
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

API_KEY = ApiKey.DESCRIBE_ACLS


def handle(services: CommonServices, context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER, resources=[])
