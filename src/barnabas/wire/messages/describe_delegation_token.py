"""DescribeDelegationToken (41): lists tokens."""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int16, Int32, Int64


class DescribeDelegationTokenOwner(Struct):
    principal_type: str
    principal_name: str


class DescribeDelegationTokenRequest(
    Request, api_key=41, versions="0-3", flexible="2+", served="1-3", listeners="broker controller"
):
    owners: list[DescribeDelegationTokenOwner] | None


class DescribedDelegationTokenRenewer(Struct):
    principal_type: str
    principal_name: str


class DescribedDelegationToken(Struct):
    principal_type: str
    principal_name: str
    token_requester_principal_type: str = field("3+", default="")
    token_requester_principal_name: str = field("3+", default="")
    issue_timestamp: Int64
    expiry_timestamp: Int64
    max_timestamp: Int64
    token_id: str
    hmac: bytes
    renewers: list[DescribedDelegationTokenRenewer]


class DescribeDelegationTokenResponse(Response, api_key=41, versions="0-3", flexible="2+"):
    error_code: Int16 = field(default=0)
    tokens: list[DescribedDelegationToken]
    throttle_time_ms: Int32 = field(default=0)
