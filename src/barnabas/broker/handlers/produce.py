"""Produce (0): appends one batch to each of the partitions that are named.

v0-2 are refused before they come here. v7 is the first that may use zstd; v8 tells which records are wrong and why;
v10 hints at the leader after a miss; v11 understands TRANSACTION_ABORTABLE; from v12 on partitions are added to their
transaction by their first batch; v13 names topics by id. With acks=0 there is no answer, so a failure closes the
connection.

Most requests hold nothing but ordinary batches, and are answered without being decoded (`handle_frame`). With one
replica everything is known at once. Otherwise acks=-1 waits until the records are committed.
"""

from __future__ import annotations

from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.context import RequestContext
from barnabas.broker.data.ordinary_produce import answer_ordinary
from barnabas.broker.data.producing import Produce, ProduceAnswer
from barnabas.broker.data.transactional_produce import run_in_transaction
from barnabas.broker.services import Services
from barnabas.broker.turns import Steps
from barnabas.net import Connection
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.produce import ProduceRequest

API_KEY = ApiKey.PRODUCE

#: What the router asks before it decodes a request.
handle_frame = answer_ordinary

_ACKS: Final = (-1, 1, 0)


def handle(
    services: Services, context: RequestContext, request: ProduceRequest, connection: Connection
) -> ProduceAnswer | Steps[ProduceAnswer]:
    produce = Produce(services, context, request, connection)
    if request.acks not in _ACKS:
        return produce.refuse_all(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks}: it must be -1, 0 or 1")
    if request.transactional_id is not None:
        return run_in_transaction(produce, request.transactional_id)
    return produce.run()
