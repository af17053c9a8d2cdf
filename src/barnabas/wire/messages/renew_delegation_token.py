"""RenewDelegationToken (39): prolongs a token."""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import field
from barnabas.wire.types import Int16, Int32, Int64


class RenewDelegationTokenRequest(
    Request, api_key=39, versions="0-2", flexible="2+", served="1-2", listeners="broker controller"
):
    hmac: bytes
    renew_period_ms: Int64


class RenewDelegationTokenResponse(Response, api_key=39, versions="0-2", flexible="2+"):
    error_code: Int16 = field(default=0)
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32 = field(default=0)
