"""ListTransactions (66): transactions that a broker coordinates.

v1 filters by age, v2 by a pattern of ids.
"""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int16, Int32, Int64


class ListTransactionsRequest(Request, api_key=66, versions="0-2", flexible="0+"):
    state_filters: list[str]
    producer_id_filters: list[Int64]
    duration_filter: Int64 = field("1+", default=-1)
    transactional_id_pattern: str | None = field("2+", default=None)


class TransactionState(Struct):
    transactional_id: str
    producer_id: Int64
    transaction_state: str


class ListTransactionsResponse(Response, api_key=66, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    unknown_state_filters: list[str]
    transaction_states: list[TransactionState]
