"""FetchSnapshot (59): a replica loads a snapshot of the metadata, piece by piece. Raft answers."""

from __future__ import annotations

import asyncio
from typing import Final

from barnabas.broker.authorization import check_cluster_action
from barnabas.broker.context import RequestContext
from barnabas.broker.services import ControllerServices
from barnabas.wire.apis import ApiKey
from barnabas.wire.message import Response
from barnabas.wire.messages.fetch_snapshot import FetchSnapshotRequest

API_KEY = ApiKey.FETCH_SNAPSHOT
#: There is one partition to speak of.
MAX_ELEMENTS: Final = 1000


def handle(
    services: ControllerServices, context: RequestContext, request: FetchSnapshotRequest
) -> asyncio.Future[Response]:
    check_cluster_action(services, context)
    return services.transport.receive(request, context.version, context.listener)
