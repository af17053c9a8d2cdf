"""One accepted connection: frames in, responses out, one request at a time.

A connection is *muted* from the moment a request is handed over until it was answered, the answer has left our buffers
and any throttling is over. What arrives meanwhile is kept up to a small bound, then the socket is not read. So answers
keep the order of the questions, and a peer that does not read its answers cannot ask more.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, cast

from barnabas.base.errors import check
from barnabas.base.log_context import logger
from barnabas.net._kernel.metering import RequestFields
from barnabas.net.admission import Admission
from barnabas.net.answer_room import AnswerRoom
from barnabas.net.authentications import Authentications
from barnabas.net.errors import address_text
from barnabas.net.idle import IdleWatch
from barnabas.net.limits import (
    JOINED_BYTES,
    ORDINARY_FRAME_BYTES,
    PROGRESS_BYTES,
    READ_AHEAD_BYTES,
    SMALL_FRAME_BYTES,
    TINY_FRAME_BYTES,
    ServerLimits,
)
from barnabas.net.memory import RequestMemory, Share
from barnabas.net.pace import Doing, Standing
from barnabas.net.phases import ConnectionEvent, ConnectionPhase
from barnabas.net.request_channel import Dispatch, RequestChannel
from barnabas.net.sockets import sends_untouched, tune
from barnabas.net.throttled import ThrottledClients, ThrottledWait
from barnabas.net.tls.failures import TlsError
from barnabas.wire.compiler import Buffer
from barnabas.wire.frames import SIZE_BYTES, FrameReceiver, frame_parts

_log = logger("barnabas.net")

_CAPTURED_BYTES: Final = 64 * 1024

ANONYMOUS: Final = "User:ANONYMOUS"

#: Why the next request is not taken up.
_IN_PROCESS: Final = 1
_SENDING: Final = 2
_THROTTLED: Final = 4
_NOT_ADMITTED: Final = 8
#: Why the socket is not read.
_AHEAD: Final = 1
_NO_MEMORY: Final = 2
_HELD_BACK: Final = 4
_NO_PLACE: Final = 8
_CLOSED: Final = ConnectionPhase.CLOSED


@dataclass(slots=True)
class Surroundings:
    """What the connections of a server share."""

    loop: asyncio.AbstractEventLoop
    limits: ServerLimits
    request_channel: RequestChannel
    memory: RequestMemory
    answers: AnswerRoom
    #: Of nodes of the cluster: what clients hold must not keep them waiting.
    cluster_memory: RequestMemory
    cluster_answers: AnswerRoom
    idle: IdleWatch
    admission: Admission
    authentications: Authentications
    throttled: ThrottledClients
    #: How many connections came, and how many have ended, by listener.
    created: dict[str, int]
    closed: dict[str, int]
    #: Where bytes arrive before it is known what they belong to. Emptied before anything else happens.
    scratch: bytearray
    #: All open connections, by id.
    connections: dict[int, Connection]
    on_empty: Callable[[], None]
    ids: itertools.count[int]


class CapturedRequest:
    """The frame of a request, and that of its answer if it is a small one."""

    __slots__ = ("answer", "frame")

    def __init__(self, frame: bytes | None) -> None:
        self.frame = frame
        self.answer: bytes | None = None


class Connection(RequestFields, asyncio.BufferedProtocol):
    """A peer's connection to one of our listeners.

    Guarantees: one request at a time is handed over, in the order of arrival; the next one only after `respond` or
    `finish_without_response`, and after the bytes of the response have left. Callbacks of `on_close` run exactly once.
    """

    __slots__ = (
        "_admission",
        "_ahead",
        "_ahead_bytes",
        "_answer",
        "_answers",
        "_around",
        "_close_callbacks",
        "_ending",
        "_frame_bytes",
        "_has_arrived",
        "_has_room",
        "_idle",
        "_is_half_closed",
        "_is_parked",
        "_loop",
        "_mutes",
        "_partial_bytes",
        "_partial_share",
        "_pauses",
        "_principal_of",
        "_receiver",
        "_request_channel",
        "_secured_phase",
        "_small",
        "_throttle",
        "_throttle_timer",
        "_transport",
        "_unsent_seen_bytes",
        "active_at_s",
        "captured",
        "client_software",
        "dispatch",
        "id",
        "is_privileged",
        "is_token_authenticated",
        "listener",
        "memory",
        "peer_host",
        "peer_port",
        "phase",
        "principal",
        "sends_untouched",
        "was_ended_by_peer",
    )

    def __init__(
        self,
        around: Surroundings,
        listener: str,
        dispatch: Dispatch,
        *,
        is_privileged: bool = False,
        phase: ConnectionPhase = ConnectionPhase.READY,
        secured_phase: ConnectionPhase = ConnectionPhase.READY,
        principal_of: Callable[[bytes], str] | None = None,
    ) -> None:
        """One that begins with a TLS handshake goes on in `secured_phase`; `principal_of` tells whom a certificate
        names, and raises `ValueError` for those who are nobody here."""
        self.id = next(around.ids)
        self.listener = listener
        #: Who takes its requests; each listener has its own.
        self.dispatch = dispatch
        #: Of nodes of the cluster: served first, and never made to wait for clients.
        self.is_privileged = is_privileged
        self.peer_host = ""
        self.peer_port = 0
        #: Changes by the table in `phases` alone. The router asks it what may be asked.
        self.phase = phase
        self.principal = ANONYMOUS
        #: Whether a delegation token stands in for the principal, who then may not ask for others.
        self.is_token_authenticated = False
        self._secured_phase = secured_phase
        self._principal_of = principal_of
        #: Name and version of the client's library, as ApiVersions tells them.
        self.client_software = ("unknown", "unknown")
        #: What the request in process was, and its answer, while the request log is on.
        self.captured: CapturedRequest | None = None
        #: Whether responses may hold memory that only the kernel should look at.
        self.sends_untouched = False
        self.active_at_s = 0.0
        self._around = around
        self._loop = around.loop
        self._request_channel = around.request_channel
        #: What its requests take of the memory of all.
        self.memory = around.cluster_memory if is_privileged else around.memory
        self._answers = around.cluster_answers if is_privileged else around.answers
        self._small = self.memory.small
        self._idle = around.idle
        self._receiver = FrameReceiver(around.scratch, self._max_frame_bytes())
        self._transport = cast(asyncio.Transport, None)
        #: Whole frames that arrived while the connection was muted.
        self._ahead: deque[bytearray] = deque()
        self._ahead_bytes = 0
        #: The size of the request in process, which is charged to the share of its size.
        self._frame_bytes = 0
        #: What is charged for the frame that is being received: to the share of its size, or for its beginning alone
        #: to that of the small ones.
        self._partial_share = self._small
        self._partial_bytes = 0
        #: A small response that leaves at the end of this turn. Until then its request is in process.
        self._answer: bytes | None = None
        self._mutes = _NOT_ADMITTED
        self._pauses = 0
        #: Whether room was taken for the response that is being made.
        self._has_room = False
        self._is_parked = False
        self._is_half_closed = False
        #: Whether the peer, and not we, wanted it to end; known to callbacks of `on_close`.
        self.was_ended_by_peer = False
        self._has_arrived = False
        #: Why the connection closes once what was asked is answered.
        self._ending: str | None = None
        self._throttle_timer: asyncio.TimerHandle | None = None
        self._throttle: ThrottledWait | None = None
        self._unsent_seen_bytes = 0
        self._close_callbacks: dict[object, Callable[[], object]] = {}

    # ---- for those who answer requests

    @property
    def is_closed(self) -> bool:
        return self.phase is _CLOSED

    @property
    def peer(self) -> str:
        return address_text(self.peer_host, self.peer_port)

    def respond(self, parts: Sequence[Buffer]) -> None:
        """Send the response to the request in process; its size is put in front here.

        The parts must not change before they have left. On a closed connection nothing is sent.
        """
        if self.phase is _CLOSED:
            self._give_back()
            return
        check(self._mutes & _IN_PROCESS and self._answer is None, "a response without a request in process")
        size_bytes = sum(map(len, parts))
        if not 0 < size_bytes <= JOINED_BYTES:
            self.response_is_ready(size_bytes + SIZE_BYTES)
            self._transport.writelines(frame_parts(parts))
            self._finish()
            return
        self.respond_with_frame(b"".join((size_bytes.to_bytes(SIZE_BYTES, "big"), *parts)))

    def respond_with_frame(self, frame: bytes) -> None:
        """Send a small response that has its size in front already."""
        if self.phase is _CLOSED:
            self._give_back()
            return
        check(self._mutes & _IN_PROCESS and self._answer is None, "a response without a request in process")
        self._answer = frame
        self.response_is_ready(len(frame))
        if self.captured is not None:
            self.captured.answer = frame
        if not self._request_channel.send_later(self):
            self.send_answer()

    def send_answer(self) -> None:
        """Send the response that was kept back until the end of the turn, unless it has left meanwhile."""
        answer, self._answer = self._answer, None
        if answer is None:
            return
        if self.phase is _CLOSED:
            self._give_back()
            return
        self._transport.write(answer)
        self._finish()

    def capture(self, frame: bytearray) -> None:
        """Keep what is asked, unless that is much, and what will be answered: until somebody takes it."""
        self.captured = CapturedRequest(bytes(frame) if len(frame) <= _CAPTURED_BYTES else None)

    def finish_without_response(self) -> None:
        """The request in process gets no answer: the peer said that it wants none."""
        if self.phase is _CLOSED:
            self._give_back()
            return
        check(self._mutes & _IN_PROCESS and self._answer is None, "a request was finished that is not in process")
        self.response_is_ready(0)
        self._finish()

    def release_frame(self) -> None:
        """The answer to the request in process takes longer, but its frame is not needed for that any more.

        What the frame took of the memory for requests is free for others. The caller holds no view into it.
        """
        size_bytes, self._frame_bytes = self._frame_bytes, 0
        if size_bytes:
            self.memory.give_back(self, self.memory.share_of(size_bytes), size_bytes)

    def expect_response(self, size_bytes: int) -> None:
        """A large response to the request in process is being made: it counts as sent, so that others make less."""
        if self._mutes & _IN_PROCESS and size_bytes:
            self._has_room = True
            self._answers.expect(self, size_bytes)

    def ask_room(self, size_bytes: int, granted: Callable[[], None]) -> bool:
        """The response to the request in process will take about this much memory: whether there is room now.

        If not, `granted` is called in a later turn of the loop: when there is room, in the order of asking, or when the
        connection has ended (`is_closed` tells; the request is to be finished all the same). Room is asked for once per
        request. It is held until `respond`, `finish_without_response` or `close`; then what the peer has not taken of
        the response counts in its place. Raises `AnswerTooLargeError` if there never can be so much.
        """
        if self.phase is _CLOSED:
            self._loop.call_soon(granted)
            return False
        check(self._mutes & _IN_PROCESS, "room was asked for without a request in process")
        has_room = self._answers.ask(self, size_bytes, granted)
        self._has_room = True
        return has_room

    def park(self, give_up: Callable[[], object]) -> Callable[[], None]:
        """The request in process waits for what others do; `give_up` is called if its client is gone before that.

        What is returned is to be called when the wait is over. A client that waits is silent: its connection may be
        closed for being idle, and ends when it shuts down its side. Neither happens to a request that we work on.
        """
        forget = self.on_close(give_up)
        if self.phase is not _CLOSED:
            self._is_parked = True
            self._idle.touch(self)
            if self._is_half_closed:
                self.close("the peer ended it")

        def go_on() -> None:
            self._is_parked = False
            forget()

        return go_on

    def go_on_later(self, slice_of_work: Callable[[], None]) -> None:
        """Have the work on the request in process go on when others had their turn; also if the peer is gone then."""
        self._request_channel.go_on_later(self, slice_of_work)

    def mute_for(self, throttle_ms: int) -> None:
        """Take up no request for a while after the one in process. To be called before `respond`."""
        if self.phase is _CLOSED or throttle_ms <= 0:
            return
        self.throttle_time_ms = throttle_ms
        now_s = self._loop.time()
        end_s = now_s + throttle_ms / 1000
        if self._throttle is None:
            self._throttle = self._around.throttled.begin(self.principal, self.client_id, now_s, end_s)
        elif self._throttle.until_s >= end_s:
            return
        self._throttle.until_s = end_s
        if self._throttle_timer is not None:
            self._throttle_timer.cancel()
        self._mutes |= _THROTTLED
        self._throttle_timer = self._loop.call_later(throttle_ms / 1000, self._unthrottle)

    def close(self, reason: str | None = None) -> None:
        """Close; a response that was handed over before still leaves first. The request in process is done with."""
        self.send_answer()
        if self.phase is _CLOSED:
            self._give_back()
            return
        if self._mutes & _SENDING:
            self.close_after_response(reason or "it was to be closed")
            return
        self._mutes &= ~_IN_PROCESS
        self._shut(reason)
        self._transport.close()

    def abort(self, reason: str) -> None:
        """Close at once, whatever is left to send."""
        if self.phase is not _CLOSED:
            self._shut(reason)
            self._transport.abort()

    def close_after_response(self, reason: str) -> None:
        """Close once the request in process, if any, was answered; take up none of those behind it."""
        self._drop_ahead()
        self._end(reason)

    def on_close(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Have `callback` called when the connection has ended, whoever ended it; what is returned undoes this."""
        if self.phase is _CLOSED:
            self._loop.call_soon(callback)
            return lambda: None
        token = object()
        self._close_callbacks[token] = callback
        return lambda: cast(None, self._close_callbacks.pop(token, None))

    def become_ready(self, principal: str) -> None:
        """The peer has shown who it is: from now on it may send any request, of full size."""
        if self.phase is _CLOSED:
            return
        self.phase = self.phase.after(ConnectionEvent.AUTHENTICATED)
        self.principal = principal
        self.allowance = None
        self.limits_changed()

    # ---- for the TLS layer

    def secured(self, certificate: bytes | None) -> None:
        """The TLS handshake is done: with this certificate, if the peer has shown one."""
        if self.phase is not ConnectionPhase.HANDSHAKING:
            return
        try:
            principal = self._principal_of(certificate) if certificate and self._principal_of else ANONYMOUS
        except ValueError as problem:
            self._around.authentications.failed(self, str(problem))
            self.abort(f"it is nobody here: {problem}")
            return
        self.phase = self.phase.after(ConnectionEvent.SECURED)
        if self._secured_phase is ConnectionPhase.READY:
            self._around.authentications.succeeded()
            self.become_ready(principal)

    def not_secured(self, failure: TlsError) -> None:
        """The TLS handshake failed; the layer ends the connection."""
        if self.phase is ConnectionPhase.HANDSHAKING:
            self._around.authentications.failed(self, f"SSL handshake failed: {failure.text}")

    # ---- for the parts of a server

    @property
    def is_in_process(self) -> bool:
        """Whether a request waits for its turn or its answer."""
        return bool(self._mutes & _IN_PROCESS)

    @property
    def is_parked(self) -> bool:
        """Whether the request in process waits for what others do."""
        return self._is_parked

    def held_of(self, share: Share) -> int:
        """What its requests hold of one share."""
        held_bytes = self._partial_bytes if self._partial_share is share else 0
        if self._frame_bytes and self.memory.share_of(self._frame_bytes) is share:
            held_bytes += self._frame_bytes
        return held_bytes + self._ahead_bytes if share is self._small else held_bytes

    def standing(self) -> Standing | None:
        """How far the peer has come with what only it can bring to an end; None if it is our turn, or nobody's."""
        if self.phase is _CLOSED:
            return None
        if self._is_parked:
            return Standing(Doing.WAITING, 0, 0)
        if self._mutes & _IN_PROCESS:
            return None
        if self._mutes & _SENDING:
            return Standing(Doing.TAKING_ANSWER, 0, -self.unsent_bytes)
        if self._mutes or self._pauses or not self._receiver.announced_bytes:
            return None
        return Standing(Doing.SENDING_FRAME, self._receiver.announced_bytes, self.received_bytes)

    @property
    def received_bytes(self) -> int:
        """What is there of the frame that is being received."""
        return self._receiver.buffered_bytes

    @property
    def unsent_bytes(self) -> int:
        """What the peer has not taken of a response."""
        return self._transport.get_write_buffer_size()

    def is_idle(self) -> bool:
        """Whether it is the peer that lets time pass. Asked now and then: taking a response bit by bit is activity."""
        if self._is_parked:
            return True
        if self._mutes & _IN_PROCESS or self._pauses & (_NO_MEMORY | _HELD_BACK):
            return False
        if self._mutes & _SENDING:
            unsent_bytes = self.unsent_bytes
            taken_bytes = self._unsent_seen_bytes - unsent_bytes
            self._unsent_seen_bytes = unsent_bytes
            return taken_bytes < PROGRESS_BYTES
        return not (self._mutes & _THROTTLED and self._ahead)

    def admit(self) -> None:
        """There is a place for it: what it asked so far is taken up."""
        self._resume(_NO_PLACE)
        self._unmute(_NOT_ADMITTED)

    def hold_back(self) -> None:
        """Read nothing until `read_on`: too many requests wait."""
        if self._frame_bytes <= SMALL_FRAME_BYTES:
            self._pause(_HELD_BACK)

    def read_on(self) -> None:
        self._resume(_HELD_BACK)

    def memory_granted(self, more_bytes: int) -> None:
        self._charge(more_bytes)
        self._resume(_NO_MEMORY)

    def limits_changed(self) -> None:
        self._receiver.max_frame_bytes = self._max_frame_bytes()

    # ---- for the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # Zero, so that the loop tells when the very last byte of a response has left.
        self._transport.set_write_buffer_limits(high=0)
        peername = transport.get_extra_info("peername")
        if peername:
            self.peer_host, self.peer_port = peername[0], peername[1]
        self.sends_untouched = sends_untouched(transport)
        tune(transport)
        self._around.connections[self.id] = self
        created = self._around.created
        created[self.listener] = created.get(self.listener, 0) + 1
        self._idle.add(self)
        refusal = self._around.admission.arrive(self)
        if refusal is not None:
            self.abort(refusal)
            return
        self._has_arrived = True
        if self.phase is ConnectionPhase.HANDSHAKING and self._mutes & _NOT_ADMITTED:
            # A handshake costs more than a few frames that are kept: it begins when there is a place.
            self._pause(_NO_PLACE)

    def get_buffer(self, sizehint: int) -> memoryview:
        small = self._small
        if small.held_bytes > small.tight_bytes and not self._receiver.announced_bytes:
            return self._receiver.get_buffer()[:TINY_FRAME_BYTES]
        return self._receiver.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        receiver = self._receiver
        frames = receiver.received(nbytes)
        if not self.phase.is_open:
            return
        if not frames:
            # With frames the activity is noted when they are answered.
            self._idle.touch(self)
        else:
            if self._partial_bytes:
                # It was charged whole as it arrived, and came alone.
                self._partial_bytes = 0
            else:
                self._small.held_bytes += len(frames[0]) if len(frames) == 1 else sum(map(len, frames))
            if self._mutes:
                self._put_ahead(frames)
            else:
                if len(frames) > 1:
                    self._put_ahead(frames[1:])
                frame = frames[0]
                self._mutes = _IN_PROCESS
                self._frame_bytes = len(frame)
                self._request_channel.submit(self, frame)
        if receiver.broken is not None:
            self._end(f"it sent what is no request: {receiver.broken}")
        elif self._mutes:
            if self._ahead or receiver.announced_bytes:
                self._bound_read_ahead()
        elif receiver.announced_bytes > TINY_FRAME_BYTES:
            self._ask_memory()

    def eof_received(self) -> bool:
        if self._is_parked or not (self._mutes & (_IN_PROCESS | _SENDING) or self._ahead):
            return False
        # What was asked before is still answered, as for those who send a request and shut down their side.
        self._is_half_closed = True
        self._begin_to_end("the peer ended it")
        return True

    def pause_writing(self) -> None:
        self._mutes |= _SENDING
        self._unsent_seen_bytes = self.unsent_bytes
        self._answers.sent(self, self._unsent_seen_bytes)

    def resume_writing(self) -> None:
        self._answers.taken(self)
        self.response_has_left()
        if self.phase is not _CLOSED:
            self._idle.touch(self)
            self._unmute(_SENDING)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.phase is not _CLOSED:
            self.was_ended_by_peer = self._is_half_closed or self._ending is None
            self._shut(f"the connection broke: {exc}" if exc else self._ending or "the peer ended it")
        del self._around.connections[self.id]
        closed = self._around.closed
        closed[self.listener] = closed.get(self.listener, 0) + 1
        if self._has_arrived:
            self._around.admission.leave(self)
        callbacks, self._close_callbacks = self._close_callbacks, {}
        for callback in callbacks.values():
            try:
                callback()
            except Exception:
                _log.exception("what was to happen at the end of %s failed", self)
        if not self._around.connections:
            self._around.on_empty()

    def __repr__(self) -> str:
        return f"<connection {self.id} from {self.peer} on {self.listener}>"

    # ---- inside

    def _max_frame_bytes(self) -> int:
        limits = self._around.limits
        if self.phase in (ConnectionPhase.HANDSHAKING, ConnectionPhase.AUTHENTICATING):
            return min(limits.sasl_server_max_receive_size, limits.socket_request_max_bytes)
        return limits.socket_request_max_bytes

    def _finish(self) -> None:
        self._mutes &= ~_IN_PROCESS
        if self._mutes & _SENDING:
            self.response_is_leaving()
        else:
            self.response_has_left()
        small, size_bytes = self._small, self._frame_bytes
        if size_bytes > SMALL_FRAME_BYTES or self._has_room or small.beginning or small.going_on:
            self._release_request()
        else:
            # The usual case, without a call.
            small.held_bytes -= size_bytes
            self._frame_bytes = 0
        self._idle.touch(self)
        if not self._mutes:
            self._take_next()

    def _take_next(self) -> None:
        """The connection is no longer muted: hand over what arrived meanwhile, or read on."""
        if self._ahead:
            frame = self._ahead.popleft()
            self._frame_bytes = len(frame)
            self._ahead_bytes -= self._frame_bytes
            self._mutes = _IN_PROCESS
            self._request_channel.submit(self, frame)
        elif self._ending is not None:
            self.close(self._ending)
        else:
            if self._receiver.announced_bytes > TINY_FRAME_BYTES:
                self._ask_memory()
            if self._pauses & _AHEAD:
                self._resume(_AHEAD)

    # What arrives, and the memory for it

    def _put_ahead(self, frames: list[bytearray]) -> None:
        self._ahead.extend(frames)
        self._ahead_bytes += sum(map(len, frames))

    def _drop_ahead(self) -> None:
        self._ahead.clear()
        if self._ahead_bytes:
            ahead_bytes, self._ahead_bytes = self._ahead_bytes, 0
            self.memory.give_back(self, self._small, ahead_bytes)

    def _bound_read_ahead(self) -> None:
        receiver, small = self._receiver, self._small
        announced_bytes = receiver.announced_bytes
        if announced_bytes > SMALL_FRAME_BYTES:
            # It gets its memory when its turn has come.
            self._charge_beginning()
            self._pause(_AHEAD)
            return
        if announced_bytes > TINY_FRAME_BYTES:
            self._ask_memory()
        allowed_bytes = READ_AHEAD_BYTES if small.held_bytes <= small.tight_bytes else 0
        if receiver.buffered_bytes + self._ahead_bytes > allowed_bytes:
            self._pause(_AHEAD)

    def _ask_memory(self) -> None:
        """See to it that there is memory for what arrives next of a frame; until there is, read nothing."""
        if self._pauses & _NO_MEMORY:
            return
        receiver = self._receiver
        announced_bytes, received_bytes = receiver.announced_bytes, receiver.buffered_bytes
        share = self.memory.share_of(announced_bytes)
        if self._partial_share is not share or not self._partial_bytes:
            more_bytes = min(announced_bytes, received_bytes + ORDINARY_FRAME_BYTES)
        elif received_bytes < self._partial_bytes:
            return
        else:
            more_bytes = min(announced_bytes - received_bytes, ORDINARY_FRAME_BYTES)
        if self.memory.ask(self, share, more_bytes):
            self._charge(more_bytes)
        else:
            self._charge_beginning()
            self._pause(_NO_MEMORY)

    def _charge(self, more_bytes: int) -> None:
        """Take note of memory that was granted for the frame that is being received."""
        share = self.memory.share_of(self._receiver.announced_bytes)
        if self._partial_share is share:
            self._partial_bytes += more_bytes
            return
        beginning_bytes, self._partial_bytes = self._partial_bytes, more_bytes
        self._partial_share = share
        if beginning_bytes:
            self.memory.give_back(self, self._small, beginning_bytes)

    def _charge_beginning(self) -> None:
        """Count what was read of a larger frame before there was memory for it."""
        if self._receiver.announced_bytes > SMALL_FRAME_BYTES and not self._partial_bytes:
            self._partial_share = self._small
            self._partial_bytes = self._receiver.buffered_bytes
            self._small.held_bytes += self._partial_bytes

    def _release_request(self) -> None:
        """The request in process is done with."""
        self.release_frame()
        if self._has_room:
            self._has_room = False
            self._answers.made(self)

    def _end(self, reason: str) -> None:
        """Read nothing more; close when what was asked is answered and the answers have left."""
        if self.phase is _CLOSED:
            return
        self._pause(_AHEAD)
        self._begin_to_end(reason)
        if not self._mutes & (_IN_PROCESS | _SENDING) and not self._ahead:
            self.close(reason)

    def _begin_to_end(self, reason: str) -> None:
        if self.phase.is_open:
            self.phase = self.phase.after(ConnectionEvent.ENDING)
        self._ending = reason

    def _unthrottle(self) -> None:
        self._end_throttle()
        self._unmute(_THROTTLED)

    def _end_throttle(self) -> None:
        if self._throttle_timer is not None:
            self._throttle_timer.cancel()
            self._throttle_timer = None
        if self._throttle is not None:
            self._around.throttled.end(self._throttle, self._loop.time())
            self._throttle = None

    def _unmute(self, why: int) -> None:
        self._mutes &= ~why
        if not self._mutes:
            self._take_next()

    def _pause(self, why: int) -> None:
        if not self._pauses and self.phase.is_open:
            self._transport.pause_reading()
        self._pauses |= why

    def _resume(self, why: int) -> None:
        if self._pauses & why:
            self._pauses &= ~why
            if not self._pauses and self.phase.is_open:
                self._transport.resume_reading()

    def _shut(self, reason: str | None) -> None:
        """Let go of everything; the transport is closed by the caller, and tells when it is done."""
        self.phase = self.phase.after(ConnectionEvent.CLOSED)
        _log.debug("%r ends: %s", self, reason)
        self.response_has_left()
        self._idle.remove(self)
        self._request_channel.forget(self)
        self.memory.stop_waiting(self)
        self._drop_ahead()
        if self._partial_bytes:
            partial_bytes, self._partial_bytes = self._partial_bytes, 0
            self.memory.give_back(self, self._partial_share, partial_bytes)
        if not self._mutes & _IN_PROCESS:
            self._give_back()
        self._answers.stop_waiting(self)
        self._answers.taken(self)
        self._end_throttle()

    def _give_back(self) -> None:
        """The connection has ended, and nobody works on its request any more."""
        self._mutes &= ~_IN_PROCESS
        self._release_request()
