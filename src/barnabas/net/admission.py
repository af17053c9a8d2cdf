"""Who may connect: limits per address, per listener and for the node, and the pace of new connections.

An address that has too many is refused at once. Where the node or a listener is full, or connections come too fast, the
new ones wait unread, as they would in the backlog of a socket that nobody accepts from.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from barnabas.base.log_context import logger
from barnabas.net.limits import ServerLimits

if TYPE_CHECKING:
    from barnabas.net.connection import Connection

_log = logger("barnabas.net")

#: After a quiet time the connections of this many seconds may come at once.
_BURST_S: Final = 1.0
_LOG_INTERVAL_S: Final = 1.0


class Gate:
    """One limit of places and one of pace."""

    __slots__ = ("_next_at_s", "count")

    def __init__(self) -> None:
        self.count = 0
        self._next_at_s = -math.inf

    def wait_s(self, now_s: float, max_connections: int, rate: int) -> float:
        """How long the next one must wait; infinity when only somebody's leaving helps."""
        if self.count >= max_connections or not rate:
            return math.inf
        return max(0.0, self._next_at_s - now_s)

    def enter(self, now_s: float, rate: int) -> None:
        self.count += 1
        self._next_at_s = max(self._next_at_s, now_s - _BURST_S) + (1 / rate if rate else 0)


class Admission:
    """Lets connections in, makes them wait, or refuses them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: ServerLimits, make_room: Callable[[], None]) -> None:
        self._loop = loop
        self._limits = limits
        #: Called when a privileged connection takes a place that the node does not have.
        self._make_room = make_room
        self._node = Gate()
        self._listeners: dict[str, Gate] = {}
        self._waiting: dict[str, deque[Connection]] = {}
        self._waiting_count = 0
        self._by_address: dict[str, int] = {}
        self._inside: set[Connection] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._refused_count = 0
        self._logged_at_s = -math.inf
        self._is_closed = False

    @property
    def admitted_count(self) -> int:
        return len(self._inside)

    @property
    def waiting_count(self) -> int:
        return self._waiting_count

    def set_limits(self, limits: ServerLimits) -> None:
        self._limits = limits
        self.admit_waiting()

    def arrive(self, connection: Connection) -> str | None:
        """Take a new connection: admit it now, later, or say why not."""
        if self._is_closed:
            return "the node stops"
        address = connection.peer_host
        count = self._by_address.get(address, 0)
        allowed = self._limits.connections_of(address)
        if count >= allowed:
            return self._refuse(f"{address} already has the {allowed} connections that it may have")
        if self._waiting_count >= self._limits.max_waiting_connections:
            return self._refuse(f"{self._waiting_count} connections wait already")
        self._by_address[address] = count + 1
        self._waiting.setdefault(connection.listener, deque()).append(connection)
        self._waiting_count += 1
        self.admit_waiting()
        return None

    def leave(self, connection: Connection) -> None:
        """An arrived connection is gone, admitted or not."""
        address = connection.peer_host
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]
        if connection in self._inside:
            self._inside.remove(connection)
            self._node.count -= 1
            self._listeners[connection.listener].count -= 1
        else:
            self._waiting[connection.listener].remove(connection)
            self._waiting_count -= 1
        self.admit_waiting()

    def close(self) -> None:
        """Let nobody in any more."""
        self._is_closed = True
        self._stop_timer()

    def admit_waiting(self) -> None:
        """Let in as many as may come in; come back when the next one may."""
        self._stop_timer()
        if not self._waiting_count or self._is_closed:
            return
        soonest_s = math.inf
        for waiting in self._waiting.values():
            while waiting:
                wait_s = self._wait_s(waiting[0])
                if wait_s > 0:
                    soonest_s = min(soonest_s, wait_s)
                    break
                self._waiting_count -= 1
                self._admit(waiting.popleft())
        if soonest_s < math.inf:
            self._timer = self._loop.call_later(soonest_s, self.admit_waiting)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait_s(self, connection: Connection) -> float:
        now_s, limits = self._loop.time(), self._limits
        own = limits.for_listener(connection.listener)
        gate = self._listeners.setdefault(connection.listener, Gate())
        wait_s = gate.wait_s(now_s, own.max_connections, own.max_connection_creation_rate)
        if connection.is_privileged:
            # Those who keep the cluster together are not kept out by clients.
            return wait_s
        return max(wait_s, self._node.wait_s(now_s, limits.max_connections, limits.max_connection_creation_rate))

    def _admit(self, connection: Connection) -> None:
        now_s, limits = self._loop.time(), self._limits
        own = limits.for_listener(connection.listener)
        self._listeners[connection.listener].enter(now_s, own.max_connection_creation_rate)
        self._node.enter(now_s, limits.max_connection_creation_rate)
        self._inside.add(connection)
        connection.admit()
        if self._node.count > limits.max_connections:
            self._make_room()

    def _refuse(self, reason: str) -> str:
        self._refused_count += 1
        now_s = self._loop.time()
        if now_s - self._logged_at_s >= _LOG_INTERVAL_S:
            _log.warning("connections refused: %d, the last because %s", self._refused_count, reason)
            self._logged_at_s, self._refused_count = now_s, 0
        return reason
