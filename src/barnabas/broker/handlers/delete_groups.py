"""DeleteGroups: deletes groups that have no members."""

from __future__ import annotations

import asyncio

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.context import RequestContext
from barnabas.broker.services import Services
from barnabas.broker.turns import Steps, once_each, settled
from barnabas.coordinator.requests import DELETE_GROUP
from barnabas.metadata.authorizer import AclOperation, Resource
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

API_KEY = ApiKey.DELETE_GROUPS


def handle(services: Services, context: RequestContext, request: DeleteGroupsRequest) -> Steps[DeleteGroupsResponse]:
    deleting: list[DeletableGroupResult | asyncio.Future[DeletableGroupResult]] = []
    refused: list[DeletableGroupResult] = []
    for group_id in (yield from once_each(request.groups_names)):
        if services.authorizer.is_allowed(context, AclOperation.DELETE, Resource.GROUP, group_id):
            deleting.append(services.groups.submit(DELETE_GROUP, group_id))
        else:
            error = ErrorCode.GROUP_AUTHORIZATION_FAILED
            refused.append(DeletableGroupResult(group_id=group_id, error_code=error))
        yield None
    results = []
    for each in deleting:
        results.append((yield from settled(each)))
        yield None
    return DeleteGroupsResponse(results=results + refused)
