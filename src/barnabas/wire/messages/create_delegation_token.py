"""CreateDelegationToken (38): issues a token that logs in for somebody.

v3 lets one principal ask for another's.
"""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int16, Int32, Int64


class CreatableRenewers(Struct):
    principal_type: str
    principal_name: str


class CreateDelegationTokenRequest(
    Request, api_key=38, versions="0-3", flexible="2+", served="1-3", listeners="broker controller"
):
    owner_principal_type: str | None = field("3+", default="")
    owner_principal_name: str | None = field("3+", default="")
    renewers: list[CreatableRenewers]
    max_lifetime_ms: Int64


class CreateDelegationTokenResponse(Response, api_key=38, versions="0-3", flexible="2+"):
    error_code: Int16 = field(default=0)
    principal_type: str
    principal_name: str
    token_requester_principal_type: str = field("3+", default="")
    token_requester_principal_name: str = field("3+", default="")
    issue_timestamp_ms: Int64
    expiry_timestamp_ms: Int64
    max_timestamp_ms: Int64
    token_id: str
    hmac: bytes
    throttle_time_ms: Int32 = field(default=0)
