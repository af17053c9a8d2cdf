"""Fetch (1), as controllers answer it: another replica of the metadata log asks for what follows. Raft answers."""

from __future__ import annotations

import asyncio
from typing import Final

from barnabas.broker.authorization import check_cluster_action
from barnabas.broker.context import RequestContext
from barnabas.broker.services import ControllerServices
from barnabas.wire.apis import ApiKey
from barnabas.wire.message import Response
from barnabas.wire.messages.fetch import FetchRequest

API_KEY = ApiKey.FETCH
#: There is one partition to speak of.
MAX_ELEMENTS: Final = 1000
#: What a replica may ask for at once is bounded by what it asks with.
ANSWER_BYTES_PER_ELEMENT: Final = 0


def handle(services: ControllerServices, context: RequestContext, request: FetchRequest) -> asyncio.Future[Response]:
    check_cluster_action(services, context)
    return services.transport.receive(request, context.version, context.listener)
