"""Fetch (1): reads record batches, waiting for `min_bytes` up to `max_wait_ms`.

Before v4 it is not served. v7 has sessions, in which only news travel; v12 tells a reader where its log left the
leader's; v13 names topics by id; v16 hints at the leader after a miss. Up to v5 there was no error for failed disks.
"""

from __future__ import annotations

from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.context import CLUSTER_NAME, Operation, RequestContext, Resource
from barnabas.broker.fetching import Fetch, FetchAnswer
from barnabas.broker.services import Services
from barnabas.broker.turns import Steps
from barnabas.replication.fetch_sessions import NO_SESSION, replica_of
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.fetch import FetchRequest, FetchResponse

API_KEY = ApiKey.FETCH

_FIRST_BY_ID: Final = 13


def handle(services: Services, context: RequestContext, request: FetchRequest) -> FetchAnswer | Steps[FetchAnswer]:
    if replica_of(request) >= 0 and not services.authorizer.is_allowed(
        context, Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME
    ):
        return FetchResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, session_id=NO_SESSION, responses=[])
    session = services.fetch_sessions.begin(
        request, uses_ids=context.version >= _FIRST_BY_ID, now_ms=services.runtime.clock.monotonic_ms()
    )
    if session.error:
        return FetchResponse(error_code=session.error, session_id=NO_SESSION, responses=[])
    return Fetch(services, context, request, session).answer()
