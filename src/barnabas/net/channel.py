"""A connection that we open: what is asked of another node goes through here.

A channel connects when it is first needed and again when it was lost, after a wait that grows with each failure. It
asks the peer for its versions before anything else, and sends each request in the highest version that both know.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final, cast

from barnabas._version import package_version
from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import RemoteProtocolError
from barnabas.net.backoff import Backoff, grown
from barnabas.net.errors import (
    ChannelError,
    ConnectError,
    DisconnectedError,
    RequestTimeoutError,
    UnsupportedRequestError,
    address_text,
)
from barnabas.net.limits import INT_MAX, SMALL_FRAME_BYTES
from barnabas.net.sockets import tune
from barnabas.wire.apis import ApiKey, api
from barnabas.wire.frames import MAX_FRAME_BYTES, FrameReceiver, frame_parts
from barnabas.wire.headers import decode_response, encode_request
from barnabas.wire.message import Request, Response
from barnabas.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

_SOFTWARE: Final = "barnabas"
_CORRELATION_ID_BYTES: Final = 4
_UNSUPPORTED_VERSION: Final = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelLimits:
    """Under Kafka's names, with the defaults of its clients."""

    request_timeout_ms: int = 30_000
    max_in_flight_requests: int = 5
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1000
    socket_connection_setup_timeout_ms: int = 10_000
    socket_connection_setup_timeout_max_ms: int = 30_000
    max_response_bytes: int = MAX_FRAME_BYTES


class _Asked:
    """A request that waits for its answer."""

    __slots__ = ("answer", "correlation_id", "response", "timer", "version")

    def __init__(
        self, correlation_id: int, response: type[Response], version: int, answer: asyncio.Future[Response]
    ) -> None:
        self.correlation_id = correlation_id
        self.response = response
        self.version = version
        self.answer = answer
        self.timer: asyncio.TimerHandle | None = None


def _decode(asked: _Asked, frame: bytearray) -> tuple[int, Response]:
    refused = frame[_CORRELATION_ID_BYTES : _CORRELATION_ID_BYTES + 2] == _UNSUPPORTED_VERSION
    if asked.response is ApiVersionsResponse and refused:
        # Who does not know the version of the question answers in the oldest one. Some (the mock of librdkafka) do that
        # in a form of their own; that it is a refusal is all that is needed.
        try:
            return decode_response(asked.response, 0, frame)
        except RemoteProtocolError:
            correlation_id = int.from_bytes(frame[:_CORRELATION_ID_BYTES], "big", signed=True)
            return correlation_id, ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[])
    return decode_response(asked.response, asked.version, frame)


class _Wire(asyncio.BufferedProtocol):
    """One connection of a channel: requests out, answers in, in the same order."""

    __slots__ = ("_address", "_asked", "_next_id", "_receiver", "_transport", "failure")

    def __init__(self, address: str, max_response_bytes: int) -> None:
        self._address = address
        self._receiver = FrameReceiver(bytearray(SMALL_FRAME_BYTES), max_response_bytes)
        self._transport: asyncio.Transport | None = None
        self._asked: deque[_Asked] = deque()
        self._next_id = 0
        #: Why the connection is of no use any more.
        self.failure: ChannelError | None = None

    def send(self, request: Request, version: int, client_id: str) -> int:
        self._next_id = (self._next_id + 1) & INT_MAX
        parts = frame_parts(encode_request(request, version, self._next_id, client_id))
        cast(asyncio.Transport, self._transport).writelines(parts)
        return self._next_id

    def ask(self, request: Request, version: int, client_id: str, timeout_ms: float) -> asyncio.Future[Response]:
        loop = asyncio.get_running_loop()
        name = ApiKey(request.API_KEY).camel_name
        asked = _Asked(
            self.send(request, version, client_id), api(request.API_KEY).response, version, loop.create_future()
        )
        self._asked.append(asked)
        asked.timer = loop.call_later(
            timeout_ms / 1000, self._time_out, f"{name} was not answered in {timeout_ms:g} ms"
        )
        return asked.answer

    def close(self, failure: ChannelError) -> None:
        """End it, and tell all who wait. The first reason stays."""
        if self.failure is not None:
            return
        self.failure = failure
        asked, self._asked = self._asked, deque()
        for each in asked:
            self._settle(each, failure)
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        tune(transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receiver.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        for frame in self._receiver.received(nbytes):
            try:
                self._take(frame)
            except RemoteProtocolError as error:
                self.close(DisconnectedError(self._address, f"its answer cannot be read: {error}"))
                return
        if self._receiver.broken is not None:
            self.close(DisconnectedError(self._address, f"it sent what is no answer: {self._receiver.broken}"))

    def eof_received(self) -> None:
        self.close(DisconnectedError(self._address, "it closed the connection"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.close(DisconnectedError(self._address, f"the connection broke: {exc}" if exc else "the connection ended"))

    def _take(self, frame: bytearray) -> None:
        if not self._asked:
            raise RemoteProtocolError("nothing was asked")
        asked = self._asked[0]
        correlation_id, response = _decode(asked, frame)
        if correlation_id != asked.correlation_id:
            raise RemoteProtocolError(f"it answers {correlation_id} when {asked.correlation_id} is due")
        self._asked.popleft()
        self._settle(asked, response)

    def _settle(self, asked: _Asked, outcome: Response | ChannelError) -> None:
        if asked.timer is not None:
            asked.timer.cancel()
        if asked.answer.done():
            return  # Nobody waits any more.
        if isinstance(outcome, ChannelError):
            asked.answer.set_exception(type(outcome)(outcome.address, outcome.reason))
        else:
            asked.answer.set_result(outcome)

    def _time_out(self, message: str) -> None:
        self.close(RequestTimeoutError(self._address, message))


class Channel:
    """Requests to one node, and its answers.

    Guarantees: at most `max_in_flight_requests` are unanswered at a time, and they leave in the order in which they
    were asked; a request whose fate is unknown raises `DisconnectedError`; one that was never sent `ConnectError`.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str,
        randomness: Random,
        limits: ChannelLimits | None = None,
    ) -> None:
        self.address = address_text(host, port)
        self._host = host
        self._port = port
        self._client_id = client_id
        self._randomness = randomness
        self._limits = limits or ChannelLimits()
        self._backoff = Backoff(self._limits.reconnect_backoff_ms, self._limits.reconnect_backoff_max_ms, randomness)
        self._turns = asyncio.Semaphore(self._limits.max_in_flight_requests)
        self._connecting = asyncio.Lock()
        self._wire: _Wire | None = None
        self._is_closed = False
        #: What the peer offers: lowest and highest version by key. Empty before the first connection.
        self.offered: dict[int, tuple[int, int]] = {}
        #: The peer's whole answer, with its features.
        self.peer: ApiVersionsResponse | None = None

    @property
    def is_connected(self) -> bool:
        return self._wire is not None and self._wire.failure is None

    async def connect(self) -> None:
        """Connect if that is not done already, after the wait that earlier failures ask for."""
        await self._connected()

    async def request(self, message: Request, version: int | None = None, *, timeout_ms: float | None = None) -> Any:
        """The answer to `message`, of the response type that belongs to it. Not an error if it holds error codes.

        The highest version that both sides know is used unless one is given. An answer that does not come in time
        closes the connection.
        """
        timeout_ms = self._limits.request_timeout_ms if timeout_ms is None else timeout_ms
        async with self._turns:
            wire = await self._connected()
            chosen = self._choose(message, version)
            answer = wire.ask(message, chosen, self._client_id, timeout_ms)
            return await answer

    async def send(self, message: Request, version: int | None = None) -> None:
        """Send a request that gets no answer, as Produce with acks=0."""
        async with self._turns:
            wire = await self._connected()
            wire.send(message, self._choose(message, version), self._client_id)

    async def close(self) -> None:
        """Close; who waits for an answer gets `DisconnectedError`. A closed channel stays closed."""
        self._is_closed = True
        if self._wire is not None:
            self._wire.close(DisconnectedError(self.address, "the channel was closed"))
            self._wire = None

    def version_of(self, request: type[Request]) -> int:
        """The highest version that both sides know. Raises `UnsupportedRequestError`."""
        name, ours = ApiKey(request.API_KEY).camel_name, request.VERSIONS
        if request.API_KEY not in self.offered:
            raise UnsupportedRequestError(self.address, f"it does not offer {name}")
        low, high = self.offered[request.API_KEY]
        best = min(high, ours.high)
        if best < max(low, ours.low):
            raise UnsupportedRequestError(self.address, f"it offers {name} {low}-{high}, and we know {ours}")
        return best

    def _choose(self, message: Request, version: int | None) -> int:
        if version is None:
            return self.version_of(type(message))
        low, high = self.offered.get(message.API_KEY, (0, -1))
        if not low <= version <= high:
            name = ApiKey(message.API_KEY).camel_name
            offer = f"{name} {low}-{high}" if high >= 0 else f"no {name}"
            raise UnsupportedRequestError(self.address, f"{name} {version} was to be sent, and it offers {offer}")
        return version

    async def _connected(self) -> _Wire:
        # Also those who find it connected pass here, so that none overtakes another.
        async with self._connecting:
            self._check_open()
            if self._wire is not None and self._wire.failure is None:
                return self._wire
            loop = asyncio.get_running_loop()
            wait_ms = self._backoff.wait_ms(loop.time() * 1000)
            if wait_ms:
                await asyncio.sleep(wait_ms / 1000)
            try:
                wire = await self._open()
            except ChannelError:
                self._backoff.failed(loop.time() * 1000)
                raise
            try:
                self._check_open()
            except ConnectError as closed:
                wire.close(closed)
                raise
            self._backoff.succeeded()
            self._wire = wire
            return wire

    def _check_open(self) -> None:
        if self._is_closed:
            raise ConnectError(self.address, "the channel was closed")

    async def _open(self) -> _Wire:
        limits = self._limits
        timeout_ms = grown(
            limits.socket_connection_setup_timeout_ms,
            limits.socket_connection_setup_timeout_max_ms,
            self._backoff.failure_count,
            self._randomness,
        )
        make = partial(_Wire, self.address, limits.max_response_bytes)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                _, wire = await asyncio.get_running_loop().create_connection(make, self._host, self._port)
        except TimeoutError:
            raise ConnectError(self.address, f"no connection within {timeout_ms / 1000:.1f} s") from None
        except OSError as failure:
            raise ConnectError(self.address, f"no connection: {failure.strerror or failure}") from failure
        try:
            await self._negotiate(wire)
        except BaseException as failure:
            wire.close(DisconnectedError(self.address, "its versions could not be learned"))
            if isinstance(failure, ChannelError):
                raise ConnectError(self.address, f"it did not tell its versions: {failure.reason}") from failure
            raise
        return wire

    async def _negotiate(self, wire: _Wire) -> None:
        """Ask for the versions of the peer, in a version that it knows; what it knows may be told by a refusal."""
        version = ApiVersionsRequest.VERSIONS.high
        question = ApiVersionsRequest(client_software_name=_SOFTWARE, client_software_version=_software_version())
        while True:
            answer = cast(
                ApiVersionsResponse,
                await wire.ask(question, version, self._client_id, self._limits.request_timeout_ms),
            )
            if answer.error_code != ErrorCode.UNSUPPORTED_VERSION or not version:
                break
            offered = [each.max_version for each in answer.api_keys if each.api_key == ApiKey.API_VERSIONS]
            # Lower each time, so that this ends also with a peer that contradicts itself.
            version = max(0, min([version - 1, *offered])) if offered else 0
        if answer.error_code:
            raise ConnectError(self.address, f"it answers ApiVersions with {_code_text(answer.error_code)}")
        self.peer = answer
        self.offered = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}


def _software_version() -> str:
    """Peers refuse what is not made of letters, digits, dots and dashes."""
    version = package_version()
    return version if version.replace(".", "").replace("-", "").isalnum() else "unknown"


def _code_text(code: int) -> str:
    known = {each.value: each.name for each in ErrorCode}
    return f"{known.get(code, 'an unknown error')} ({code})"
