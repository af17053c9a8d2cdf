"""DescribeTransactions (65): the state of transactions that this broker coordinates."""

from __future__ import annotations

from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.context import RequestContext
from barnabas.broker.services import Services
from barnabas.broker.turns import Room, Steps, each_of
from barnabas.coordinator.transactions.describe import describe_failed
from barnabas.metadata.authorizer import AclOperation, Resource
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)

API_KEY = ApiKey.DESCRIBE_TRANSACTIONS
#: It asks for room itself.
ANSWER_BYTES_PER_ELEMENT: Final = 0


def handle(
    services: Services, context: RequestContext, request: DescribeTransactionsRequest
) -> Steps[DescribeTransactionsResponse]:
    yield Room(sum((yield from each_of(request.transactional_ids, services.transactions.described_bytes))))
    states = []
    for transactional_id in request.transactional_ids:
        yield None
        if services.authorizer.is_allowed(context, AclOperation.DESCRIBE, Resource.TRANSACTIONAL_ID, transactional_id):
            state = yield from services.transactions.describe(transactional_id)
            yield from _hide(services, context, state)
        else:
            state = describe_failed(transactional_id, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        states.append(DescribeTransactionsResponse.piece(state, context.version))
    return DescribeTransactionsResponse(transaction_states=states)


def _hide(services: Services, context: RequestContext, state: TransactionState) -> Steps[None]:
    """Leave out topics that whoever asks may not see."""
    seen = []
    for topic in state.topics:
        if services.authorizer.is_allowed(context, AclOperation.DESCRIBE, Resource.TOPIC, topic.topic):
            seen.append(topic)
        yield None
    state.topics = seen
