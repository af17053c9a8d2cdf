"""UnregisterBroker (64): forgets a broker that will not come back."""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import field
from barnabas.wire.types import Int16, Int32


class UnregisterBrokerRequest(Request, api_key=64, versions="0", flexible="0+", listeners="broker controller"):
    broker_id: Int32


class UnregisterBrokerResponse(Response, api_key=64, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: str | None = field(default="")
