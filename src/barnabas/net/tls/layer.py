"""TLS between a socket's transport and the protocol of a connection, both ways.

It is a protocol for the transport below and a transport for the connection above, so that those who write know nothing
of it. What asyncio has for this is not used: it tells of a connection only after the handshake, so that nobody counts
those who never end it, and it encrypts a whole answer at once, however little of it the peer takes.

Memory is bounded: of what arrives one read is kept, of what is sent one piece is encrypted before the one before it has
left. So is time: a handshake that is not done by its deadline ends the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import Iterable
from enum import Enum
from typing import Any, Final, Protocol, cast

from barnabas.net.limits import SMALL_FRAME_BYTES
from barnabas.net.tls.failures import TlsError, TlsFailure

#: What is encrypted at once.
_PIECE_BYTES: Final = 128 * 1024
#: Parts up to this size are put together: a record of their own would cost more.
_JOINED_BYTES: Final = 8 * 1024
#: A handshake with the longest chains of certificates is smaller.
_MAX_HANDSHAKE_BYTES: Final = 256 * 1024
#: What the library may want to send by itself, such as new keys, while the peer takes nothing.
_MAX_UNASKED_BYTES: Final = 64 * 1024
_DEFAULT_HIGH_BYTES: Final = 64 * 1024
_LINGER_S: Final = 1.0


class SecuredProtocol(Protocol):
    """A connection that can be secured: what it is told besides what every protocol is."""

    def secured(self, certificate: bytes | None) -> None:
        """The handshake is done; the certificate of the peer, if it showed one that was verified."""

    def not_secured(self, failure: TlsError) -> None:
        """The handshake failed, or the peer said after it that it did; the connection is about to end."""


class _State(Enum):
    SHAKING_HANDS = "shaking hands"
    OPEN = "open"
    CLOSING = "closing"
    #: The peer was told that it failed. What it sends is read and dropped, or the system would tell it instead that the
    #: connection was reset, and throw away what it was told.
    LINGERING = "lingering"
    CLOSED = "closed"


class TlsLayer(asyncio.BufferedProtocol, asyncio.Transport):
    """See the module. Guarantees: the connection above gets no byte, and none of its bytes leave, before the handshake
    is done; it is told of the end exactly once."""

    def __init__(
        self,
        context: ssl.SSLContext,
        above: asyncio.BufferedProtocol,
        *,
        timeout_ms: float,
        host: str | None = None,
        suites: frozenset[str] = frozenset(),
        server_side: bool = False,
    ) -> None:
        """`host` is whom a client asked for; `suites` those that may be agreed on, all if it is empty."""
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self.above = self._above = above
        self._told = cast(SecuredProtocol, above)
        self._suites = suites
        self._server_side = server_side
        self._timeout_ms = timeout_ms
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side, server_hostname=host)
        self._state = _State.SHAKING_HANDS
        self._below = cast(asyncio.Transport, None)
        self._timer: asyncio.TimerHandle | None = None
        self._handshake_bytes = 0
        # Reading
        self._scratch = memoryview(_scratch_of(self._loop))
        self._is_reading_paused = False
        self._is_at_end = False
        # Writing
        self._backlog: deque[memoryview] = deque()
        self._backlog_bytes = 0
        self._is_full_below = False
        self._high_bytes, self._low_bytes = _DEFAULT_HIGH_BYTES, _DEFAULT_HIGH_BYTES // 4
        self._is_above_paused = False
        self._failure: TlsError | None = None

    # ---- as a protocol, for the transport of the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._below = cast(asyncio.Transport, transport)
        # Zero, so that a piece is encrypted when the one before it has left.
        self._below.set_write_buffer_limits(high=0)
        self._timer = self._loop.call_later(self._timeout_ms / 1000, self._is_late)
        self._above.connection_made(self)
        if self._state is _State.SHAKING_HANDS and not self._below.is_closing():
            self._shake_hands()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._scratch

    def buffer_updated(self, nbytes: int) -> None:
        if self._state in (_State.LINGERING, _State.CLOSED):
            return
        self._incoming.write(self._scratch[:nbytes])
        if self._state is _State.SHAKING_HANDS:
            self._handshake_bytes += nbytes
            if self._handshake_bytes > _MAX_HANDSHAKE_BYTES:
                self._fail(TlsError(TlsFailure.TOO_LARGE, f"more than {_MAX_HANDSHAKE_BYTES} bytes in the handshake"))
                return
        if self._is_reading_paused:
            self._below.pause_reading()  # uvloop begins to read after `connection_made`, whatever was said there
            return
        self._read_on()

    def eof_received(self) -> bool:
        if self._state is _State.SHAKING_HANDS:
            self._fail(TlsError(TlsFailure.ENDED, "the connection ended during the TLS handshake"))
            return False
        if self._state is not _State.OPEN or self._is_at_end:
            return False
        self._is_at_end = True
        return bool(self._above.eof_received())

    def pause_writing(self) -> None:
        self._is_full_below = True
        self._look_at_buffers()

    def resume_writing(self) -> None:
        self._is_full_below = False
        self._flush()
        self._look_at_buffers()

    def connection_lost(self, exc: Exception | None) -> None:
        was_shaking_hands = self._state is _State.SHAKING_HANDS
        self._stop_timer()
        self._state = _State.CLOSED
        self._backlog.clear()
        self._backlog_bytes = 0
        if was_shaking_hands and self._failure is None:
            self._failure = TlsError(TlsFailure.ENDED, "the connection ended during the TLS handshake")
            self._told.not_secured(self._failure)
        self._above.connection_lost(self._failure or exc)

    # ---- as a transport, for the connection

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "ssl_object":
            return self._ssl
        return self._below.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._state not in (_State.SHAKING_HANDS, _State.OPEN) or self._below.is_closing()

    def is_reading(self) -> bool:
        return not self._is_reading_paused

    def pause_reading(self) -> None:
        if not self._is_reading_paused:
            self._is_reading_paused = True
            if self._state is not _State.LINGERING:
                self._below.pause_reading()

    def resume_reading(self) -> None:
        if self._is_reading_paused:
            self._is_reading_paused = False
            self._below.resume_reading()
            if self._incoming.pending or self._ssl.pending():
                self._loop.call_soon(self._read_on)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes = _DEFAULT_HIGH_BYTES if high is None else high
        self._low_bytes = self._high_bytes // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return self._backlog_bytes + self._below.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low_bytes, self._high_bytes

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._state is _State.OPEN and not self._backlog and not self._is_full_below and len(data) <= _PIECE_BYTES:
            self._encrypt(data)
            return
        self._put((data,))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self._put(_joined(list_of_data))

    def close(self) -> None:
        """What was written before still leaves, then the word that nothing follows."""
        if self._state is _State.SHAKING_HANDS:
            self._state = _State.CLOSED
            self._stop_timer()
            self._below.close()
        elif self._state is _State.OPEN:
            self._state = _State.CLOSING
            self.pause_reading()
            if not self._backlog:
                self._say_goodbye()

    def abort(self) -> None:
        self._stop_timer()
        self._state = _State.CLOSED
        self._below.abort()

    # ---- inside: the handshake

    def _shake_hands(self) -> None:
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            self._send_outgoing()
            return
        except ssl.SSLError as problem:
            self._fail(TlsError.of(problem))
            return
        cipher = self._ssl.cipher()
        if self._suites and (cipher is None or cipher[0] not in self._suites):
            self._fail(TlsError(TlsFailure.REFUSED, "the cipher suite that both know is not among ssl.cipher.suites"))
            return
        self._stop_timer()
        self._state = _State.OPEN
        self._send_outgoing()
        self._told.secured(self._ssl.getpeercert(binary_form=True))
        self._flush()

    def _is_late(self) -> None:
        self._fail(TlsError(TlsFailure.LATE, f"the TLS handshake was not done within {self._timeout_ms / 1000:g} s"))

    def _fail(self, failure: TlsError) -> None:
        """Tell the peer, if the library has something to tell, and end."""
        if self._state in (_State.LINGERING, _State.CLOSED):
            return
        self._stop_timer()
        self._state = _State.LINGERING
        self._failure = failure
        self._send_outgoing()
        self._told.not_secured(failure)
        # Who does not take the little that it is told is not waited for.
        if self._is_full_below or self._below.is_closing():
            self.abort()
        elif self._server_side and failure.kind is TlsFailure.REFUSED and self._below.can_write_eof():
            self._below.write_eof()
            self._below.resume_reading()
            self._timer = self._loop.call_later(_LINGER_S, self.abort)
        else:
            self._state = _State.CLOSED
            self._below.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # ---- inside: reading

    def _read_on(self) -> None:
        if self._is_reading_paused:
            return
        if self._state is _State.SHAKING_HANDS:
            self._shake_hands()
        if self._state is _State.OPEN:
            self._read()

    def _read(self) -> None:
        """Give the connection what has arrived, as much as it takes."""
        incoming, decrypt, above = self._incoming, self._ssl.read, self._above
        try:
            while not self._is_reading_paused and self._state is _State.OPEN:
                if not incoming.pending and not self._ssl.pending():
                    break
                buffer = cast(memoryview, above.get_buffer(-1))
                size, got, is_dry = len(buffer), 0, False
                while got < size:
                    try:
                        count = decrypt(size - got, buffer[got:] if got else buffer)
                    except ssl.SSLWantReadError:
                        is_dry = True
                        break
                    if not count:
                        self._is_at_end = True
                        break
                    got += cast(int, count)
                    if not incoming.pending:
                        break
                if got:
                    above.buffer_updated(got)
                if is_dry or self._is_at_end:
                    break
        except ssl.SSLError as problem:
            if isinstance(problem, ssl.SSLZeroReturnError):
                self._is_at_end = True
            else:
                self._fail(TlsError.of(problem))
                return
        if self._outgoing.pending:
            self._send_unasked()
        if self._is_at_end and self._state is _State.OPEN and not above.eof_received():
            self.close()

    def _send_unasked(self) -> None:
        """The library answers by itself when the peer wants new keys."""
        if not self._is_full_below:
            self._send_outgoing()
        elif self._outgoing.pending > _MAX_UNASKED_BYTES:
            self.abort()

    # ---- inside: writing

    def _put(self, parts: Iterable[Any]) -> None:
        if self._state not in (_State.OPEN, _State.SHAKING_HANDS):
            return
        for part in parts:
            view = memoryview(part)
            if view.format != "B":
                view = view.cast("B")
            if len(view):
                self._backlog.append(view)
                self._backlog_bytes += len(view)
        self._flush()
        self._look_at_buffers()

    def _flush(self) -> None:
        """Encrypt and send, as long as the socket takes it."""
        backlog = self._backlog
        if self._state is _State.SHAKING_HANDS:
            return
        while backlog and not self._is_full_below and self._state in (_State.OPEN, _State.CLOSING):
            part = backlog[0]
            if len(part) > _PIECE_BYTES:
                backlog[0] = part[_PIECE_BYTES:]
                part = part[:_PIECE_BYTES]
            else:
                backlog.popleft()
            self._backlog_bytes -= len(part)
            self._encrypt(part)
        if self._state is _State.CLOSING and not backlog:
            self._say_goodbye()

    def _encrypt(self, data: Any) -> None:
        if not len(data):
            return
        try:
            self._ssl.write(data)
        except ssl.SSLError as problem:
            self._fail(TlsError.of(problem))
            return
        self._below.write(self._outgoing.read())

    def _send_outgoing(self) -> None:
        if self._outgoing.pending and not self._below.is_closing():
            self._below.write(self._outgoing.read())

    def _say_goodbye(self) -> None:
        """Nothing follows; the peer is not waited for to say the same."""
        if self._below.is_closing():
            return
        with contextlib.suppress(ssl.SSLError):  # it waits for the peer's answer, or the peer broke off
            self._ssl.unwrap()
        self._send_outgoing()
        self._below.close()

    def _look_at_buffers(self) -> None:
        """Tell the connection to write no more, or again."""
        if self._state in (_State.LINGERING, _State.CLOSED):
            return
        size = self.get_write_buffer_size()
        if not self._is_above_paused:
            if size > self._high_bytes and (self._is_full_below or self._state is _State.SHAKING_HANDS):
                self._is_above_paused = True
                self._above.pause_writing()
        elif size <= self._low_bytes:
            self._is_above_paused = False
            self._above.resume_writing()


def _joined(parts: Iterable[Any]) -> Iterable[Any]:
    """The same bytes, with small parts put together."""
    small: list[Any] = []
    size = 0
    for part in parts:
        if len(part) <= _JOINED_BYTES:
            small.append(part)
            size += len(part)
            if size > _PIECE_BYTES:
                yield b"".join(small)
                small, size = [], 0
            continue
        if small:
            yield b"".join(small)
            small, size = [], 0
        yield part
    if small:
        yield b"".join(small)


#: Where bytes arrive, by loop: emptied before anything else happens.
_scratches: dict[int, tuple[asyncio.AbstractEventLoop, bytearray]] = {}


def _scratch_of(loop: asyncio.AbstractEventLoop) -> bytearray:
    """One buffer for all connections of a loop."""
    found = _scratches.get(id(loop))
    if found is None or found[0] is not loop:
        for key in [key for key, (other, _) in _scratches.items() if other.is_closed()]:
            del _scratches[key]
        found = _scratches[id(loop)] = loop, bytearray(SMALL_FRAME_BYTES)
    return found[1]
