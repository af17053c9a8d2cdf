"""Who may connect: limits per address, per listener and for the node, and the pace of new connections.

An address that has too many is refused at once. Where the node or a listener is full, or connections come too fast, the
new ones wait unread, as they would in the backlog of a socket that nobody accepts from. Those of an address that comes
faster than its quota are closed, after a while, so that it gains nothing by coming again at once.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from barnabas.base.log_context import logger
from barnabas.base.quotas import QuotaWindow, SampledRate
from barnabas.base.recently_used import RecentlyUsed
from barnabas.net.limits import INT_MAX, ServerLimits

if TYPE_CHECKING:
    from barnabas.net.connection import Connection

_log = logger("barnabas.net")

_LOG_INTERVAL_S: Final = 1.0
_NO_RATES: Final[Mapping[str, float]] = MappingProxyType({})


class Gate:
    """One limit of places, and how fast connections came."""

    __slots__ = ("count", "rate")

    def __init__(self, window: QuotaWindow) -> None:
        self.count = 0
        self.rate = SampledRate(window)


class _Lane:
    """Those who wait at one listener, in the order in which they came."""

    __slots__ = ("is_privileged", "ready_at_s", "waiting")

    def __init__(self, is_privileged: bool) -> None:
        self.is_privileged = is_privileged
        self.waiting: deque[Connection] = deque()
        #: When the first one may come in, by the pace; None if it was not counted yet.
        self.ready_at_s: float | None = None


class Admission:
    """Lets connections in, makes them wait, or refuses them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: ServerLimits, make_room: Callable[[], None]) -> None:
        self._loop = loop
        self._limits = limits
        #: Called when a privileged connection takes a place that the node does not have.
        self._make_room = make_room
        self._node = Gate(limits.quota_window)
        self._listeners: dict[str, Gate] = {}
        self._lanes: dict[str, _Lane] = {}
        self._waiting_count = 0
        #: They are closed in a while, since their address came too fast.
        self._turned_away: set[Connection] = set()
        self._by_address: dict[str, int] = {}
        self._inside: set[Connection] = set()
        #: How many connections per second an address may open, where that is bounded.
        self._default_rate: float | None = None
        self._rates: Mapping[str, float] = _NO_RATES
        self._address_rates: RecentlyUsed[str, SampledRate] = RecentlyUsed(
            lambda _, rate, now_ms: rate.is_forgotten(now_ms)
        )
        self._timer: asyncio.TimerHandle | None = None
        #: How many were refused: those over a limit of numbers, and those whose address came too fast.
        self.over_limit_count = self.over_quota_count = 0
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

    def set_connection_rates(self, default: float | None, by_address: Mapping[str, float]) -> None:
        """How many connections per second addresses may open: single ones, and each of all others."""
        self._default_rate, self._rates = default, by_address
        if default is None and not by_address:
            self._address_rates.clear()

    def arrive(self, connection: Connection) -> str | None:
        """Take a new connection: admit it now, later, or say why not."""
        if self._is_closed:
            return "the node stops"
        address = connection.peer_host
        count = self._by_address.get(address, 0)
        allowed = self._limits.connections_of(address)
        if count >= allowed:
            return self._refuse(f"{address} already has the {allowed} connections that it may have")
        waiting = self._waiting_beside(connection)
        if waiting >= self._limits.max_waiting_connections:
            return self._refuse(f"{waiting} connections wait already")
        self._by_address[address] = count + 1
        self._lanes.setdefault(connection.listener, _Lane(connection.is_privileged)).waiting.append(connection)
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
        elif connection in self._turned_away:
            self._turned_away.remove(connection)
        else:
            self._lanes[connection.listener].waiting.remove(connection)
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
        for lane in self._lanes.values():
            while lane.waiting:
                wait_s = self._wait_s(lane)
                if wait_s > 0:
                    soonest_s = min(soonest_s, wait_s)
                    break
                lane.ready_at_s = None
                self._waiting_count -= 1
                self._admit(lane.waiting.popleft())
        if soonest_s < math.inf:
            self._timer = self._loop.call_later(soonest_s, self.admit_waiting)

    def _waiting_beside(self, connection: Connection) -> int:
        """How many wait already that it may have to wait for: strangers do not keep nodes of the cluster out, and those
        who are turned away nobody."""
        lanes = self._lanes.values()
        return sum(len(each.waiting) for each in lanes if each.is_privileged == connection.is_privileged)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait_s(self, lane: _Lane) -> float:
        """How long the first of a lane must wait; infinity when only somebody's leaving, or another limit, helps."""
        connection, now_s = lane.waiting[0], self._loop.time()
        if not self._has_place(connection):
            return math.inf
        if lane.ready_at_s is None:
            # It counts once, and is let in when its time has come; those behind it wait for it.
            lane.ready_at_s = now_s + self._record(connection, int(now_s * 1000)) / 1000
        return lane.ready_at_s - now_s

    def _gates(self, connection: Connection) -> list[tuple[Gate, int, int]]:
        """Each with how many it has places for, and how many per second may come. Those who keep the cluster together
        are not kept out by clients."""
        limits, listener = self._limits, connection.listener
        own = limits.for_listener(listener)
        gate = self._listeners.get(listener)
        if gate is None:
            gate = self._listeners[listener] = Gate(limits.quota_window)
        gates = [(gate, own.max_connections, own.max_connection_creation_rate)]
        if not connection.is_privileged:
            gates.append((self._node, limits.max_connections, limits.max_connection_creation_rate))
        return gates

    def _has_place(self, connection: Connection) -> bool:
        return all(gate.count < places and rate for gate, places, rate in self._gates(connection))

    def _record(self, connection: Connection, now_ms: int, value: int = 1) -> int:
        """Count a connection, or take it back: how long it must wait for its gates."""
        throttle_ms = 0
        for gate, _, bound in self._gates(connection):
            if bound < INT_MAX:
                gate.rate.record(value, now_ms)
                throttle_ms = max(throttle_ms, gate.rate.throttle_ms(bound, now_ms))
        return min(throttle_ms, self._limits.quota_window.sample_ms)

    def _admit(self, connection: Connection) -> None:
        now_ms = int(self._loop.time() * 1000)
        throttle_ms = self._throttle_address_ms(connection.peer_host, now_ms)
        if throttle_ms:
            self._record(connection, now_ms, -1)
            self._turn_away(connection, throttle_ms / 1000)
            return
        for gate in (self._node, self._listeners[connection.listener]):
            gate.count += 1
        self._inside.add(connection)
        connection.admit()
        if self._node.count > self._limits.max_connections:
            self._make_room()

    def _turn_away(self, connection: Connection, after_s: float) -> None:
        """Beyond a bounded number those who came too fast are closed at once."""
        if len(self._turned_away) >= self._limits.max_waiting_connections:
            after_s = 0
        self._turned_away.add(connection)
        self.over_quota_count += 1
        why = f"{connection.peer_host} opens connections faster than its quota allows"
        self._loop.call_later(after_s, lambda: connection.abort(why))

    def _throttle_address_ms(self, address: str, now_ms: int) -> int:
        """How long an address must wait until it may open another connection; if so, this one does not count."""
        bound = self._rates.get(address, self._default_rate)
        if bound is None:
            return 0
        rate = self._address_rates.use(address)
        if rate is None:
            rate = SampledRate(self._limits.quota_window)
            self._address_rates.add(address, rate, now_ms)
        rate.record(1, now_ms)
        throttle_ms = min(rate.throttle_ms(bound, now_ms), self._limits.quota_window.sample_ms)
        if throttle_ms:
            rate.record(-1, now_ms)
        return throttle_ms

    def _refuse(self, reason: str) -> str:
        self.over_limit_count += 1
        self._refused_count += 1
        now_s = self._loop.time()
        if now_s - self._logged_at_s >= _LOG_INTERVAL_S:
            _log.warning("connections refused: %d, the last because %s", self._refused_count, reason)
            self._logged_at_s, self._refused_count = now_s, 0
        return reason
