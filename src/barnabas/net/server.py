"""All listeners and connections of a node."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Iterator
from functools import partial

from barnabas.base.errors import check
from barnabas.net.admission import Admission
from barnabas.net.connection import Connection, Surroundings
from barnabas.net.idle import IdleWatch
from barnabas.net.lanes import Dispatch, IsUrgent, Lanes
from barnabas.net.limits import SMALL_FRAME_BYTES, ServerLimits
from barnabas.net.listener import Listener, ListenerSpec
from barnabas.net.memory import MemoryBudget


class Server:
    """Accepts connections and calls `dispatch(connection, frame)` for each request.

    `dispatch` must not wait: it answers at once with `connection.respond`, or sees to it that somebody does later.
    """

    def __init__(self, dispatch: Dispatch, is_urgent: IsUrgent, limits: ServerLimits | None = None) -> None:
        self._dispatch = dispatch
        self._is_urgent = is_urgent
        self._limits = limits or ServerLimits()
        self._listeners: dict[str, Listener] = {}
        self._around: Surroundings | None = None
        self._emptied: asyncio.Future[None] | None = None

    async def start(self, specs: Iterable[ListenerSpec]) -> None:
        """Open the listeners, all or none. Raises `ListenError`. May be called again for more of them."""
        around = self._around = self._around or self._surroundings()
        opened: list[Listener] = []
        try:
            for spec in specs:
                check(spec.name not in self._listeners, f"two listeners are named {spec.name}")
                make = partial(Connection, around, spec.name, is_privileged=spec.is_privileged, phase=spec.first_phase)
                listener = Listener(spec)
                await listener.open(make, self._limits.socket_listen_backlog_size)
                opened.append(listener)
                self._listeners[spec.name] = listener
        except BaseException:
            for listener in opened:
                listener.close()
                del self._listeners[listener.spec.name]
            raise

    @property
    def endpoints(self) -> dict[str, tuple[str, int]]:
        """Name → host as it was given, and port as it was bound."""
        return {name: (listener.spec.host, listener.port) for name, listener in self._listeners.items()}

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
        around.lanes.max_waiting = limits.queued_max_requests
        around.memory.limit_bytes = limits.request_memory_bytes
        around.cluster_memory.limit_bytes = limits.cluster_memory_bytes
        for memory in (around.memory, around.cluster_memory):
            memory.outgoing_limit_bytes = limits.outgoing_max_bytes
            memory.stall_timeout_s = limits.stall_timeout_ms / 1000
            memory.grant_waiting()
        around.idle.set_limit(limits.connections_max_idle_ms)
        around.admission.set_limits(limits)
        for connection in around.connections.values():
            connection.limits_changed()

    @property
    def outgoing_bytes(self) -> int:
        """Responses to clients that are being made or were not taken yet."""
        return self._around.memory.outgoing_bytes if self._around else 0

    def room_for_responses(self) -> int:
        """How much large responses may take together before slow peers hold too much memory."""
        return self._around.memory.room_for_responses() if self._around else self._limits.outgoing_max_bytes

    @property
    def reserved_bytes(self) -> int:
        """Memory of large requests that are being received or processed."""
        around = self._around
        return around.memory.reserved_bytes + around.cluster_memory.reserved_bytes if around else 0

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
        around.memory.close()
        around.cluster_memory.close()

    def _surroundings(self) -> Surroundings:
        loop, limits = asyncio.get_running_loop(), self._limits
        outgoing_bytes, stall_timeout_s = limits.outgoing_max_bytes, limits.stall_timeout_ms / 1000
        return Surroundings(
            loop=loop,
            limits=limits,
            lanes=Lanes(
                loop, self._dispatch, self._is_urgent, limits.queued_max_requests, limits.dispatch_budget_ms / 1000
            ),
            memory=MemoryBudget(loop, limits.request_memory_bytes, outgoing_bytes, stall_timeout_s),
            cluster_memory=MemoryBudget(loop, limits.cluster_memory_bytes, outgoing_bytes, stall_timeout_s),
            idle=IdleWatch(loop, limits.connections_max_idle_ms),
            admission=Admission(loop, limits, self._make_room),
            scratch=bytearray(SMALL_FRAME_BYTES),
            connections={},
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
