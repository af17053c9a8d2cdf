"""ListGroups: the groups that this broker coordinates."""

from __future__ import annotations

from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.context import RequestContext
from barnabas.broker.services import Services
from barnabas.broker.turns import Room, Steps
from barnabas.metadata.authorizer import CLUSTER_NAME, AclOperation, Resource
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse

API_KEY = ApiKey.LIST_GROUPS
#: It asks for room itself.
ANSWER_BYTES_PER_ELEMENT: Final = 0
#: Groups have a handful of states and types to ask for.
MAX_ELEMENTS: Final = 1000
#: Of memory for one group that is listed.
_GROUP_BYTES: Final = 512


def handle(services: Services, context: RequestContext, request: ListGroupsRequest) -> Steps[ListGroupsResponse]:
    yield Room(services.groups.group_count * _GROUP_BYTES)
    is_allowed = services.authorizer.is_allowed
    sees_all = is_allowed(context, AclOperation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME, log_if_denied=False)
    response = ListGroupsResponse(groups=[])
    for outcome in services.groups.list_groups(request.states_filter, request.types_filter):
        yield None
        if isinstance(outcome, ErrorCode):
            return ListGroupsResponse(error_code=outcome, groups=[])
        if outcome is not None and (
            sees_all
            or is_allowed(context, AclOperation.DESCRIBE, Resource.GROUP, outcome.group_id, log_if_denied=False)
        ):
            response.groups.append(outcome)
    return response
