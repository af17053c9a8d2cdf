"""AllocateProducerIds (67): a broker fetches a block of producer ids."""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import field
from barnabas.wire.types import Int16, Int32, Int64


class AllocateProducerIdsRequest(Request, api_key=67, versions="0", flexible="0+", listeners="controller"):
    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)


class AllocateProducerIdsResponse(Response, api_key=67, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    producer_id_start: Int64
    producer_id_len: Int32
