"""Fetch (1): reads record batches, waiting for `min_bytes` up to `max_wait_ms`.

Before v4 it is not served. v7 has sessions, in which only news travel; v12 tells a reader where its log left the
leader's; v13 names topics by id; v16 hints at the leader after a miss. Up to v5 there was no error for failed disks.

A reader without a session that keeps up is answered without its request being decoded (`handle_frame`).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from barnabas.broker.context import RequestContext
from barnabas.broker.data.fetching import FEW_PARTITIONS, Fetch, FetchAnswer
from barnabas.broker.data.ordinary_fetch import answer_ordinary
from barnabas.broker.request_names import FETCH_FOLLOWER_SLOT
from barnabas.broker.services import Services
from barnabas.broker.turns import Steps
from barnabas.metadata.authorizer import CLUSTER_NAME, AclOperation, Resource
from barnabas.net import Connection
from barnabas.replication.fetch_sessions import SessionFetch, replica_of
from barnabas.wire.apis import ApiKey
from barnabas.wire.fetch_session_epoch import NO_SESSION
from barnabas.wire.messages.fetch import FetchRequest, FetchResponse

API_KEY = ApiKey.FETCH
#: It takes what room there is.
ANSWER_BYTES_PER_ELEMENT: Final = 0

_FIRST_BY_ID: Final = 13

handle_frame = answer_ordinary


def handle(
    services: Services, context: RequestContext, request: FetchRequest, connection: Connection
) -> FetchAnswer | Steps[FetchAnswer]:
    is_follower = replica_of(request) >= 0
    if is_follower:
        connection.count_also_as(FETCH_FOLLOWER_SLOT)
    is_denied = is_follower and not services.authorizer.is_allowed(
        context, AclOperation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME
    )
    uses_ids, now_ms = context.version >= _FIRST_BY_ID, services.runtime.clock.monotonic_ms()
    if not _is_small(request):
        steps = services.fetch_sessions.begin_in_steps(request, uses_ids=uses_ids, now_ms=now_ms)
        return _answer_in_steps(services, context, request, connection, steps, is_denied=is_denied)
    session = services.fetch_sessions.begin(request, uses_ids=uses_ids, now_ms=now_ms)
    if session.error:
        return _refused(session)
    return Fetch(services, context, request, connection, session, is_denied=is_denied).answer()


def _answer_in_steps(
    services: Services,
    context: RequestContext,
    request: FetchRequest,
    connection: Connection,
    beginning: Steps[SessionFetch],
    *,
    is_denied: bool,
) -> Steps[FetchAnswer]:
    session = yield from beginning
    if session.error:
        return _refused(session)
    answer = Fetch(services, context, request, connection, session, is_denied=is_denied).answer()
    return (yield from answer) if isinstance(answer, Generator) else answer


def _is_small(request: FetchRequest) -> bool:
    """Whether few partitions are named, as in most fetches of a session."""
    topics, forgotten = request.topics, request.forgotten_topics_data
    if not topics and not forgotten:
        return True
    if len(topics) + len(forgotten) > FEW_PARTITIONS:
        return False
    count = 0
    for topic in topics:
        count += len(topic.partitions)
    for each in forgotten:
        count += len(each.partitions)
    return count <= FEW_PARTITIONS


def _refused(session: SessionFetch) -> FetchResponse:
    return FetchResponse(error_code=session.error, session_id=NO_SESSION, responses=[])
