"""LeaveGroup: members leave a classic group. Before version 3 it is one member, and its error is the answer's."""

from __future__ import annotations

import asyncio

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.answers import once
from barnabas.broker.context import Operation, RequestContext, Resource
from barnabas.broker.services import Services
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

API_KEY = ApiKey.LEAVE_GROUP

_FIRST_WITH_SEVERAL = 3


def handle(
    services: Services, context: RequestContext, request: LeaveGroupRequest
) -> LeaveGroupResponse | asyncio.Future[LeaveGroupResponse]:
    if not services.authorizer.is_allowed(context, Operation.READ, Resource.GROUP, request.group_id):
        return LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if context.version >= _FIRST_WITH_SEVERAL:
        return services.groups.leave(request.group_id, request.members)
    return once(services.groups.leave(request.group_id, [MemberIdentity(member_id=request.member_id)]), _for_one)


def _for_one(response: LeaveGroupResponse) -> LeaveGroupResponse:
    error_code = response.error_code or next((each.error_code for each in response.members), ErrorCode.NONE)
    return LeaveGroupResponse(error_code=error_code)
