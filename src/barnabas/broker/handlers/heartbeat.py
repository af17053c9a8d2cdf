"""Heartbeat: a member of a classic group says that it lives."""

from __future__ import annotations

import asyncio

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.context import RequestContext
from barnabas.broker.services import Services
from barnabas.coordinator.requests import HEARTBEAT
from barnabas.metadata.authorizer import AclOperation, Resource
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

API_KEY = ApiKey.HEARTBEAT


def handle(
    services: Services, context: RequestContext, request: HeartbeatRequest
) -> HeartbeatResponse | asyncio.Future[HeartbeatResponse]:
    if not services.authorizer.is_allowed(context, AclOperation.READ, Resource.GROUP, request.group_id):
        return HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return services.groups.submit(HEARTBEAT, request)
