"""One accepted connection: frames in, responses out, one request at a time.

A connection is *muted* from the moment a request is handed over until it was answered, the answer has left our buffers
and any throttling is over. What arrives meanwhile is kept up to a small bound, then the socket is not read. So answers
keep the order of the questions, and a peer that does not read its answers cannot ask more.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, cast

from barnabas.base.errors import check
from barnabas.net.admission import Admission
from barnabas.net.errors import address_text
from barnabas.net.idle import IdleWatch
from barnabas.net.lanes import Lanes
from barnabas.net.limits import JOINED_BYTES, PROGRESS_BYTES, READ_AHEAD_BYTES, SMALL_FRAME_BYTES, ServerLimits
from barnabas.net.memory import MemoryBudget
from barnabas.net.sockets import tune
from barnabas.wire.compiler import Buffer
from barnabas.wire.frames import SIZE_BYTES, FrameReceiver, frame_parts

_log = logging.getLogger("barnabas.net")

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


class Phase(Enum):
    """Before `READY`, frames are smaller and belong to whoever authenticates; the dispatcher tells the two apart."""

    AUTHENTICATING = "authenticating"
    READY = "ready"


@dataclass(slots=True)
class Surroundings:
    """What the connections of a server share."""

    loop: asyncio.AbstractEventLoop
    limits: ServerLimits
    lanes: Lanes
    memory: MemoryBudget
    #: Of nodes of the cluster: what clients hold must not keep them waiting.
    cluster_memory: MemoryBudget
    idle: IdleWatch
    admission: Admission
    #: Where bytes arrive before it is known what they belong to. Emptied before anything else happens.
    scratch: bytearray
    #: All open connections, by id.
    connections: dict[int, Connection]
    on_empty: Callable[[], None]
    ids: itertools.count[int]


class Connection(asyncio.BufferedProtocol):
    """A peer's connection to one of our listeners.

    Guarantees: one request at a time is handed over, in the order of arrival; the next one only after `respond` or
    `finish_without_response`, and after the bytes of the response have left. Callbacks of `on_close` run exactly once.
    """

    __slots__ = (
        "_admission",
        "_ahead",
        "_answer",
        "_around",
        "_close_callbacks",
        "_ending",
        "_has_arrived",
        "_holds_memory",
        "_idle",
        "_is_half_closed",
        "_is_parked",
        "_lanes",
        "_loop",
        "_memory",
        "_mutes",
        "_pauses",
        "_receiver",
        "_throttle_timer",
        "_transport",
        "_unsent_seen_bytes",
        "active_at_s",
        "client_software",
        "id",
        "is_closed",
        "is_privileged",
        "listener",
        "peer_host",
        "peer_port",
        "phase",
        "principal",
    )

    def __init__(self, around: Surroundings, listener: str, *, is_privileged: bool = False, phase: Phase = Phase.READY):
        self.id = next(around.ids)
        self.listener = listener
        #: Of nodes of the cluster: served first, and never made to wait for clients.
        self.is_privileged = is_privileged
        self.peer_host = ""
        self.peer_port = 0
        self.phase = phase
        self.principal = ANONYMOUS
        #: Name and version of the client's library, as ApiVersions tells them.
        self.client_software = ("unknown", "unknown")
        self.is_closed = False
        self.active_at_s = 0.0
        self._around = around
        self._loop = around.loop
        self._lanes = around.lanes
        self._memory = around.cluster_memory if is_privileged else around.memory
        self._idle = around.idle
        self._receiver = FrameReceiver(around.scratch, self._max_frame_bytes())
        self._transport = cast(asyncio.Transport, None)
        #: Whole frames that arrived while the connection was muted.
        self._ahead: deque[bytearray] = deque()
        #: A small response that leaves at the end of this turn of the lanes. Until then its request is in process.
        self._answer: bytes | None = None
        self._mutes = _NOT_ADMITTED
        self._pauses = 0
        #: For a large request, or for the response that is being made to it.
        self._holds_memory = False
        self._is_parked = False
        self._is_half_closed = False
        self._has_arrived = False
        #: Why the connection closes once what was asked is answered.
        self._ending: str | None = None
        self._throttle_timer: asyncio.TimerHandle | None = None
        self._unsent_seen_bytes = 0
        self._close_callbacks: dict[object, Callable[[], object]] = {}

    # ---- for those who answer requests

    @property
    def peer(self) -> str:
        return address_text(self.peer_host, self.peer_port)

    def respond(self, parts: Sequence[Buffer]) -> None:
        """Send the response to the request in process; its size is put in front here.

        The parts must not change before they have left. On a closed connection nothing is sent.
        """
        if self.is_closed:
            self._give_back()
            return
        check(self._mutes & _IN_PROCESS and self._answer is None, "a response without a request in process")
        size_bytes = sum(map(len, parts))
        if not 0 < size_bytes <= JOINED_BYTES:
            self._transport.writelines(frame_parts(parts))
            self._finish()
            return
        self._answer = b"".join((size_bytes.to_bytes(SIZE_BYTES, "big"), *parts))
        if not self._lanes.send_later(self):
            self.send_answer()

    def send_answer(self) -> None:
        """Send the response that was kept back until the end of the turn, unless it has left meanwhile."""
        answer, self._answer = self._answer, None
        if answer is None:
            return
        if self.is_closed:
            self._give_back()
            return
        self._transport.write(answer)
        self._finish()

    def finish_without_response(self) -> None:
        """The request in process gets no answer: the peer said that it wants none."""
        if self.is_closed:
            self._give_back()
            return
        check(self._mutes & _IN_PROCESS and self._answer is None, "a request was finished that is not in process")
        self._finish()

    def expect_response(self, size_bytes: int) -> None:
        """A large response to the request in process is being made: it counts as sent, so that others make less."""
        if self._mutes & _IN_PROCESS and size_bytes:
            self._holds_memory = True
            self._memory.expect_response(self, size_bytes)

    def park(self, give_up: Callable[[], object]) -> Callable[[], None]:
        """The request in process waits for what others do; `give_up` is called if its client is gone before that.

        What is returned is to be called when the wait is over. A client that waits is silent: its connection may be
        closed for being idle, and ends when it shuts down its side. Neither happens to a request that we work on.
        """
        forget = self.on_close(give_up)
        if not self.is_closed:
            self._is_parked = True
            self._idle.touch(self)
            if self._is_half_closed:
                self.close("the peer ended it")

        def go_on() -> None:
            self._is_parked = False
            forget()

        return go_on

    def mute_for(self, throttle_ms: int) -> None:
        """Take up no request for a while after the one in process. To be called before `respond`."""
        if self.is_closed or throttle_ms <= 0:
            return
        end_s = self._loop.time() + throttle_ms / 1000
        if self._throttle_timer is not None:
            if self._throttle_timer.when() >= end_s:
                return
            self._throttle_timer.cancel()
        self._mutes |= _THROTTLED
        self._throttle_timer = self._loop.call_later(throttle_ms / 1000, self._unthrottle)

    def close(self, reason: str | None = None) -> None:
        """Close; a response that was handed over before still leaves first. The request in process is done with."""
        self.send_answer()
        if self.is_closed:
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
        if not self.is_closed:
            self._shut(reason)
            self._transport.abort()

    def close_after_response(self, reason: str) -> None:
        """Close once the request in process, if any, was answered; take up none of those behind it."""
        self._ahead.clear()
        self._end(reason)

    def on_close(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Have `callback` called when the connection has ended, whoever ended it; what is returned undoes this."""
        if self.is_closed:
            self._loop.call_soon(callback)
            return lambda: None
        token = object()
        self._close_callbacks[token] = callback
        return lambda: cast(None, self._close_callbacks.pop(token, None))

    def become_ready(self, principal: str) -> None:
        """The peer has shown who it is: from now on it may send requests of full size."""
        self.phase = Phase.READY
        self.principal = principal
        self.limits_changed()

    # ---- for the parts of a server

    @property
    def is_in_process(self) -> bool:
        """Whether a request waits for its turn or its answer."""
        return bool(self._mutes & _IN_PROCESS)

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
        self._unmute(_NOT_ADMITTED)

    def hold_back(self) -> None:
        """Read nothing until `read_on`: too many requests wait."""
        if not self._holds_memory:
            self._pause(_HELD_BACK)

    def read_on(self) -> None:
        self._resume(_HELD_BACK)

    def memory_granted(self) -> None:
        self._holds_memory = True
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
        tune(transport)
        self._around.connections[self.id] = self
        self._idle.add(self)
        refusal = self._around.admission.arrive(self)
        if refusal is None:
            self._has_arrived = True
        else:
            self.abort(refusal)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receiver.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        receiver = self._receiver
        frames = receiver.received(nbytes)
        if self._ending is not None or self.is_closed:
            return
        if not frames:
            # With frames the activity is noted when they are answered.
            self._idle.touch(self)
        elif self._mutes:
            self._ahead.extend(frames)
        else:
            if len(frames) > 1:
                self._ahead.extend(frames[1:])
            self._mutes = _IN_PROCESS
            self._lanes.submit(self, frames[0])
        if receiver.broken is not None:
            self._end(f"it sent what is no request: {receiver.broken}")
        elif self._mutes:
            if self._ahead or receiver.announced_bytes:
                self._bound_read_ahead()
        elif receiver.announced_bytes > SMALL_FRAME_BYTES and not self._holds_memory:
            self._reserve()

    def eof_received(self) -> bool:
        if self._is_parked or not (self._mutes & (_IN_PROCESS | _SENDING) or self._ahead):
            return False
        # What was asked before is still answered, as for those who send a request and shut down their side.
        self._is_half_closed = True
        self._ending = "the peer ended it"
        return True

    def pause_writing(self) -> None:
        self._mutes |= _SENDING
        self._unsent_seen_bytes = self.unsent_bytes
        self._memory.outgoing_began(self, self._unsent_seen_bytes)

    def resume_writing(self) -> None:
        self._memory.outgoing_ended(self)
        if not self.is_closed:
            self._idle.touch(self)
            self._unmute(_SENDING)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.is_closed:
            self._shut(f"the connection broke: {exc}" if exc else self._ending or "the peer ended it")
        del self._around.connections[self.id]
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
        if self.phase is Phase.AUTHENTICATING:
            return min(limits.sasl_server_max_receive_size, limits.socket_request_max_bytes)
        return limits.socket_request_max_bytes

    def _finish(self) -> None:
        self._mutes &= ~_IN_PROCESS
        if self._holds_memory:
            self._holds_memory = False
            self._memory.release(self)
        self._idle.touch(self)
        if not self._mutes:
            self._take_next()

    def _take_next(self) -> None:
        """The connection is no longer muted: hand over what arrived meanwhile, or read on."""
        if self._ahead:
            self._mutes = _IN_PROCESS
            self._lanes.submit(self, self._ahead.popleft())
        elif self._ending is not None:
            self.close(self._ending)
        elif self._receiver.announced_bytes > SMALL_FRAME_BYTES and not self._holds_memory:
            self._reserve()
            self._resume(_AHEAD)
        elif self._pauses & _AHEAD:
            self._resume(_AHEAD)

    def _bound_read_ahead(self) -> None:
        receiver = self._receiver
        if receiver.announced_bytes > SMALL_FRAME_BYTES:
            # Its memory is reserved when its turn has come.
            self._pause(_AHEAD)
        elif receiver.buffered_bytes + sum(map(len, self._ahead)) > READ_AHEAD_BYTES:
            self._pause(_AHEAD)

    def _reserve(self) -> None:
        if self._memory.reserve(self, self._receiver.announced_bytes):
            self._holds_memory = True
        else:
            self._pause(_NO_MEMORY)

    def _end(self, reason: str) -> None:
        """Read nothing more; close when what was asked is answered and the answers have left."""
        if self.is_closed:
            return
        self._pause(_AHEAD)
        self._ending = reason
        if not self._mutes & (_IN_PROCESS | _SENDING) and not self._ahead:
            self.close(reason)

    def _unthrottle(self) -> None:
        self._throttle_timer = None
        self._unmute(_THROTTLED)

    def _unmute(self, why: int) -> None:
        self._mutes &= ~why
        if not self._mutes:
            self._take_next()

    def _pause(self, why: int) -> None:
        if not self._pauses and not self.is_closed and self._ending is None:
            self._transport.pause_reading()
        self._pauses |= why

    def _resume(self, why: int) -> None:
        if self._pauses & why:
            self._pauses &= ~why
            if not self._pauses and not self.is_closed and self._ending is None:
                self._transport.resume_reading()

    def _shut(self, reason: str | None) -> None:
        """Let go of everything; the transport is closed by the caller, and tells when it is done."""
        self.is_closed = True
        _log.debug("%r ends: %s", self, reason)
        self._ahead.clear()
        self._idle.remove(self)
        self._lanes.forget(self)
        if not self._mutes & _IN_PROCESS:
            self._give_back()
        self._memory.outgoing_ended(self)
        if self._throttle_timer is not None:
            self._throttle_timer.cancel()
            self._throttle_timer = None

    def _give_back(self) -> None:
        """The connection has ended, and nobody works on its request any more."""
        self._mutes &= ~_IN_PROCESS
        self._holds_memory = False
        self._memory.release(self)
