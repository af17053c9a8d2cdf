"""SyncGroup: the leader hands in the assignment, everyone receives theirs."""

from __future__ import annotations

import asyncio
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.answers import parked
from barnabas.broker.context import RequestContext
from barnabas.broker.services import Services
from barnabas.coordinator.classic.responses import sync_failed
from barnabas.coordinator.requests import SYNC_GROUP
from barnabas.metadata.authorizer import AclOperation, Resource
from barnabas.net import Connection
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

API_KEY = ApiKey.SYNC_GROUP
#: The answer does not grow with the request.
ANSWER_BYTES_PER_ELEMENT: Final = 0
#: No group with so many members would ever be stable.
MAX_ELEMENTS: Final = 20_000

#: From here on a member must say which protocol it believes to be in.
_FIRST_WITH_PROTOCOL = 5


def handle(
    services: Services, context: RequestContext, request: SyncGroupRequest, connection: Connection
) -> SyncGroupResponse | asyncio.Future[SyncGroupResponse]:
    is_protocol_missing = request.protocol_type is None or request.protocol_name is None
    if context.version >= _FIRST_WITH_PROTOCOL and is_protocol_missing:
        return sync_failed(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not services.authorizer.is_allowed(context, AclOperation.READ, Resource.GROUP, request.group_id):
        return sync_failed(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    answer = services.groups.submit(SYNC_GROUP, request)
    # What the leader handed in is taken; while others are waited for it need not be kept twice, nor what nobody reads.
    request.assignments = []
    return parked(answer, connection)
