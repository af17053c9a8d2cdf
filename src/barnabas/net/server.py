"""All listeners and connections of a node."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from barnabas.base.errors import check
from barnabas.net._kernel.metering import RequestMeter
from barnabas.net.admission import Admission
from barnabas.net.answer_room import AnswerRoom
from barnabas.net.authentications import Authentications
from barnabas.net.connection import Connection, Surroundings
from barnabas.net.idle import IdleWatch
from barnabas.net.limits import SMALL_FRAME_BYTES, ServerLimits
from barnabas.net.listener import Listener, ListenerSpec
from barnabas.net.memory import RequestMemory
from barnabas.net.phases import ConnectionPhase
from barnabas.net.request_channel import Dispatch, IsUrgent, RequestChannel
from barnabas.net.sasl_server import SaslAuthenticator
from barnabas.net.throttled import ThrottledClients


class Server:
    """Accepts connections and has each request dispatched as its listener says.

    `dispatch` must not wait: it answers at once with `connection.respond`, or sees to it that somebody does later.
    """

    def __init__(
        self, is_urgent: IsUrgent, limits: ServerLimits | None = None, meter: RequestMeter | None = None
    ) -> None:
        """`meter` counts requests; without one they are timed by the clock of the event loop."""
        self._is_urgent = is_urgent
        self._limits = limits or ServerLimits()
        self._meter = meter
        self._captures = False
        self._listeners: dict[str, Listener] = {}
        self._around: Surroundings | None = None
        self._authentications = Authentications()
        #: Whom quotas slow down.
        self.throttled = ThrottledClients()
        self._emptied: asyncio.Future[None] | None = None

    async def start(self, specs: Iterable[ListenerSpec], dispatch: Dispatch) -> None:
        """Open the listeners, all or none, and call `dispatch(connection, frame)` for each request that comes to them.
        Raises `ListenError`. May be called again for more of them, with another `dispatch`."""
        around = self._around = self._around or self._surroundings()
        around.request_channel.captures = self._captures
        opened: list[Listener] = []
        try:
            for spec in specs:
                check(spec.name not in self._listeners, f"two listeners are named {spec.name}")
                listener = Listener(spec)
                await listener.open(partial(_accept, around, spec, dispatch), self._limits.socket_listen_backlog_size)
                opened.append(listener)
                self._listeners[spec.name] = listener
        except BaseException:
            for listener in opened:
                listener.close()
                del self._listeners[listener.spec.name]
            raise

    @property
    def authentications(self) -> Authentications:
        """How many peers have shown who they are, and how many failed to."""
        return self._authentications

    @property
    def meter(self) -> RequestMeter:
        """Requests that were answered, of all listeners."""
        if self._meter is None:
            self._meter = RequestMeter(asyncio.get_running_loop().time)
        return self._meter

    def capture_requests(self, is_on: bool) -> None:
        """Have connections keep each request and its answer, for whoever observes the meter."""
        self._captures = is_on
        if self._around is not None:
            self._around.request_channel.captures = is_on

    @property
    def endpoints(self) -> dict[str, tuple[str, int]]:
        """Name → host as it was given, and port as it was bound."""
        return {name: (listener.spec.host, listener.port) for name, listener in self._listeners.items()}

    @property
    def connection_counts(self) -> tuple[dict[str, int], dict[str, int]]:
        """How many connections came, and how many have ended, by listener."""
        return ({}, {}) if self._around is None else (dict(self._around.created), dict(self._around.closed))

    @property
    def refused_counts(self) -> dict[str, int]:
        """How many of those that came were refused: over a limit, or by the quota of their address."""
        if self._around is None:
            return {}
        admission = self._around.admission
        return {"limit": admission.over_limit_count, "quota": admission.over_quota_count}

    @property
    def expired_count(self) -> int:
        """Connections that were closed because nothing happened on them."""
        return 0 if self._around is None else self._around.idle.expired_count

    @property
    def waiting_count(self) -> int:
        """Requests that have not been taken up."""
        return 0 if self._around is None else self._around.request_channel.waiting_count

    @property
    def connections(self) -> Iterator[Connection]:
        """The open ones, by age."""
        return iter(list(self._around.connections.values()) if self._around else ())

    @property
    def limits(self) -> ServerLimits:
        return self._limits

    def set_limits(self, limits: ServerLimits) -> None:
        """Put other limits into force. The backlog keeps its length; nobody who is inside is sent away."""
        self._limits = limits
        around = self._around
        if around is None:
            return
        around.limits = limits
        around.request_channel.max_waiting = limits.queued_max_requests
        largest_bytes, window_s = limits.socket_request_max_bytes, limits.stall_timeout_ms / 1000
        around.memory.set_limit(limits.request_memory_bytes, largest_bytes)
        around.cluster_memory.set_limit(limits.cluster_memory_bytes, largest_bytes)
        around.memory.pace.window_s = around.cluster_memory.pace.window_s = window_s
        for answers in (around.answers, around.cluster_answers):
            answers.pace.window_s = window_s
            answers.set_limit(limits.outgoing_max_bytes)
        around.idle.set_limit(limits.connections_max_idle_ms)
        around.admission.set_limits(limits)
        for connection in around.connections.values():
            connection.limits_changed()

    def set_connection_rates(self, default: float | None, by_address: Mapping[str, float]) -> None:
        """How many connections per second addresses may open: single ones, and each of all others; None for any."""
        if self._around is not None:
            self._around.admission.set_connection_rates(default, by_address)

    @property
    def outgoing_bytes(self) -> int:
        """Responses to clients that are being made or were not taken yet."""
        return self._around.answers.held_bytes if self._around else 0

    def room_for_responses(self) -> int:
        """How much responses may take for which no room was asked."""
        return self._around.answers.left_bytes() if self._around else self._limits.outgoing_max_bytes

    @property
    def reserved_bytes(self) -> int:
        """Memory of requests above 64 KiB that are being received or processed."""
        around = self._around
        return around.memory.reserved_bytes + around.cluster_memory.reserved_bytes if around else 0

    @property
    def request_bytes(self) -> int:
        """Memory of all requests that are being received or processed."""
        around = self._around
        return around.memory.held_bytes + around.cluster_memory.held_bytes if around else 0

    async def stop(self, timeout_ms: int = 5000) -> None:
        """Accept nothing more, let requests in process be answered for a while, then close all connections."""
        for listener in self._listeners.values():
            listener.close()
        around = self._around
        if around is None:
            return
        around.admission.close()
        for connection in self.connections:
            connection.close_after_response("the node stops")
        await self._wait_until_empty(timeout_ms / 1000)
        for connection in self.connections:
            connection.abort("the node stops")
        await self._wait_until_empty(timeout_s=1.0)
        around.idle.close()
        for part in (around.memory, around.cluster_memory, around.answers, around.cluster_answers):
            part.close()

    def _surroundings(self) -> Surroundings:
        loop, limits = asyncio.get_running_loop(), self._limits
        largest_bytes, window_s = limits.socket_request_max_bytes, limits.stall_timeout_ms / 1000
        connections: dict[int, Connection] = {}
        return Surroundings(
            loop=loop,
            limits=limits,
            request_channel=RequestChannel(
                loop, self._is_urgent, limits.queued_max_requests, limits.dispatch_budget_ms / 1000, self.meter
            ),
            memory=RequestMemory(loop, connections, limits.request_memory_bytes, largest_bytes, window_s),
            cluster_memory=RequestMemory(loop, connections, limits.cluster_memory_bytes, largest_bytes, window_s),
            answers=AnswerRoom(loop, limits.outgoing_max_bytes, window_s),
            cluster_answers=AnswerRoom(loop, limits.outgoing_max_bytes, window_s),
            idle=IdleWatch(loop, limits.connections_max_idle_ms),
            admission=Admission(loop, limits, self._make_room),
            authentications=self._authentications,
            throttled=self.throttled,
            created={},
            closed={},
            scratch=bytearray(SMALL_FRAME_BYTES),
            connections=connections,
            on_empty=self._on_empty,
            ids=itertools.count(1),
        )

    def _make_room(self) -> None:
        """Close the client that has been silent longest: a node of the cluster needs its place."""
        for connection in self._around.idle if self._around else ():
            if not connection.is_privileged:
                connection.abort("its place was needed for a node of the cluster")
                return

    def _on_empty(self) -> None:
        if self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)

    async def _wait_until_empty(self, timeout_s: float) -> None:
        if self._around is None or not self._around.connections:
            return
        loop = asyncio.get_running_loop()
        self._emptied = loop.create_future()
        timer = loop.call_later(timeout_s, self._on_empty)
        try:
            await self._emptied
        finally:
            timer.cancel()
            self._emptied = None


def _accept(around: Surroundings, spec: ListenerSpec, dispatch: Dispatch) -> asyncio.BaseProtocol:
    """A connection that has just come in, with TLS under it where the listener has that."""
    tls, sasl = spec.tls, spec.sasl
    phase = spec.first_phase if sasl is None else ConnectionPhase.AUTHENTICATING
    connection = Connection(
        around,
        spec.name,
        dispatch if sasl is None else SaslAuthenticator(sasl, dispatch, around).dispatch,
        is_privileged=spec.is_privileged,
        phase=phase if tls is None else ConnectionPhase.HANDSHAKING,
        secured_phase=phase,
        principal_of=None if tls is None else tls.principal_of,
    )
    return connection if tls is None else tls.layer(connection, around.limits.handshake_timeout_ms)
