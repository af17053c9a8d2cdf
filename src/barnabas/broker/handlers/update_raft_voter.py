"""UpdateRaftVoter (82): a voter of the metadata quorum tells its addresses and versions. Raft answers."""

from __future__ import annotations

import asyncio
from typing import Final

from barnabas.broker.authorization import check_cluster_action
from barnabas.broker.context import RequestContext
from barnabas.broker.services import ControllerServices
from barnabas.wire.apis import ApiKey
from barnabas.wire.message import Response
from barnabas.wire.messages.update_raft_voter import UpdateRaftVoterRequest

API_KEY = ApiKey.UPDATE_RAFT_VOTER
#: A voter has a few addresses.
MAX_ELEMENTS: Final = 1000


def handle(
    services: ControllerServices, context: RequestContext, request: UpdateRaftVoterRequest
) -> asyncio.Future[Response]:
    check_cluster_action(services, context)
    return services.transport.receive(request, context.version, context.listener)
