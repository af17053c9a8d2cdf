"""DescribeTransactions (65): state of transactions."""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int16, Int32, Int64


class DescribeTransactionsRequest(Request, api_key=65, versions="0", flexible="0+"):
    transactional_ids: list[str]


class TopicData(Struct):
    topic: str
    partitions: list[Int32]


class TransactionState(Struct):
    error_code: Int16 = field(default=0)
    transactional_id: str
    transaction_state: str
    transaction_timeout_ms: Int32
    transaction_start_time_ms: Int64
    producer_id: Int64
    producer_epoch: Int16
    topics: list[TopicData]


class DescribeTransactionsResponse(Response, api_key=65, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field(default=0)
    transaction_states: list[TransactionState]
