"""Envelope (58): a broker forwards a client's request to the controller with the client's principal."""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import field
from barnabas.wire.types import Int16


class EnvelopeRequest(Request, api_key=58, versions="0", flexible="0+", listeners="controller"):
    request_data: bytes
    request_principal: bytes | None
    client_host_address: bytes


class EnvelopeResponse(Response, api_key=58, versions="0", flexible="0+"):
    response_data: bytes | None = field(default=None)
    error_code: Int16 = field(default=0)
