"""The asking end of `SocketTransport`: two connections to each peer, opened when they are needed.

A Fetch may be kept for half a second, and an Apache Kafka takes up no other request of the connection meanwhile; so
Fetch and FetchSnapshot have a connection of their own, and a Vote waits for nobody.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from ipaddress import ip_address
from random import Random
from struct import Struct
from typing import Final, cast

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import LocalProtocolError, RemoteProtocolError
from barnabas.raft.replica_fetch import ReplicaFetch, ReplicaFetchAnswer
from barnabas.raft.socket_parts import FrameWriter, SocketSurroundings
from barnabas.raft.types import Address
from barnabas.wire.apis import ApiKey, api
from barnabas.wire.frames import SIZE_BYTES, FrameSplitter
from barnabas.wire.headers import ResponseHeader
from barnabas.wire.message import Request, Response
from barnabas.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

OnResponse = Callable[[Response | None], None]

#: What may be kept until there is something to answer. Changes of voters are as well, but they wait for Fetches.
WAITING_APIS: Final = frozenset({ApiKey.FETCH, ApiKey.FETCH_SNAPSHOT})
#: The size of the frame, the api's key and version, the correlation id.
_HEAD: Final = Struct(">ihhi")
_CORRELATION_ID_BYTES: Final = 4
_MAX_CORRELATION_ID: Final = 2**31 - 1
_UNSUPPORTED_VERSION: Final = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")
_ASKED_VERSION: Final = 3
_SOFTWARE: Final = ("barnabas-raft", "1")
_JITTER: Final = 0.2


class RequestFormat:
    """How one kind of request travels on one connection."""

    __slots__ = ("has_tagged_answer", "response", "tail", "version")

    def __init__(self, request: type[Request], version: int, client_id: str) -> None:
        known, name = api(request.API_KEY), client_id.encode()
        self.version = version
        self.tail = len(name).to_bytes(2, "big") + name
        if known.request_header_version(version) > 1:
            self.tail += b"\0"
        self.response: type[Response] = ReplicaFetchAnswer if request is ReplicaFetch else known.response
        self.has_tagged_answer = known.response_header_version(version) > 0


class _Asked:
    """A request that waits for a connection, and then for its answer."""

    __slots__ = ("correlation_id", "deadline_s", "format", "on_response", "request")

    def __init__(self, request: Request, on_response: OnResponse, deadline_s: float) -> None:
        self.request = request
        self.on_response = on_response
        self.deadline_s = deadline_s
        self.format = cast(RequestFormat, None)
        self.correlation_id = 0


class OpenedConnection(asyncio.Protocol):
    """One connection to a peer. It has no timers: its channel watches the time."""

    __slots__ = (
        "_around",
        "_channel",
        "_client_id",
        "_formats",
        "_next_id",
        "_splitter",
        "_transport",
        "_writer",
        "has_answered",
        "in_flight",
        "is_closed",
        "offered",
    )

    def __init__(self, channel: PeerChannel, around: SocketSurroundings, client_id: str) -> None:
        self._channel = channel
        self._around = around
        self._client_id = client_id
        self._splitter = FrameSplitter(around.options.max_response_bytes)
        self._transport = cast(asyncio.Transport, None)
        self._writer = cast(FrameWriter, None)
        self._next_id = 0
        self._formats: dict[type[Request], RequestFormat | None] = {}
        #: Lowest and highest version by key, as the peer told.
        self.offered: dict[int, tuple[int, int]] = {}
        #: In the order of sending, which is that of the answers.
        self.in_flight: deque[_Asked] = deque()
        #: Whether the peer answered more than ApiVersions.
        self.has_answered = False
        self.is_closed = False

    def format_of(self, request: type[Request]) -> RequestFormat | None:
        """How to send such a request in the highest version that both sides know; None if there is none."""
        if request not in self._formats:
            low, high = self.offered.get(request.API_KEY, (1, 0))
            version = min(high, request.VERSIONS.high)
            is_known = version >= max(low, request.VERSIONS.low)
            self._formats[request] = RequestFormat(request, version, self._client_id) if is_known else None
        return self._formats[request]

    def send(self, asked: _Asked, form: RequestFormat) -> None:
        """Raises `LocalProtocolError` if the request does not go into that version."""
        request, version = asked.request, form.version
        parts = request.encode_parts(version)
        size_bytes = _HEAD.size - SIZE_BYTES + len(form.tail) + sum(map(len, parts))
        asked.format = form
        asked.correlation_id = self._next_id = (self._next_id + 1) & _MAX_CORRELATION_ID
        self.in_flight.append(asked)
        head = _HEAD.pack(size_bytes, request.API_KEY, version, self._next_id)
        self._writer.put((head, form.tail, *parts), SIZE_BYTES + size_bytes)

    def ask(self, request: Request, version: int) -> asyncio.Future[Response | None]:
        """The answer to a request, or None when the connection was lost."""
        answer: asyncio.Future[Response | None] = self._around.loop.create_future()

        def settle(response: Response | None) -> None:
            if not answer.done():
                answer.set_result(response)

        if self.is_closed:
            answer.set_result(None)
        else:
            self.send(_Asked(request, settle, math.inf), RequestFormat(type(request), version, self._client_id))
        return answer

    def close(self) -> None:
        """Our own end of it; what is unanswered gets None."""
        self._writer.flush()
        self._end(is_by_peer=False)
        self._transport.close()

    def abort(self) -> None:
        self._end(is_by_peer=False)
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
        try:
            whole = self._splitter.whole_frame(data)
            for frame in self._splitter.feed(data) if whole is None else (whole,):
                if self.is_closed:
                    return
                asked, response = self._read(frame)
                asked.on_response(response)
        except RemoteProtocolError as error:
            self._around.complaints.say(str(self._channel.address), str(error))
            self.abort()

    def eof_received(self) -> None:
        self._end(is_by_peer=True)
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        # A kernel that lost patience is not the peer's doing: only what is reset is.
        self._end(is_by_peer=exc is None or isinstance(exc, ConnectionError))
        self._around.gone(self)

    def _read(self, frame: bytes | bytearray) -> tuple[_Asked, Response]:
        if not self.in_flight or len(frame) < _CORRELATION_ID_BYTES:
            raise RemoteProtocolError(f"a frame of {len(frame)} bytes answers nothing")
        asked = self.in_flight[0]
        correlation_id = int.from_bytes(frame[:_CORRELATION_ID_BYTES], "big", signed=True)
        if correlation_id != asked.correlation_id:
            raise RemoteProtocolError(f"{correlation_id} was answered when {asked.correlation_id} was due")
        form, start = asked.format, _CORRELATION_ID_BYTES
        response: Response
        if form.response is ApiVersionsResponse:
            is_refused = frame[start : start + 2] == _UNSUPPORTED_VERSION
            response, _ = ApiVersionsResponse.decode_prefix(frame, 0 if is_refused else form.version, start)
        else:
            if form.has_tagged_answer:
                is_plain = frame[start : start + 1] == b"\0"
                start = start + 1 if is_plain else ResponseHeader.decode_prefix(frame, 1)[1]
            response, _ = form.response.decode_prefix(frame, form.version, start)
            self.has_answered = True
        self.in_flight.popleft()
        return asked, response

    def _end(self, *, is_by_peer: bool) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        unanswered, self.in_flight = self.in_flight, deque()
        self._channel.lost(self, unanswered, is_by_peer=is_by_peer)


class PeerChannel:
    """The requests to one address that share a connection.

    Guarantees: whoever asks is told once, never from inside `send`; an answer that does not come in time ends the
    connection, and all that is in flight on it. After failures there is a wait, which grows, and meanwhile what is
    asked fails at once.
    """

    def __init__(
        self,
        address: Address,
        around: SocketSurroundings,
        client_id: str,
        randomness: Random,
        on_connected: Callable[[], None],
        on_refused: Callable[[], None],
    ) -> None:
        """`on_refused` is told when the peer closed a connection in use and refuses another; `on_connected` of each
        connection that was opened."""
        self.address = address
        self._around = around
        self._loop = around.loop
        self._client_id = client_id
        self._randomness = randomness
        self._on_connected = on_connected
        self._on_refused = on_refused
        self._connection: OpenedConnection | None = None
        self.opening: asyncio.Task[None] | None = None
        self._waiting: deque[_Asked] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_s = math.inf
        self._used_at_s = 0.0
        #: Failures since the last answer, and when the wait after the last one is over.
        self._failure_count = 0
        self._next_try_s = 0.0

    def send(self, request: Request, on_response: OnResponse, timeout_ms: int) -> None:
        now_s = self._used_at_s = self._loop.time()
        asked = _Asked(request, on_response, now_s + timeout_ms / 1000)
        if self._connection is not None:
            self._send(self._connection, asked)
        elif self.opening is None and now_s < self._next_try_s:
            self._tell_none((asked,))
            return
        else:
            self._waiting.append(asked)
            if self.opening is None:
                self._open()
        if asked.deadline_s < self._timer_at_s:
            self._watch(asked.deadline_s)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self.opening is not None:
            self.opening.cancel()

    def _send(self, connection: OpenedConnection, asked: _Asked) -> None:
        form = connection.format_of(type(asked.request))
        try:
            if form is not None:
                connection.send(asked, form)
                return
        except LocalProtocolError:
            # It asks for what the peer's version cannot say, such as a pre-vote.
            pass
        self._tell_none((asked,))

    def _tell_none(self, unanswered: Iterable[_Asked]) -> None:
        for asked in unanswered:
            self._loop.call_soon(self._tell, asked.on_response)

    def _tell(self, on_response: OnResponse) -> None:
        if not self._around.is_stopped:
            on_response(None)

    # What a connection tells

    def lost(self, connection: OpenedConnection, unanswered: deque[_Asked], *, is_by_peer: bool) -> None:
        self._tell_none(unanswered)
        if connection is not self._connection:
            return  # while it was being opened: the task knows
        self._connection = None
        if self._around.is_stopped:
            return
        if connection.has_answered:
            self._failure_count = 0
        in_use_s = self._around.options.in_use_ms / 1000
        if is_by_peer and not unanswered and self._loop.time() - self._used_at_s > in_use_s:
            return
        # A peer that takes connections and answers nothing is tried again at once only the first time.
        is_redialed = is_by_peer and not self._failure_count
        if not connection.has_answered or not is_by_peer:
            self._failed()
        if is_redialed:
            self._open(is_redial=True)

    # Time: one timer for all that may be due, which is left alone when a request is answered

    def _watch(self, at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_s = at_s
        self._timer = self._loop.call_at(at_s, self._look_at_the_time)

    def _look_at_the_time(self) -> None:
        # A timer may come a little early by the loop's own clock.
        now_s = max(self._loop.time(), self._timer_at_s)
        self._timer, self._timer_at_s = None, math.inf
        self._tell_none(each for each in self._waiting if each.deadline_s <= now_s)
        self._waiting = deque(each for each in self._waiting if each.deadline_s > now_s)
        connection = self._connection
        if connection is not None and any(each.deadline_s <= now_s for each in connection.in_flight):
            connection.abort()
        in_flight = () if self._connection is None else self._connection.in_flight
        due_s = min((each.deadline_s for each in (*self._waiting, *in_flight)), default=math.inf)
        if due_s < math.inf:
            self._watch(due_s)

    def _failed(self) -> None:
        options = self._around.options
        # Beyond 32 doublings nothing is below the limit.
        grown_ms = options.reconnect_backoff_ms << min(self._failure_count, 32)
        self._failure_count += 1
        jitter = self._randomness.uniform(1 - _JITTER, 1 + _JITTER)
        wait_ms = min(grown_ms, options.reconnect_backoff_max_ms) * jitter
        self._next_try_s = self._loop.time() + wait_ms / 1000

    # Connecting

    def _open(self, *, is_redial: bool = False) -> None:
        self.opening = self._loop.create_task(self._connect(is_redial=is_redial))

    async def _connect(self, *, is_redial: bool) -> None:
        try:
            connection = await (self._redial() if is_redial else self._dial())
        except (OSError, UnicodeError, RemoteProtocolError) as failure:
            self.opening = None
            self._failed()
            waiting, self._waiting = self._waiting, deque()
            self._tell_none(waiting)
            if is_redial and isinstance(failure, ConnectionRefusedError):
                self._on_refused()
            return
        self.opening = None
        self._connection = connection
        self._on_connected()
        waiting, self._waiting = self._waiting, deque()
        for asked in waiting:
            self._send(connection, asked)

    async def _redial(self) -> OpenedConnection:
        """A dying process may close its connections before what it listens with: whoever it took and dropped asks once
        more."""
        try:
            return await self._dial()
        except ConnectionResetError:
            return await self._dial()

    async def _dial(self) -> OpenedConnection:
        timeout_s = self._around.options.connection_setup_timeout_ms / 1000
        make = partial(OpenedConnection, self, self._around, self._client_id)
        connection = await dial(make, self.address, timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                answer = await _ask_versions(connection)
            if connection.is_closed:
                raise ConnectionResetError("the connection was closed before its first use")
        except BaseException:
            connection.abort()
            raise
        connection.offered = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        return connection


async def _ask_versions(connection: OpenedConnection) -> ApiVersionsResponse:
    """What the peer serves, asked in a version that it knows; what it knows may be told by a refusal."""
    request = ApiVersionsRequest(client_software_name=_SOFTWARE[0], client_software_version=_SOFTWARE[1])
    version = _ASKED_VERSION
    while True:
        answer = await connection.ask(request, version)
        if not isinstance(answer, ApiVersionsResponse):
            raise ConnectionResetError("the connection was closed before the versions were told")
        if answer.error_code != ErrorCode.UNSUPPORTED_VERSION or not version:
            break
        offered = [each.max_version for each in answer.api_keys if each.api_key == ApiKey.API_VERSIONS]
        # Lower each time, so that this ends also with a peer that contradicts itself.
        version = max(0, min([version - 1, *offered])) if offered else 0
    if answer.error_code:
        raise RemoteProtocolError(f"ApiVersions was answered with the error {answer.error_code}")
    return answer


async def dial(make: Callable[[], OpenedConnection], address: Address, timeout_s: float) -> OpenedConnection:
    """A connection to the first address of a host that takes it; each has the whole time.

    Raises `ConnectionRefusedError` only if all of them refuse: asyncio has no single error for several addresses.
    """
    loop = asyncio.get_running_loop()
    failures: list[OSError] = []
    for host in await _hosts(address, timeout_s):
        try:
            async with asyncio.timeout(timeout_s):
                _, connection = await loop.create_connection(make, host, address.port)
            return connection
        except OSError as failure:
            failures.append(failure)
    others = [each for each in failures if not isinstance(each, ConnectionRefusedError)]
    raise (others or failures)[0]


async def _hosts(address: Address, timeout_s: float) -> list[str]:
    try:
        return [str(ip_address(address.host))]
    except ValueError:
        async with asyncio.timeout(timeout_s):
            found = await asyncio.get_running_loop().getaddrinfo(address.host, address.port)
        return list(dict.fromkeys(str(place[0]) for *_, place in found))
