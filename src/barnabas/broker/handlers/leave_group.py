"""LeaveGroup: members leave a classic group. Before version 3 it is one member, and its error is the answer's."""

from __future__ import annotations

from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.context import RequestContext
from barnabas.broker.services import Services
from barnabas.broker.turns import Steps, chunks, settled, spent
from barnabas.coordinator.requests import LEAVE_GROUP
from barnabas.metadata.authorizer import AclOperation, Resource
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

API_KEY = ApiKey.LEAVE_GROUP

_FIRST_WITH_SEVERAL = 3
#: How many leave without a break; others have their turn between parts.
_MEMBERS_AT_ONCE: Final = 256


def handle(services: Services, context: RequestContext, request: LeaveGroupRequest) -> Steps[LeaveGroupResponse]:
    if not services.authorizer.is_allowed(context, AclOperation.READ, Resource.GROUP, request.group_id):
        return LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if context.version >= _FIRST_WITH_SEVERAL:
        return (yield from _leave(services, request.group_id, request.members))
    response = yield from _leave(services, request.group_id, [MemberIdentity(member_id=request.member_id)])
    error_code = response.error_code or next((each.error_code for each in response.members), ErrorCode.NONE)
    return LeaveGroupResponse(error_code=error_code)


def _leave(services: Services, group_id: str, members: list[MemberIdentity]) -> Steps[LeaveGroupResponse]:
    answers = []
    # At least once, since the group may be the error.
    for part in chunks(members, _MEMBERS_AT_ONCE) if members else [members]:
        request = LeaveGroupRequest(group_id=group_id, members=part)
        response = yield from settled(services.groups.submit(LEAVE_GROUP, request))
        yield from spent(len(part))
        if response.error_code:
            return response
        answers += response.members
    return LeaveGroupResponse(members=answers)
