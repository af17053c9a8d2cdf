"""DescribeAcls (29): access rules. A node whose authorizer keeps none says so, as Kafka does."""

from __future__ import annotations

from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.broker.context import RequestContext
from barnabas.broker.services import CommonServices
from barnabas.broker.turns import Room, Steps
from barnabas.metadata.access_images import StandardAcl
from barnabas.metadata.acls import matcher, what_is_wrong_with_filter
from barnabas.metadata.authorizer import CLUSTER_NAME, AclOperation, Resource
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

API_KEY = ApiKey.DESCRIBE_ACLS
#: It asks for room itself.
ANSWER_BYTES_PER_ELEMENT: Final = 0

_NO_AUTHORIZER: Final = "No Authorizer is configured on the broker"
#: Of memory for a rule in the answer.
_ACL_BYTES: Final = 512
#: How many rules are held against the filter in a step.
_RULES_PER_STEP: Final = 64


def handle(
    services: CommonServices, context: RequestContext, request: DescribeAclsRequest
) -> Steps[DescribeAclsResponse]:
    if not services.authorizer.is_allowed(context, AclOperation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if not services.authorizer.keeps_acls:
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=_NO_AUTHORIZER, resources=[])
    problem = what_is_wrong_with_filter(request)
    if problem is not None:
        raise BrokerError(ErrorCode.INVALID_REQUEST, problem)
    matches = matcher(request)
    found: list[StandardAcl] = []
    for number, acl in enumerate(services.metadata.image.acls.values()):
        if matches(acl):
            found.append(acl)
        if not number % _RULES_PER_STEP:
            yield None
    yield Room(len(found) * _ACL_BYTES)
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for acl in found:
        key = acl.resource_type, acl.resource_name, acl.pattern_type
        resource = resources.get(key)
        if resource is None:
            resource = resources[key] = DescribeAclsResource(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                pattern_type=acl.pattern_type,
                acls=[],
            )
        resource.acls.append(
            AclDescription(
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission_type,
            )
        )
        yield None
    return DescribeAclsResponse(resources=list(resources.values()))
