"""Simulated connections: two pipes with bounded room, and at each end a transport as asyncio knows it.

What a transport was given lies first in its own buffer, as in a real process, and then, as far as there is room, in the
pipe, as in a kernel. The difference shows when the process dies: what is in the pipe still arrives.
"""

from __future__ import annotations

import asyncio
import errno
from asyncio import BufferedProtocol, TimerHandle
from collections import deque
from collections.abc import Iterable
from contextvars import Context
from typing import TYPE_CHECKING, Any

from barnabas.testing.sim.process import Process, current_process
from barnabas.testing.sim.trace import digest

if TYPE_CHECKING:
    from barnabas.testing.sim.network import Link, Network

__all__ = ["Pipe", "SimulatedTransport"]

HIGH_WATER_BYTES = 64 * 1024
STEP_S = 0.00001
"""Between two deliveries of what has already arrived, so that a long stream takes time and others get their turn."""


class Pipe:
    """One direction of a connection: bytes on their way, in order, from `sender` to `receiver`."""

    def __init__(self, network: Network, name: str, source: str, target: str) -> None:
        self.network = network
        self.name = name
        self.source = source
        self.target = target
        self.sender: SimulatedTransport
        self.receiver: SimulatedTransport
        self.size_bytes = 0
        #: The receiving socket is gone; what still comes is answered with a reset, if there is a kernel to do so.
        self.is_detached = False
        #: When they arrive, what they hold, and its name in the trace.
        self._segments: deque[tuple[float, bytes, str]] = deque()
        self._last_arrival_s = 0.0
        self._end_s: float | None = None
        self._timer: TimerHandle | None = None
        self._patience: TimerHandle | None = None

    # The sending end

    def push(self, data: bytes | bytearray | memoryview) -> int:
        """Take in what there is room for; how much that was."""
        network = self.network
        link = network.link(self.source, self.target)
        room_bytes = link.window_bytes - self.size_bytes
        taken = bytes(data if len(data) <= room_bytes else memoryview(data)[: max(room_bytes, 0)])
        size_bytes = len(taken)
        if size_bytes:
            name = digest(taken)
            self._segments.append((self._arrival_s(link, size_bytes), taken, name))
            self.size_bytes += size_bytes
            network.trace("send", self.name, size_bytes, name)
            self._schedule()
            if network.is_reset_drawn(link):
                network.break_connection(self)
        return size_bytes

    def finish(self) -> None:
        """Nothing follows."""
        if self._end_s is None:
            self._end_s = self._arrival_s(self.network.link(self.source, self.target), 0)
            self._schedule()

    @property
    def is_finished(self) -> bool:
        return self._end_s is not None

    def drop(self, keep: int = 0) -> None:
        """Lose what is on its way, but for the first `keep` segments."""
        while len(self._segments) > keep:
            self.size_bytes -= len(self._segments.pop()[1])
        self._end_s = None

    def _arrival_s(self, link: Link, size_bytes: int) -> float:
        network = self.network
        arrival_s = network.loop.world_time() + network.draw_delay_over_s(link, size_bytes)
        if arrival_s > self._last_arrival_s:  # what is sent later never overtakes
            self._last_arrival_s = arrival_s
        return self._last_arrival_s

    @property
    def left_s(self) -> float:
        """How long until all has arrived that is on its way."""
        return max(0.0, self._last_arrival_s - self.network.loop.world_time()) if self._segments else 0.0

    # The receiving end

    @property
    def unread_bytes(self) -> int:
        """What has arrived and was not read."""
        now_s = self.network.loop.world_time()
        return sum(len(data) for arrival_s, data, _ in self._segments if arrival_s <= now_s)

    def segment_count(self) -> int:
        return len(self._segments)

    def wake(self) -> None:
        """Something changed: the receiver reads again, the network has healed, a host is back."""
        self._schedule()

    def _schedule(self) -> None:
        if self._timer is not None:
            return
        if self._segments:
            when_s = self._segments[0][0]
        elif self._end_s is not None:
            when_s = self._end_s
        else:
            return
        if not self.is_detached and not self.receiver.wants_data:
            return
        loop = self.network.loop
        soonest_s = loop.world_time() + STEP_S
        context = None if self.is_detached else self.receiver.context
        self._timer = loop.call_in_world(when_s if when_s > soonest_s else soonest_s, self._step, context=context)

    def detach(self) -> None:
        """The receiving socket is gone. Its timer ran in a process that may be dead, so another takes its place."""
        self.is_detached = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._schedule()

    def _step(self) -> None:
        self._timer = None
        network = self.network
        if network.is_cut(self.source, self.target):
            self._lose_patience()
            return  # `wake` comes when it heals
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        if self.is_detached:
            if self._segments:
                network.trace("answer with reset", self.name)
                self.drop()
                network.send_reset(self.target, self.sender)
            return
        if not self.receiver.wants_data:
            return
        if self._segments:
            self.receiver.receive(self)
            self.sender.room_is_there()
        elif self._end_s is not None and self._end_s <= network.loop.world_time():
            self._end_s = None
            network.trace("end", self.name)
            self.receiver.receive_end()
        self._schedule()

    def _lose_patience(self) -> None:
        """The sender's kernel sends again and again, and gives up one day."""
        if self._patience is None:
            self._patience = self.network.loop.call_later(
                self.network.retransmission_timeout_s, self._give_up, context=self.sender.context
            )

    def _give_up(self) -> None:
        self._patience = None
        if self.network.is_cut(self.source, self.target):
            self.network.trace("timed out", self.name)
            self.sender.fail(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))

    def take(self, limit_bytes: int) -> bytes:
        """Up to so many bytes of what has arrived, also from several writes: borders between those are not kept."""
        now_s = self.network.loop.world_time()
        pieces: list[bytes] = []
        name = ""
        segments = self._segments
        while segments and segments[0][0] <= now_s and limit_bytes:
            arrival_s, piece, name = segments.popleft()
            if len(piece) > limit_bytes:
                segments.appendleft((arrival_s, piece[limit_bytes:], ""))
                piece, name = piece[:limit_bytes], ""
            pieces.append(piece)
            limit_bytes -= len(piece)
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if len(pieces) != 1 or not name:  # else it is what was sent, which has its name
            name = digest(data)
        size_bytes = len(data)
        self.size_bytes -= size_bytes
        self.network.trace("receive", self.name, size_bytes, name)
        return data


class SimulatedTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(
        self,
        network: Network,
        context: Context,
        incoming: Pipe,
        outgoing: Pipe,
        sockname: tuple[str, int],
        peername: tuple[str, int],
    ) -> None:
        super().__init__({"sockname": sockname, "peername": peername})
        self.network = network
        self.context = context
        self.process: Process | None = context.get(current_process)
        self.incoming = incoming
        self.outgoing = outgoing
        incoming.receiver = self
        outgoing.sender = self
        self.on_gone: Any = None
        self._protocol: Any = None
        self._is_protocol_buffered = False
        self._early_error: OSError | None = None
        self._buffer: deque[bytes] = deque()
        self._buffered_bytes = 0
        self._high_bytes = HIGH_WATER_BYTES
        self._low_bytes = HIGH_WATER_BYTES // 4
        self._is_writing_paused = False
        self._is_reading_paused = False
        self._is_closing = False
        self._is_gone = False
        self._has_ended_writing = False
        self._has_seen_end = False

    # What the network calls

    def connect(self, protocol: Any) -> None:
        """Give the connection its protocol; runs in the process that owns this end."""
        if self._is_gone:
            return
        self.set_protocol(protocol)
        protocol.connection_made(self)
        self.incoming.wake()
        if self._early_error is not None:
            self.network.loop.call_soon(self.fail, self._early_error, context=self.context)

    @property
    def is_gone(self) -> bool:
        return self._is_gone

    @property
    def wants_data(self) -> bool:
        return (
            self._protocol is not None
            and not self._is_reading_paused
            and not self._is_closing
            and not self._is_gone
            and not self._has_seen_end
        )

    def receive(self, pipe: Pipe) -> None:
        limit_bytes = self.network.draw_segment_bytes()
        if self._is_protocol_buffered:
            room = memoryview(self._protocol.get_buffer(-1))
            room_bytes = len(room)
            if not room_bytes:
                raise RuntimeError("get_buffer() returned an empty buffer")
            data = pipe.take(limit_bytes if limit_bytes < room_bytes else room_bytes)
            size_bytes = len(data)
            room[:size_bytes] = data
            room.release()
            self._protocol.buffer_updated(size_bytes)
        else:
            self._protocol.data_received(pipe.take(limit_bytes))

    def receive_end(self) -> None:
        self._has_seen_end = True
        if not self._protocol.eof_received():
            self.close()

    def room_is_there(self) -> None:
        if self._buffer and not self._is_gone:
            self.network.loop.call_soon(self._flush, context=self.context)

    def fail(self, error: OSError) -> None:
        """The connection is broken; runs in the process that owns this end."""
        if self._protocol is None:
            # The kernel knows already; the process hears of it once it has taken the connection up.
            self._early_error = error
            return
        self._buffer.clear()
        self._buffered_bytes = 0
        self._is_closing = True
        self._lose(error)

    def vanish(self) -> None:
        """The process is dead: nothing more is called, and what the kernel does with the rest is up to the network."""
        self._is_gone = True
        self._is_closing = True
        self._buffer.clear()
        self._buffered_bytes = 0

    # The transport as asyncio knows it

    def is_closing(self) -> bool:
        return self._is_closing

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol
        self._is_protocol_buffered = isinstance(protocol, BufferedProtocol)

    def get_protocol(self) -> Any:
        return self._protocol

    def is_reading(self) -> bool:
        return not self._is_closing and not self._is_reading_paused

    def pause_reading(self) -> None:
        self._is_reading_paused = True

    def resume_reading(self) -> None:
        if self._is_reading_paused and not self._is_closing:
            self._is_reading_paused = False
            self.incoming.wake()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = HIGH_WATER_BYTES if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high}) must be >= low ({low}) must be >= 0")
        self._high_bytes, self._low_bytes = high, low
        self._maybe_pause_writing()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low_bytes, self._high_bytes

    def get_write_buffer_size(self) -> int:
        return self._buffered_bytes

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._has_ended_writing:
            raise RuntimeError("Cannot call write() after write_eof()")
        view = memoryview(data).cast("B") if len(data) else memoryview(b"")
        if not len(view) or self._is_gone or (self._is_closing and not self._buffer):
            return
        sent = 0 if self._buffer else self.outgoing.push(view)
        if sent < len(view):
            rest = bytes(view[sent:])  # a copy: the caller may reuse what it gave
            self._buffer.append(rest)
            self._buffered_bytes += len(rest)
            self._maybe_pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        if self._is_closing or self._has_ended_writing:
            return
        self._has_ended_writing = True
        if not self._buffer:
            self.outgoing.finish()

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        if not self._buffer:
            self.network.loop.call_soon(self._lose, None, context=self.context)

    def abort(self) -> None:
        self._buffer.clear()
        self._buffered_bytes = 0
        self._is_closing = True
        self.network.loop.call_soon(self._lose, None, True, context=self.context)

    def _flush(self) -> None:
        while self._buffer:
            data = self._buffer[0]
            sent = self.outgoing.push(data)
            self._buffered_bytes -= sent
            if sent < len(data):
                self._buffer[0] = data[sent:]
                break
            self._buffer.popleft()
        if self._is_writing_paused and self._buffered_bytes <= self._low_bytes:
            self._is_writing_paused = False
            self._protocol.resume_writing()
        if not self._buffer and not self._is_gone:
            if self._is_closing:
                self._lose(None)
            elif self._has_ended_writing:
                self.outgoing.finish()

    def _maybe_pause_writing(self) -> None:
        if self._buffered_bytes > self._high_bytes and not self._is_writing_paused:
            self._is_writing_paused = True
            self._protocol.pause_writing()

    def _lose(self, error: OSError | None, is_abort: bool = False) -> None:
        if self._is_gone:
            return
        self._is_gone = True
        self.network.forget(self, is_reset=is_abort or error is not None)
        if self._protocol is not None:
            self._protocol.connection_lost(error)
        if self.on_gone is not None:
            self.on_gone()
