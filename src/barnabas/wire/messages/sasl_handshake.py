"""SaslHandshake (17): chooses a SASL mechanism.

After v0 the tokens travel as bare frames without any header, after v1 in SaslAuthenticate. Never flexible.
"""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import field
from barnabas.wire.types import Int16


class SaslHandshakeRequest(Request, api_key=17, versions="0-1", listeners="broker controller"):
    mechanism: str


class SaslHandshakeResponse(Response, api_key=17, versions="0-1"):
    error_code: Int16 = field(default=0)
    mechanisms: list[str]
