"""ListTransactions (66): the transactions that this broker coordinates."""

from __future__ import annotations

from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.context import RequestContext
from barnabas.broker.services import Services
from barnabas.broker.turns import Room, Steps, once_each
from barnabas.coordinator.transactions.describe import ListFilter, unknown_states
from barnabas.coordinator.transactions.patterns import PatternError, compiled
from barnabas.metadata.authorizer import AclOperation, Resource
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

API_KEY = ApiKey.LIST_TRANSACTIONS
#: It asks for room itself.
ANSWER_BYTES_PER_ELEMENT: Final = 0
#: Of memory for one transaction that is listed.
_TRANSACTION_BYTES: Final = 512


def handle(
    services: Services, context: RequestContext, request: ListTransactionsRequest
) -> Steps[ListTransactionsResponse]:
    try:
        matches = compiled(request.transactional_id_pattern) if request.transactional_id_pattern else None
    except PatternError:
        return _failed(ErrorCode.INVALID_REGULAR_EXPRESSION)
    states = yield from once_each(request.state_filters)
    producer_ids = yield from once_each(request.producer_id_filters)
    yield Room(services.transactions.id_count * _TRANSACTION_BYTES)
    response = ListTransactionsResponse(unknown_state_filters=unknown_states(states), transaction_states=[])
    wanted = ListFilter(frozenset(states), frozenset(producer_ids), request.duration_filter, matches)
    for outcome in services.transactions.list_ids(wanted):
        yield None
        if isinstance(outcome, ErrorCode):
            return _failed(outcome)
        if outcome is not None and services.authorizer.is_allowed(
            context, AclOperation.DESCRIBE, Resource.TRANSACTIONAL_ID, outcome.transactional_id
        ):
            response.transaction_states.append(outcome)
    return response


def _failed(error: ErrorCode) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=error, unknown_state_filters=[], transaction_states=[])
