"""ExpireDelegationToken (40): ends a token."""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import field
from barnabas.wire.types import Int16, Int32, Int64


class ExpireDelegationTokenRequest(
    Request, api_key=40, versions="0-2", flexible="2+", served="1-2", listeners="broker controller"
):
    hmac: bytes
    expiry_time_period_ms: Int64


class ExpireDelegationTokenResponse(Response, api_key=40, versions="0-2", flexible="2+"):
    error_code: Int16 = field(default=0)
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32 = field(default=0)
