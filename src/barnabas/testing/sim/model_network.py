"""A network of messages instead of bytes, for simulations of a million elections.

Each message goes through the real codec: it is encoded in its highest version and decoded at the other end. It takes a
delay of its own, so messages overtake each other; it may be lost, and then nobody is told before the sender's patience
ends. None comes twice. What TCP would tell is told: that nobody listens there, and that a peer's process has died.
"""

from __future__ import annotations

from asyncio import TimerHandle
from collections.abc import Callable
from contextvars import Context
from functools import partial
from random import Random
from typing import Protocol

from barnabas.raft.ports import RequestReceiver
from barnabas.raft.types import Address
from barnabas.testing.sim.loop import VirtualTimeLoop
from barnabas.testing.sim.network import Link
from barnabas.wire.message import Request, Response

__all__ = ["ModelNetwork", "ModelTransport"]


class MessageTrace(Protocol):
    """Told of each message that is sent: from where, to where, its bytes, and when it will arrive."""

    def __call__(self, source: str, target: str, data: bytes, arrives_s: float, /) -> None: ...


class ModelNetwork:
    """The ways between hosts, and who listens where."""

    def __init__(
        self,
        loop: VirtualTimeLoop,
        random: Random,
        *,
        link: Link | None = None,
        trace: MessageTrace = lambda *_: None,
    ) -> None:
        self.loop = loop
        self.default_link = link or Link()
        self._trace = trace
        self._random = random
        self._links: dict[tuple[str, str], Link] = {}
        self._cut: set[tuple[str, str]] = set()
        self._down: set[str] = set()
        self._listeners: dict[Address, ModelTransport] = {}

    # Conditions

    def cut(self, source: str, target: str) -> None:
        self._cut.add((source, target))

    def mend(self, source: str, target: str) -> None:
        self._cut.discard((source, target))

    def set_link(self, source: str, target: str, link: Link | None) -> None:
        if link is None:
            self._links.pop((source, target), None)
        else:
            self._links[source, target] = link

    def reset(self, one: str, other: str) -> None:
        """Break the connections between two hosts: no request under way gets its answer."""
        for transport in list(self._listeners.values()):
            for address in list(self._listeners):
                if {transport.address.host, address.host} == {one, other}:
                    self.loop.call_soon(transport.on_closed, address, context=transport.context)

    def power_off(self, host: str) -> None:
        """Nobody is told."""
        self._down.add(host)
        for address in [address for address in self._listeners if address.host == host]:
            del self._listeners[address]

    def power_on(self, host: str) -> None:
        self._down.discard(host)

    def close(self, closing: ModelTransport) -> None:
        """A process has ended: its kernel says so to all whom it reaches."""
        if self._listeners.get(closing.address) is closing:
            del self._listeners[closing.address]
        now_s = self.loop.world_time()
        for transport in self._listeners.values():
            if not self.is_cut(closing.address.host, transport.address.host):
                delay_s = self._draw_delay_s(closing.address.host, transport.address.host)
                self.loop.call_in_world(
                    now_s + delay_s, transport.on_closed, closing.address, context=transport.context
                )

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cut or source in self._down or target in self._down

    # What transports ask

    def listen(self, transport: ModelTransport) -> None:
        self._listeners[transport.address] = transport

    def listener(self, address: Address) -> ModelTransport | None:
        return self._listeners.get(address)

    def _draw_delay_s(self, source: str, target: str) -> float:
        link = self._links.get((source, target), self.default_link)
        return link.min_delay_s + (link.max_delay_s - link.min_delay_s) * self._random.random()

    def carry(
        self, source: str, target: str, data: bytes, context: Context, arrive: Callable[..., None], *args: object
    ) -> None:
        """Let something happen at the other end after a while, or never."""
        link = self._links.get((source, target), self.default_link)
        random = self._random.random
        delay_s = link.min_delay_s + (link.max_delay_s - link.min_delay_s) * random()
        if (link.loss and random() < link.loss) or self.is_cut(source, target):
            return
        arrives_s = self.loop.world_time() + delay_s
        self._trace(source, target, data, arrives_s)
        self.loop.call_in_world(arrives_s, arrive, *args, context=context)


class _Pending:
    """A request that waits for its answer."""

    __slots__ = ("deadline_s", "on_response", "to")

    def __init__(self, to: Address, on_response: Callable[[Response | None], None], deadline_s: float) -> None:
        self.to = to
        self.on_response = on_response
        self.deadline_s = deadline_s


class ModelTransport:
    """A `Transport` of one process. `context` is the process's, in which all its callbacks run."""

    def __init__(self, network: ModelNetwork, address: Address, context: Context) -> None:
        self.address = address
        self.context = context
        self._network = network
        self._loop = network.loop
        self._receive: RequestReceiver | None = None
        self._on_refused: Callable[[Address], None] = lambda _: None
        self._numbers = 0
        self._pending: dict[int, _Pending] = {}
        self._timer: TimerHandle | None = None
        self._timer_s = 0.0
        self._known: set[Address] = set()

    async def start(self, receive: RequestReceiver, on_refused: Callable[[Address], None]) -> None:
        self._receive = receive
        self._on_refused = on_refused
        self._network.listen(self)

    async def stop(self) -> None:
        self._receive = None
        self._pending.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._network.close(self)

    # Requests of this process

    def send(
        self, to: Address, request: Request, on_response: Callable[[Response | None], None], *, timeout_ms: int
    ) -> None:
        version = request.SERVED.high
        data = request.encode(version)
        number = self._numbers = self._numbers + 1
        self._pending[number] = _Pending(to, on_response, self._loop.time() + timeout_ms / 1000)
        self._set_timer(self._pending[number].deadline_s)
        source, target = self.address.host, to.host
        peer = self._network.listener(to)
        if peer is None:
            self._network.carry(source, target, b"", self.context, self._refused, target, number)
            return
        self._known.add(to)
        peer._known.add(self.address)
        arrive = peer._on_request
        self._network.carry(source, target, data, peer.context, arrive, self, number, type(request), version, data)

    def _on_request(
        self, sender: ModelTransport, number: int, message: type[Request], version: int, data: bytes
    ) -> None:
        if self._receive is None or self._network.is_cut(sender.address.host, self.address.host):
            return
        reply = partial(self._reply, sender, number, version)
        self._receive(message.decode(data, version), version, reply)

    def _reply(self, sender: ModelTransport, number: int, version: int, response: Response) -> None:
        data = response.encode(version)
        source, target = self.address.host, sender.address.host
        arrive = sender._on_response
        self._network.carry(source, target, data, sender.context, arrive, source, number, type(response), version, data)

    def _on_response(self, source: str, number: int, message: type[Response], version: int, data: bytes) -> None:
        if self._network.is_cut(source, self.address.host):
            return
        pending = self._pending.pop(number, None)
        if pending is not None:
            pending.on_response(message.decode(data, version))

    # What goes wrong

    def _refused(self, target: str, number: int) -> None:
        """The other host, if it has power, said that nobody listens."""
        if not self._network.is_cut(target, self.address.host):
            self._give_up(number)

    def on_closed(self, address: Address) -> None:
        """A connection was closed by its other end; a new one is tried at once."""
        for number in [number for number, pending in self._pending.items() if pending.to == address]:
            self._give_up(number)
        if address in self._known and self._receive is not None and self._network.listener(address) is None:
            self._known.discard(address)
            if not self._network.is_cut(self.address.host, address.host):
                self._on_refused(address)

    def _give_up(self, number: int) -> None:
        pending = self._pending.pop(number, None)
        if pending is not None:
            pending.on_response(None)

    def _set_timer(self, deadline_s: float) -> None:
        """One timer for all requests: nearly all are answered before it matters."""
        if self._timer is None or deadline_s < self._timer_s:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_s = deadline_s
            self._timer = self._loop.call_at(deadline_s, self._expire, context=self.context)

    def _expire(self) -> None:
        self._timer = None
        now_s = self._loop.time()
        for number in [number for number, pending in self._pending.items() if pending.deadline_s <= now_s]:
            self._give_up(number)
        if self._pending:
            soonest_s = min(pending.deadline_s for pending in self._pending.values())
            self._set_timer(max(soonest_s, now_s + 0.001))
