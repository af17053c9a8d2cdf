"""DescribeGroups: state and members of classic groups."""

from __future__ import annotations

from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.context import RequestContext
from barnabas.broker.services import Services
from barnabas.broker.turns import Room, Steps, each_of, once_each
from barnabas.coordinator.describe import describe_failed
from barnabas.metadata.authorizer import AclOperation, Resource, authorized_operations
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

API_KEY = ApiKey.DESCRIBE_GROUPS
#: It asks for room itself.
ANSWER_BYTES_PER_ELEMENT: Final = 0

_FIRST_THAT_TELLS_MISSING = 6


def handle(
    services: Services, context: RequestContext, request: DescribeGroupsRequest
) -> Steps[DescribeGroupsResponse]:
    refused: list[DescribedGroup] = []
    described: list[DescribedGroup] = []
    group_ids = yield from once_each(request.groups)
    yield Room(sum((yield from each_of(group_ids, services.groups.described_bytes))))
    for group_id in group_ids:
        yield None
        if not services.authorizer.is_allowed(context, AclOperation.DESCRIBE, Resource.GROUP, group_id):
            refused.append(describe_failed(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED))
            continue
        tells_missing = context.version >= _FIRST_THAT_TELLS_MISSING
        group = yield from services.groups.describe_group(group_id, tells_missing=tells_missing)
        if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = authorized_operations(services.authorizer, context, Resource.GROUP, group_id)
        described.append(DescribeGroupsResponse.piece(group, context.version))
    return DescribeGroupsResponse(groups=refused + described)
