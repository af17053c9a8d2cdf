"""A listener that answers GET requests over HTTP/1.1 with short-lived text, for programs that watch a node.

It is bounded in everything that strangers can make it do: how many connect at once, how long a request may be and take
to come, how long an answer may take to leave. Each connection has one request and ends with its answer. Strangers who
take all the places do not make a node look dead: there is a reserve for probes.
"""

from __future__ import annotations

import asyncio
import hmac
from base64 import b64decode
from binascii import Error as NotBase64Error
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, cast

from barnabas.base.log_context import logger
from barnabas.net.limits import MIB
from barnabas.net.listener import Listener, ListenerSpec
from barnabas.net.tls.failures import TlsError
from barnabas.net.tls.listening import ListenerTls

_log = logger("barnabas.net")

_MOST_REQUEST_BYTES: Final = 8192
#: Answers that are not longer, as those to probes, are always given: no more than may be connected hold one.
_SHORT_BYTES: Final = 8192
_REASONS: Final = {200: "OK", 401: "Unauthorized", 404: "Not Found", 405: "Method Not Allowed", 400: "Bad Request"}
_REASONS_OF_TROUBLE: Final = {431: "Request Header Fields Too Large", 500: "Internal Server Error"}
TEXT: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What is sent for one request."""

    status: int = 200
    body: bytes = b""
    #: More of it, where to put it together would take long.
    parts: Sequence[bytes] = ()
    content_type: str = TEXT
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def body_bytes(self) -> int:
        return len(self.body) + sum(map(len, self.parts))


_BUSY: Final = HttpAnswer(503, b"too many ask at once\n", headers={"Retry-After": "1"})

#: Of one path.
Page = Callable[[], Awaitable[HttpAnswer]]


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """How many may be connected, how long a request may take to come and an answer to leave, and how much may wait to
    be taken by those who asked; one answer may be larger than that.

    When all places are taken, one who has been silent for `silent_s` makes room for the next; failing that, so many as
    are in `reserve` are heard, and get what is at open paths. When too much waits to be taken, the answer that has been
    leaving for longest makes room, if that is `slow_s`.
    """

    connections: int = 200
    reserve: int = 50
    silent_s: float = 1.0
    untaken_bytes: int = 64 * MIB
    slow_s: float = 2.0
    request_s: float = 10.0
    answer_s: float = 30.0


class _Place(Enum):
    """What a connection may ask for."""

    ORDINARY = auto()
    #: What is at open paths.
    RESERVE = auto()
    #: Nothing: it is told so, and goes.
    NONE = auto()


class HttpListener:
    """`pages` by path. With a `password` whoever asks must be `user` (basic authentication), but for `open_paths`."""

    def __init__(
        self,
        pages: Mapping[str, Page],
        *,
        user: str = "",
        password: str | None = None,
        open_paths: frozenset[str] = frozenset(),
        tls: ListenerTls | None = None,
        limits: HttpLimits | None = None,
    ) -> None:
        self.pages = pages
        self.limits = limits or HttpLimits()
        self._expected = None if password is None else f"{user}:{password}".encode()
        self.open_paths = open_paths
        self._tls = tls
        self._listener: Listener | None = None
        #: With the places that they have.
        self.connections: dict[HttpConnection, _Place] = {}
        self._taken: Counter[_Place] = Counter()
        #: Since when those are connected who have not asked, the oldest first.
        self._silent_since_s: dict[HttpConnection, float] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        #: Whose long answers have not left, since when and how long they are, the oldest first.
        self._leaving: dict[HttpConnection, tuple[float, int]] = {}
        self.untaken_bytes = 0

    async def start(self, host: str, port: int) -> int:
        """Listen; the port that was bound. Raises `ListenError`."""
        spec = ListenerSpec("METRICS", host, port, chosen_with="--metrics or metrics.listener=...")
        listener = self._listener = Listener(spec)
        await listener.open(self._accept, self.limits.connections)
        return listener.port

    async def stop(self) -> None:
        if self._listener is not None:
            self._listener.close()
        for connection in list(self.connections):
            connection.abort()
        for task in list(self.tasks):
            task.cancel()
        if self.tasks:
            await asyncio.wait(set(self.tasks))

    def _accept(self) -> asyncio.BaseProtocol:
        connection = HttpConnection(self)
        return connection if self._tls is None else self._tls.layer(connection, self.limits.request_s * 1000)

    def admit(self, connection: HttpConnection, now_s: float) -> _Place | None:
        """A place for who has just connected; None if there are too many even to be told that."""
        limits, taken = self.limits, self._taken
        if taken[_Place.ORDINARY] < limits.connections:
            place = _Place.ORDINARY
        elif (silent := self._silent_too_long(now_s)) is not None:
            place = self.connections[silent]
            self.forget(silent)
            silent.abort()
        elif taken[_Place.RESERVE] < limits.reserve:
            place = _Place.RESERVE
        elif taken[_Place.NONE] < limits.connections:
            place = _Place.NONE
        else:
            return None
        self.connections[connection] = place
        taken[place] += 1
        if place is not _Place.NONE:
            self._silent_since_s[connection] = now_s
        return place

    def _silent_too_long(self, now_s: float) -> HttpConnection | None:
        for oldest, since_s in self._silent_since_s.items():
            return oldest if now_s - since_s >= self.limits.silent_s else None
        return None

    def asked(self, connection: HttpConnection) -> None:
        """It is silent no more."""
        self._silent_since_s.pop(connection, None)

    def forget(self, connection: HttpConnection) -> None:
        self.asked(connection)
        self._has_left(connection)
        place = self.connections.pop(connection, None)
        if place is not None:
            self._taken[place] -= 1

    def leaves(self, connection: HttpConnection, answer: HttpAnswer, now_s: float) -> bool:
        """Whether there is room for an answer: each may be another text, so those who never read would hold as many."""
        size_bytes = answer.body_bytes
        if size_bytes <= _SHORT_BYTES:
            return True
        while self._leaving and self.untaken_bytes + size_bytes > self.limits.untaken_bytes:
            oldest = next(iter(self._leaving))
            if now_s - self._leaving[oldest][0] < self.limits.slow_s:
                return False
            self._has_left(oldest)
            oldest.abort()
        self._leaving[connection] = now_s, size_bytes
        self.untaken_bytes += size_bytes
        return True

    def _has_left(self, connection: HttpConnection) -> None:
        _, size_bytes = self._leaving.pop(connection, (0, 0))
        self.untaken_bytes -= size_bytes

    def is_known(self, path: str, authorization: str) -> bool:
        if self._expected is None or path in self.open_paths:
            return True
        scheme, _, credentials = authorization.partition(" ")
        if scheme.lower() != "basic":
            return False
        try:
            given = b64decode(credentials.strip(), validate=True)
        except (NotBase64Error, ValueError):
            return False
        return hmac.compare_digest(given, self._expected)

    async def answer(self, path: str, authorization: str) -> HttpAnswer:
        if not self.is_known(path, authorization):
            return HttpAnswer(401, b"who asks?\n", headers={"WWW-Authenticate": 'Basic realm="barnabas"'})
        page = self.pages.get(path)
        if page is None:
            return HttpAnswer(404, f"there are {', '.join(sorted(self.pages))}\n".encode())
        try:
            return await page()
        except Exception:
            _log.exception("what is at %s could not be told", path)
            return HttpAnswer(500, b"see the log of the node\n")


class HttpConnection(asyncio.BufferedProtocol):
    """One request and its answer."""

    def __init__(self, owner: HttpListener) -> None:
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray(1024)
        self._received = b""
        self._place: _Place | None = None
        self._is_asked = False
        self._is_over = False
        self._transport = cast(asyncio.Transport, None)
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        place = self._place = self._owner.admit(self, self._loop.time())
        if place is None:
            self.abort()
        elif place is _Place.NONE:
            self._refuse(_BUSY)
        else:
            self._timer = self._loop.call_later(self._owner.limits.request_s, self.abort)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_asked:
            return  # one connection, one request
        self._received += self._buffer[:nbytes]
        end = self._received.find(b"\r\n\r\n")
        if end >= 0:
            self._ask(self._received[:end].decode("latin-1"))
        elif len(self._received) > _MOST_REQUEST_BYTES:
            self._refuse(HttpAnswer(431, b""))

    def _refuse(self, answer: HttpAnswer) -> None:
        self._is_asked = True
        self._owner.asked(self)
        self._send(answer)

    def _ask(self, head: str) -> None:
        self._is_asked = True
        self._owner.asked(self)
        self._received = b""
        lines = head.split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            self._send(HttpAnswer(400, b"that is no request\n"))
            return
        method, path = words[0], words[1].partition("?")[0]
        if method not in ("GET", "HEAD"):
            self._send(HttpAnswer(405, b"there is nothing but GET\n", headers={"Allow": "GET, HEAD"}))
            return
        if self._place is _Place.RESERVE and path not in self._owner.open_paths:
            self._send(_BUSY)
            return
        given = (line.partition(":") for line in lines[1:])
        authorization = next((value.strip() for name, _, value in given if name.strip().lower() == "authorization"), "")
        task = self._loop.create_task(self._answer(method, path, authorization), name=f"answer {path}")
        self._owner.tasks.add(task)
        task.add_done_callback(self._owner.tasks.discard)

    async def _answer(self, method: str, path: str, authorization: str) -> None:
        answer = await self._owner.answer(path, authorization)
        if self._is_over:
            return
        has_body = method == "GET"
        has_room = not has_body or self._owner.leaves(self, answer, self._loop.time())
        self._send(answer if has_room else _BUSY, has_body=has_body)

    def _send(self, answer: HttpAnswer, *, has_body: bool = True) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(self._owner.limits.answer_s, self.abort)
        reason = (_REASONS | _REASONS_OF_TROUBLE).get(answer.status, "Service Unavailable")
        head = [
            f"HTTP/1.1 {answer.status} {reason}",
            f"Content-Type: {answer.content_type}",
            f"Content-Length: {answer.body_bytes}",
            "Connection: close",
            *(f"{name}: {value}" for name, value in answer.headers.items()),
        ]
        self._transport.write("\r\n".join(head).encode() + b"\r\n\r\n")
        if has_body:
            # As it is: those who ask at the same time share one body.
            self._transport.writelines([answer.body, *answer.parts])
        self._transport.close()

    # For the TLS layer

    def secured(self, certificate: bytes | None) -> None:
        """Whoever asks needs no certificate that names anybody."""

    def not_secured(self, failure: TlsError) -> None:
        """The layer ends the connection."""

    def eof_received(self) -> bool:
        return self._is_asked  # who shut down its side still reads

    def abort(self) -> None:
        if not self._is_over and self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_over = True
        self._owner.forget(self)
        if self._timer is not None:
            self._timer.cancel()
