"""The accepting end of `SocketTransport`: requests in, answers out, in the order of the requests."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from functools import cache, partial
from struct import Struct
from typing import Final, NamedTuple, cast

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import LocalProtocolError, RemoteProtocolError, check
from barnabas.base.log_context import logger
from barnabas.raft.ports import RequestReceiver
from barnabas.raft.replica_fetch import ReplicaFetch
from barnabas.raft.socket_parts import RAFT_APIS, FrameWriter, SocketSurroundings
from barnabas.wire.apis import ApiKey, api
from barnabas.wire.compiler import Buffer
from barnabas.wire.frames import SIZE_BYTES, FrameSplitter
from barnabas.wire.headers import RequestHeader
from barnabas.wire.message import Request, Response
from barnabas.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from barnabas.wire.messages.fetch import FetchRequest

_log = logger("barnabas.raft")

#: The api's key and version, the correlation id, the length of the client id.
_REQUEST_HEAD: Final = Struct(">hhih")
#: The size of the frame, the correlation id.
_RESPONSE_HEAD: Final = Struct(">ii")
_NO_TAGS: Final = b"\0"

KRAFT_VERSION: Final = SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
#: Clients before v4 cannot read features whose levels begin at 0, and are not told of them.
_FEATURES_FROM_ZERO: Final = 4
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class _Route(NamedTuple):
    """How one version of a request is read and answered."""

    request: type[Request]
    version: int
    has_tagged_header: bool
    has_tagged_answer: bool


@cache
def routes() -> dict[tuple[int, int], _Route]:
    """What is understood, by key and version."""
    found: dict[tuple[int, int], _Route] = {}
    for key in (*RAFT_APIS, ApiKey.API_VERSIONS):
        known = api(key)
        for version in known.served:
            has_tags = known.request_header_version(version) > 1
            has_tagged_answer = known.response_header_version(version) > 0
            request = ReplicaFetch if known.request is FetchRequest else known.request
            found[key, version] = _Route(request, version, has_tags, has_tagged_answer)
    return found


def advertised() -> list[ApiVersion]:
    served = {key: api(key).served for key in sorted((*RAFT_APIS, ApiKey.API_VERSIONS))}
    return [ApiVersion(api_key=key, min_version=each.low, max_version=each.high) for key, each in served.items()]


def tell_versions(request: ApiVersionsRequest, version: int) -> ApiVersionsResponse:
    """The answer to ApiVersions in a version that is known."""
    software = (request.client_software_name, request.client_software_version)
    if version >= 3 and not all(map(_SOFTWARE.fullmatch, software)):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    features = [KRAFT_VERSION] if version >= _FEATURES_FROM_ZERO else []
    return ApiVersionsResponse(api_keys=advertised(), supported_features=features)


def refuse_versions() -> ApiVersionsResponse:
    """The answer to ApiVersions in a version that is not known. It goes in version 0, which everybody can read."""
    own = [each for each in advertised() if each.api_key == ApiKey.API_VERSIONS]
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=own)


class _Unanswered:
    """A request that was handed over, and its answer while that waits for those before it."""

    __slots__ = ("correlation_id", "parts", "route", "size_bytes")

    def __init__(self, correlation_id: int, route: _Route) -> None:
        self.correlation_id = correlation_id
        self.route = route
        self.parts: list[Buffer] | None = None
        self.size_bytes = 0


class AcceptedConnection(asyncio.Protocol):
    """A peer's connection to us.

    Guarantees: requests are handed over as they come; answers leave in the order of the requests, as Kafka's do; a
    peer that does not read its answers, or has too many requests open, is not read from.
    """

    __slots__ = (
        "_around",
        "_is_closed",
        "_is_paused",
        "_is_writing_paused",
        "_receive",
        "_routes",
        "_splitter",
        "_transport",
        "_unanswered",
        "_writer",
        "active_at_s",
    )

    def __init__(self, around: SocketSurroundings, receive: RequestReceiver) -> None:
        self._around = around
        self._receive = receive
        self._splitter = FrameSplitter(around.options.max_request_bytes)
        self._routes = routes()
        self._transport = cast(asyncio.Transport, None)
        self._writer = cast(FrameWriter, None)
        self._unanswered: deque[_Unanswered] = deque()
        self._is_closed = False
        self._is_paused = False
        self._is_writing_paused = False
        self.active_at_s = around.loop.time()

    def close(self) -> None:
        self._is_closed = True
        self._unanswered.clear()
        self._writer.flush()
        self._transport.close()

    def abort(self) -> None:
        self._is_closed = True
        self._transport.abort()

    # What the loop tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # uvloop sends what goes above this limit at once, and all else at the end of its turn: the peer need not wait.
        self._transport.set_write_buffer_limits(high=0)
        self._writer = FrameWriter(self._transport)
        self._around.connections[self] = None
        if self._around.is_stopped:
            self.abort()

    def data_received(self, data: bytes) -> None:
        self.active_at_s = self._around.loop.time()
        self._writer.hold()
        try:
            whole = self._splitter.whole_frame(data)
            for frame in self._splitter.feed(data) if whole is None else (whole,):
                if self._is_closed:
                    return
                self._take(frame)
        except RemoteProtocolError as error:
            self._refuse(str(error))
        finally:
            self._writer.flush()
        self._read_if_allowed()

    def pause_writing(self) -> None:
        self._is_writing_paused = True
        self._read_if_allowed()

    def resume_writing(self) -> None:
        self._is_writing_paused = False
        self._read_if_allowed()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closed = True
        self._unanswered.clear()
        self._around.gone(self)

    # Requests

    def _take(self, frame: bytes | bytearray) -> None:
        if len(frame) < _REQUEST_HEAD.size:
            raise RemoteProtocolError(f"a frame of {len(frame)} bytes is no request")
        key, version, correlation_id, client_id_bytes = _REQUEST_HEAD.unpack_from(frame)
        route = self._routes.get((key, version))
        if route is None:
            if key != ApiKey.API_VERSIONS:
                raise RemoteProtocolError(f"a request has the api key {key} and version {version}, which is not served")
            # What follows the correlation id is of an unknown form.
            self._answer(self._add(correlation_id, self._routes[key, 0]), refuse_versions())
            return
        start = _REQUEST_HEAD.size + max(client_id_bytes, 0)
        if route.has_tagged_header:
            # Nobody has put a tag there yet, so that what is slow stays rare.
            is_plain = frame[start : start + 1] == _NO_TAGS
            start = start + 1 if is_plain else RequestHeader.decode_prefix(frame, 2)[1]
        if client_id_bytes < -1 or start > len(frame):
            raise RemoteProtocolError(f"a client id cannot have {client_id_bytes} bytes here")
        request, end = route.request.decode_prefix(frame, version, start)
        if end != len(frame):
            name = route.request.__name__
            raise RemoteProtocolError(f"{name} v{version}: {len(frame) - end} bytes are left over after the last field")
        asked = self._add(correlation_id, route)
        if isinstance(request, ApiVersionsRequest):
            self._answer(asked, tell_versions(request, version))
        else:
            self._receive(request, version, partial(self._answer, asked))

    def _add(self, correlation_id: int, route: _Route) -> _Unanswered:
        asked = _Unanswered(correlation_id, route)
        self._unanswered.append(asked)
        return asked

    def _refuse(self, reason: str) -> None:
        host, port = (self._transport.get_extra_info("peername") or ("?", 0))[:2]
        self._around.complaints.say(f"{host}:{port}", reason)
        self.close()

    # Answers

    def _answer(self, asked: _Unanswered, response: Response) -> None:
        if self._is_closed:
            return
        check(asked.parts is None, "a request is answered once")
        route = asked.route
        try:
            parts = response.encode_parts(route.version)
        except LocalProtocolError as error:
            # The peer chose the version, so this must not end more than its connection.
            _log.error("%s v%d cannot be answered: %s", route.request.__name__, route.version, error)
            self.close()
            return
        tags = _NO_TAGS if route.has_tagged_answer else b""
        asked.size_bytes = _RESPONSE_HEAD.size + len(tags) + sum(map(len, parts))
        asked.parts = [_RESPONSE_HEAD.pack(asked.size_bytes - SIZE_BYTES, asked.correlation_id), tags, *parts]
        unanswered = self._unanswered
        while unanswered and (first := unanswered[0]).parts is not None:
            unanswered.popleft()
            self._writer.put(first.parts, first.size_bytes)
        if self._is_paused:
            self._read_if_allowed()

    def _read_if_allowed(self) -> None:
        limit = self._around.options.max_unanswered_requests
        is_paused = self._is_writing_paused or len(self._unanswered) >= limit
        if is_paused == self._is_paused or self._is_closed:
            return
        self._is_paused = is_paused
        if is_paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
