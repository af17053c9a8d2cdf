"""What both ends of a connection between replicas need: limits, writing, and complaints that do not go on forever."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from barnabas.base.foreign_text import one_line
from barnabas.base.log_context import logger
from barnabas.wire.apis import ApiKey
from barnabas.wire.compiler import Buffer

_log = logger("barnabas.raft")

_KIB: Final = 1024
_MIB: Final = 1024 * _KIB
#: Up to this size a copy costs less than handing over many small buffers.
_JOINED_BYTES: Final = 16 * _KIB
_MAX_COMPLAINT_BYTES: Final = 500
_COMPLAINTS_AT_ONCE: Final = 10
_COMPLAINTS_INTERVAL_S: Final = 60.0

#: What replicas ask each other, and what tools ask of the quorum.
RAFT_APIS: Final = (
    ApiKey.FETCH,
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.UPDATE_RAFT_VOTER,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketOptions:
    """Sizes and patience of a `SocketTransport`.

    - `max_request_bytes`, `max_response_bytes`: larger frames of others end the connection.
    - `max_unanswered_requests`: whoever has so many of them on one connection is not read from.
    - `connection_setup_timeout_ms`: for each address of a host, and then for its answer to ApiVersions.
    - `connections_max_idle_ms`: accepted connections that were silent so long are closed.
    - `in_use_ms`: a connection on which something was asked so recently, or is in flight, is in use; if the peer
      closes it, it is opened again without being asked for.
    - `stop_timeout_ms`: what was written before the stop has so long to leave.
    """

    max_request_bytes: int = 8 * _MIB + 64 * _KIB
    max_response_bytes: int = 100 * _MIB
    max_unanswered_requests: int = 16
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    connection_setup_timeout_ms: int = 2_000
    connections_max_idle_ms: int = 600_000
    in_use_ms: int = 10_000
    stop_timeout_ms: int = 1_000


class OpenConnection(Protocol):
    """A connection of either kind, as seen by who ends it."""

    def close(self) -> None:
        """End it once what was written has left."""
        ...

    def abort(self) -> None: ...


class Complaints:
    """Says why a connection was ended: ten times a minute at most, and then how often it was not said."""

    __slots__ = ("_count", "_loop", "_since_s")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._since_s = loop.time()
        self._count = 0

    def say(self, peer: str, reason: str) -> None:
        now_s = self._loop.time()
        if now_s - self._since_s >= _COMPLAINTS_INTERVAL_S:
            left_out = self._count - _COMPLAINTS_AT_ONCE
            if left_out > 0:
                _log.warning("%d more connections were ended for what came on them", left_out)
            self._since_s, self._count = now_s, 0
        self._count += 1
        if self._count <= _COMPLAINTS_AT_ONCE:
            _log.warning("the connection with %s was ended: %s", peer, one_line(reason, _MAX_COMPLAINT_BYTES))


@dataclass(slots=True)
class SocketSurroundings:
    """What the connections of a transport share."""

    loop: asyncio.AbstractEventLoop
    options: SocketOptions
    complaints: Complaints
    #: All that are open, in the order in which they were opened.
    connections: dict[OpenConnection, None] = field(default_factory=dict)
    is_stopped: bool = False
    #: Done when the last connection is gone, once somebody waits for that.
    all_gone: asyncio.Future[None] | None = None

    def gone(self, connection: OpenConnection) -> None:
        self.connections.pop(connection, None)
        if not self.connections and self.all_gone is not None and not self.all_gone.done():
            self.all_gone.set_result(None)


class FrameWriter:
    """Writes frames to a connection: at once, or those that come until `flush` together."""

    __slots__ = ("_is_held", "_parts", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._parts: list[Buffer] = []
        self._is_held = False

    def put(self, parts: Sequence[Buffer], size_bytes: int) -> None:
        """The parts of one frame, which has so many bytes in all."""
        if not self._is_held and size_bytes <= _JOINED_BYTES and not self._parts:
            if not self._transport.is_closing():
                self._transport.write(b"".join(parts))
            return
        self._parts += parts
        if not self._is_held:
            self.flush()

    def hold(self) -> None:
        """More may come: the caller will `flush` before the turn is over."""
        self._is_held = True

    def flush(self) -> None:
        self._is_held = False
        if not self._parts:
            return
        parts, self._parts = self._parts, []
        if self._transport.is_closing():
            return
        if sum(map(len, parts)) <= _JOINED_BYTES:
            self._transport.write(b"".join(parts))
        else:
            self._transport.writelines(parts)
