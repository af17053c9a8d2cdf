"""InitProducerId (22): gives a producer its id and epoch.

v3 lets a producer that lost its place go on with a newer epoch; v6, two-phase commit, is not stable yet and not
served.
"""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import field
from barnabas.wire.types import Int16, Int32, Int64


class InitProducerIdRequest(Request, api_key=22, versions="0-6", flexible="2+", served="0-5"):
    transactional_id: str | None
    transaction_timeout_ms: Int32
    producer_id: Int64 = field("3+", default=-1)
    producer_epoch: Int16 = field("3+", default=-1)
    enable2_pc: bool = field("6+", default=False)
    keep_prepared_txn: bool = field("6+", default=False)


class InitProducerIdResponse(Response, api_key=22, versions="0-6", flexible="2+"):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    producer_id: Int64 = field(default=-1)
    producer_epoch: Int16
    ongoing_txn_producer_id: Int64 = field("6+", default=-1)
    ongoing_txn_producer_epoch: Int16 = field("6+", default=-1)
