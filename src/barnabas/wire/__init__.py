"""Kafka's wire protocol: messages declared once for all their versions, codecs compiled from the declarations.

>>> from barnabas.wire import ApiKey, api
>>> from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
>>> FindCoordinatorRequest(key="my-group").encode(version=0)
b'\\x00\\x08my-group'
>>> FindCoordinatorRequest.decode(b"\\x00\\x08my-group", version=0).key
'my-group'
>>> str(api(ApiKey.FETCH).served), api(ApiKey.FETCH).request_header_version(12)
('4-18', 2)

Where to look: `schema` says how a message is declared, `messages/` holds one file per API, `stored/` what lies in files
and internal topics, `embedded/` what travels inside other messages. `compiler` turns declarations into codecs.
"""

from barnabas.wire.apis import ZOOKEEPER_ERA, Api, ApiKey, all_apis, api
from barnabas.wire.frames import FrameReceiver, FrameSplitter, frame_parts
from barnabas.wire.headers import (
    RequestHeader,
    ResponseHeader,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from barnabas.wire.message import Listeners, Message, Request, Response
from barnabas.wire.schema import Struct, Versions

__all__ = [
    "ZOOKEEPER_ERA",
    "Api",
    "ApiKey",
    "FrameReceiver",
    "FrameSplitter",
    "Listeners",
    "Message",
    "Request",
    "RequestHeader",
    "Response",
    "ResponseHeader",
    "Struct",
    "Versions",
    "all_apis",
    "api",
    "decode_request_header",
    "decode_response",
    "encode_request",
    "encode_response",
    "frame_parts",
]
