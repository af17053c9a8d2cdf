"""ListGroups: the groups that this broker coordinates."""

from __future__ import annotations

from barnabas.broker.context import CLUSTER_NAME, Operation, RequestContext, Resource
from barnabas.broker.services import Services
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse

API_KEY = ApiKey.LIST_GROUPS


def handle(services: Services, context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    response = services.groups.list_groups(request.states_filter, request.types_filter)
    is_allowed = services.authorizer.is_allowed
    if not is_allowed(context, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        response.groups = [
            group
            for group in response.groups
            if is_allowed(context, Operation.DESCRIBE, Resource.GROUP, group.group_id)
        ]
    return response
