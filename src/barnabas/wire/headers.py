"""What stands before the body of every request and response, and putting the two together.

The client id keeps its old form, a length of two bytes, also in the header with tags: a node must be able to read it
before it knows whether it understands the version.
"""

from typing import TypeVar

from barnabas.base.errors import RemoteProtocolError
from barnabas.wire.apis import api
from barnabas.wire.compiler import Buffer
from barnabas.wire.message import Message, Request, Response
from barnabas.wire.schema import field
from barnabas.wire.types import Int16, Int32

R = TypeVar("R", bound=Response)


class RequestHeader(Message, versions="0-2", flexible="2+"):
    request_api_key: Int16
    request_api_version: Int16
    correlation_id: Int32
    client_id: str | None = field("1+", default="", ignorable=True, compact=False)


class ResponseHeader(Message, versions="0-1", flexible="1+"):
    correlation_id: Int32


def encode_request(request: Request, version: int, correlation_id: int, client_id: str | None = "") -> list[Buffer]:
    """Header and body of a request, as parts of a frame."""
    header = RequestHeader(
        request_api_key=request.API_KEY,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    header_version = api(request.API_KEY).request_header_version(version)
    return [header.encode(header_version), *request.encode_parts(version)]


def decode_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """The header of a request, and where its body begins.

    The version need not be one that is declared: only the header is read, and its form is known for all of them.
    """
    key = int.from_bytes(frame[:2], "big", signed=True)
    version = int.from_bytes(frame[2:4], "big", signed=True)
    try:
        header_version = api(key).request_header_version(version)
    except ValueError:
        raise RemoteProtocolError(f"a request has the unknown api key {key}") from None
    return RequestHeader.decode_prefix(frame, header_version)


def encode_response(response: Response, version: int, correlation_id: int) -> list[Buffer]:
    """Header and body of a response, as parts of a frame."""
    header_version = api(response.API_KEY).response_header_version(version)
    return [ResponseHeader(correlation_id=correlation_id).encode(header_version), *response.encode_parts(version)]


def decode_response(cls: type[R], version: int, frame: Buffer) -> tuple[int, R]:
    """The correlation id and the response of a frame."""
    header, body_start = ResponseHeader.decode_prefix(frame, api(cls.API_KEY).response_header_version(version))
    # A view, so that records stay uncopied; offsets in error messages count from the body's beginning.
    body = frame[body_start:] if isinstance(frame, memoryview) else memoryview(frame)[body_start:]
    return header.correlation_id, cls.decode(body, version)
