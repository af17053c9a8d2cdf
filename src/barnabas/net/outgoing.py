"""One connection that we opened: requests out, answers in, in the same order. What it serves is a `channel.Channel`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Any, Final, Protocol, cast

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import RemoteProtocolError
from barnabas.net.errors import ChannelError, ConnectError, DisconnectedError, SslAuthenticationError
from barnabas.net.limits import INT_MAX, JOINED_BYTES, SMALL_FRAME_BYTES
from barnabas.net.sockets import tune
from barnabas.net.tls.failures import TlsError, TlsFailure
from barnabas.wire.apis import ApiKey, api
from barnabas.wire.compiler import Buffer
from barnabas.wire.frames import SIZE_BYTES, FrameReceiver
from barnabas.wire.headers import ResponseHeader
from barnabas.wire.message import Request, Response
from barnabas.wire.messages.api_versions import ApiVersionsResponse

#: The size of the frame, the api's key and version, the correlation id.
_HEAD: Final = Struct(">ihhi")
_CORRELATION_ID_BYTES: Final = 4
_UNSUPPORTED_VERSION: Final = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")
#: How much may wait to be taken by the peer before the next request has to wait, too.
_WRITE_BUFFER_BYTES: Final = 4 * 1024 * 1024

#: Why nothing more is sent.
_FULL: Final = 1
SESSION_ENDS: Final = 2

RequestResult = Response | ChannelError | None


class RequestForm:
    """How one kind of request travels on one connection, worked out once."""

    __slots__ = ("has_tagged_answer", "name", "response", "tail", "version")

    def __init__(self, request: type[Request], version: int, client_id: str) -> None:
        known = api(request.API_KEY)
        header_version = known.request_header_version(version)
        name = client_id.encode()
        # The client id keeps its old form also in the header with tags; the oldest header of all has none.
        self.tail = len(name).to_bytes(2, "big") + name if header_version else b""
        if header_version > 1:
            self.tail += b"\0"
        self.version = version
        self.name = ApiKey(request.API_KEY).camel_name
        self.response: type[Response] = known.response
        self.has_tagged_answer = known.response_header_version(version) > 0


class ClientRequest:
    """A request that waits for its turn, and then for its answer.

    Exactly one of `future` and `callback` is told. With a future that nobody waits for any more it is not sent.
    """

    __slots__ = (
        "callback",
        "correlation_id",
        "deadline_s",
        "expects_answer",
        "form",
        "future",
        "message",
        "sent_at_s",
        "timeout_ms",
        "version",
    )

    def __init__(
        self,
        message: Request,
        version: int | None,
        timeout_ms: float,
        *,
        future: asyncio.Future[Any] | None = None,
        callback: Callable[[Any], None] | None = None,
        expects_answer: bool = True,
    ) -> None:
        self.message = message
        self.version = version
        self.timeout_ms = timeout_ms
        self.future = future
        self.callback = callback
        self.expects_answer = expects_answer
        self.form: RequestForm | None = None
        self.correlation_id = 0
        self.deadline_s = 0.0
        self.sent_at_s = 0.0

    @property
    def name(self) -> str:
        return ApiKey(self.message.API_KEY).camel_name

    @property
    def is_given_up(self) -> bool:
        return self.future is not None and self.future.done()

    def settle(self, outcome: RequestResult) -> None:
        """Tell the outcome. Each who waits gets an exception of its own: a traceback belongs to one place."""
        if isinstance(outcome, ChannelError):
            outcome = type(outcome)(outcome.address, outcome.reason)
        future = self.future
        if future is None:
            if self.callback is not None:
                self.callback(outcome)
        elif future.done():
            return
        elif isinstance(outcome, ChannelError):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)


class ChannelEvents(Protocol):
    """Told what happens on a channel, by the number that its owner gave it; for metrics."""

    def connected(self, node_id: int) -> None: ...

    def disconnected(self, node_id: int) -> None: ...

    def sent(self, node_id: int, size_bytes: int) -> None: ...

    def received(self, node_id: int, size_bytes: int, latency_ms: float) -> None: ...


class Owner(Protocol):
    """Who is told what happens on a connection."""

    def answered(self, asked: ClientRequest, response: Response, size_bytes: int) -> None: ...

    def lost(self, connection: OutgoingConnection, unanswered: deque[ClientRequest]) -> None: ...

    def writable(self) -> None: ...


class OutgoingConnection(asyncio.BufferedProtocol):
    """See the module. It has no timers: its owner watches the time."""

    __slots__ = (
        "_address",
        "_next_id",
        "_owner",
        "_receiver",
        "_transport",
        "closed",
        "failure",
        "handshake",
        "in_flight",
        "is_paused",
        "was_closed_by_us",
    )

    def __init__(self, owner: Owner, address: str, max_response_bytes: int, trusted_response_bytes: int) -> None:
        self._owner = owner
        self._address = address
        scratch = bytearray(SMALL_FRAME_BYTES)
        self._receiver = FrameReceiver(scratch, max_response_bytes, trusted_frame_bytes=trusted_response_bytes)
        self._transport: asyncio.Transport | None = None
        self._next_id = 0
        #: Sent and not answered, in the order of sending.
        self.in_flight: deque[ClientRequest] = deque()
        #: Why the connection is of no use any more.
        self.failure: ChannelError | None = None
        self.was_closed_by_us = False
        #: Why nothing more is sent for now, if anything: the peer takes too little, or must be shown who we are.
        self.is_paused = 0
        #: Done when the transport has let go of the socket.
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        #: Done when TLS is set up, or failed to be; None without TLS.
        self.handshake: asyncio.Future[None] | None = None

    def send(self, asked: ClientRequest, form: RequestForm, now_s: float) -> int:
        """Write one request; its size. Raises `LocalProtocolError` if the message does not go into that version, and
        why the connection has ended if it has: nobody would tell the outcome."""
        if self.failure is not None:
            raise type(self.failure)(self._address, self.failure.reason)
        message, version = asked.message, form.version
        parts = message.encode_parts(version)
        tail = form.tail
        size = _HEAD.size - SIZE_BYTES + len(tail) + sum(map(len, parts))
        self._next_id = next_id = (self._next_id + 1) & INT_MAX
        head = _HEAD.pack(size, message.API_KEY, version, next_id) + tail
        transport = cast(asyncio.Transport, self._transport)
        # Small parts cost more than their copy does.
        if size <= JOINED_BYTES:
            transport.write(b"".join((head, *parts)))
        else:
            written: list[Buffer] = [head, *parts]
            transport.writelines(written)
        asked.form = form
        asked.correlation_id = next_id
        asked.sent_at_s = now_s
        asked.deadline_s = now_s + asked.timeout_ms / 1000
        if asked.expects_answer:
            self.in_flight.append(asked)
        return size + SIZE_BYTES

    def close(self, failure: ChannelError, *, by_us: bool = False, flushes: bool = False) -> None:
        """End it, and tell the owner what stays unanswered. The first reason stays. What was written and not taken yet
        still goes out if it `flushes`."""
        if self.failure is not None:
            return
        self.failure = failure
        self.was_closed_by_us = by_us
        unanswered, self.in_flight = self.in_flight, deque()
        transport = self._transport
        if transport is None:
            if not self.closed.done():
                self.closed.set_result(None)
        elif flushes and transport.get_write_buffer_size():
            transport.close()
        else:
            transport.abort()
        self._owner.lost(self, unanswered)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # What the transport tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(_WRITE_BUFFER_BYTES)
        tune(transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receiver.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        for frame in self._receiver.received(nbytes):
            if self.failure is not None:
                return  # An answer before made its receiver close the connection.
            try:
                asked, response = self._read(frame)
            except RemoteProtocolError as error:
                self.close(DisconnectedError(self._address, f"its answer cannot be read: {error}"))
                return
            self._owner.answered(asked, response, len(frame) + SIZE_BYTES)
        if self._receiver.broken is not None:
            self.close(DisconnectedError(self._address, f"it sent what is no answer: {self._receiver.broken}"))

    def eof_received(self) -> None:
        self.close(DisconnectedError(self._address, "it closed the connection"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.close(DisconnectedError(self._address, f"the connection broke: {exc}" if exc else "the connection ended"))
        if not self.closed.done():
            self.closed.set_result(None)

    def pause_writing(self) -> None:
        self.is_paused |= _FULL

    def resume_writing(self) -> None:
        self.is_paused &= ~_FULL
        if self.failure is None and not self.is_paused:
            self._owner.writable()

    # What the TLS layer tells

    def secured(self, _: bytes | None) -> None:
        if self.handshake is not None and not self.handshake.done():
            self.handshake.set_result(None)

    def not_secured(self, failure: TlsError) -> None:
        """The handshake failed, or the peer says so afterwards: in TLS 1.3 it looks at our certificate last."""
        told = tls_failure(self._address, failure)
        if self.handshake is not None and not self.handshake.done():
            self.handshake.set_exception(told)
            self.handshake.exception()  # whoever dials may have given up
        self.close(told)

    def _read(self, frame: bytearray) -> tuple[ClientRequest, Response]:
        if not self.in_flight:
            raise RemoteProtocolError("nothing was asked")
        if len(frame) < _CORRELATION_ID_BYTES:
            raise RemoteProtocolError(f"{len(frame)} bytes are no answer")
        correlation_id = int.from_bytes(frame[:_CORRELATION_ID_BYTES], "big", signed=True)
        asked = self.in_flight[0]
        if correlation_id != asked.correlation_id:
            raise RemoteProtocolError(f"it answers {correlation_id} when {asked.correlation_id} is due")
        response = _decode(cast(RequestForm, asked.form), frame)
        self.in_flight.popleft()
        return asked, response


def tls_failure(address: str, failure: TlsError) -> ChannelError:
    """A refusal stays one until somebody changes a certificate or a setting; an end without a word may pass."""
    hint = "; is the listener there one with SSL?" if failure.kind in (TlsFailure.NO_TLS, TlsFailure.ENDED) else ""
    text = f"SSL handshake failed: {failure.text}{hint}"
    if failure.kind in (TlsFailure.ENDED, TlsFailure.LATE):
        return ConnectError(address, text)
    return SslAuthenticationError(address, text)


def _decode(form: RequestForm, frame: bytearray) -> Response:
    """The response of a frame; its records are views into it. Bytes behind the last field are passed over, as Kafka's
    clients do: the mock cluster of librdkafka sends some."""
    kind = form.response
    body_start = _CORRELATION_ID_BYTES
    if kind is ApiVersionsResponse and frame[body_start : body_start + 2] == _UNSUPPORTED_VERSION:
        # Who does not know the version of the question answers in the oldest one. Some (the mock of librdkafka) do that
        # in a form of their own; that it is a refusal is all that is needed.
        try:
            return kind.decode(memoryview(frame)[body_start:], 0)
        except RemoteProtocolError:
            return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[])
    if form.has_tagged_answer:
        if frame[body_start : body_start + 1] == b"\0":
            body_start += 1
        else:
            _, body_start = ResponseHeader.decode_prefix(frame, 1)
    response, _ = kind.decode_prefix(memoryview(frame)[body_start:], form.version)
    return response
