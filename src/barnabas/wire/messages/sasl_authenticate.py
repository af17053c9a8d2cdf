"""SaslAuthenticate (36): carries SASL tokens.

v1 says how long the session lives before it must authenticate again.
"""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import field
from barnabas.wire.types import Int16, Int64


class SaslAuthenticateRequest(Request, api_key=36, versions="0-2", flexible="2+", listeners="broker controller"):
    auth_bytes: bytes


class SaslAuthenticateResponse(Response, api_key=36, versions="0-2", flexible="2+"):
    error_code: Int16 = field(default=0)
    error_message: str | None = field(default="")
    auth_bytes: bytes
    session_lifetime_ms: Int64 = field("1+", default=0, ignorable=True)
