"""JoinGroup: a member enters a rebalance of its classic group."""

from __future__ import annotations

import asyncio
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.answers import once, parked
from barnabas.broker.context import RequestContext
from barnabas.broker.services import Services
from barnabas.coordinator.classic.members import Client
from barnabas.coordinator.classic.responses import join_failed
from barnabas.coordinator.requests import JOIN_GROUP, Caller
from barnabas.metadata.authorizer import AclOperation, Resource
from barnabas.net import Connection
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

API_KEY = ApiKey.JOIN_GROUP
#: The answer does not grow with the request.
ANSWER_BYTES_PER_ELEMENT: Final = 0
#: A member knows a handful of protocols.
MAX_ELEMENTS: Final = 1000

_FIRST_WITH_NO_PROTOCOL = 7


def handle(
    services: Services, context: RequestContext, request: JoinGroupRequest, connection: Connection
) -> JoinGroupResponse | asyncio.Future[JoinGroupResponse]:
    if not services.authorizer.is_allowed(context, AclOperation.READ, Resource.GROUP, request.group_id):
        return _shaped(join_failed(ErrorCode.GROUP_AUTHORIZATION_FAILED, ""), context.version)
    # The slash is how Java prints an address; tools show what is stored.
    client = Client(context.client_id or "", f"/{context.client_host}")
    answer = services.groups.submit(JOIN_GROUP, request, Caller(context.version, client))
    return once(parked(answer, connection), lambda response: _shaped(response, context.version))


def _shaped(response: JoinGroupResponse, version: int) -> JoinGroupResponse:
    if version < _FIRST_WITH_NO_PROTOCOL and response.protocol_name is None:
        response.protocol_name = ""
    return response
