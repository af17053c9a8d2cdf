"""AddOffsetsToTxn (25): makes a group's offsets part of a transaction."""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import field
from barnabas.wire.types import Int16, Int32, Int64


class AddOffsetsToTxnRequest(Request, api_key=25, versions="0-4", flexible="3+"):
    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    group_id: str


class AddOffsetsToTxnResponse(Response, api_key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
