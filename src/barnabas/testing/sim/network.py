"""A network in memory behind `loop.create_server` and `loop.create_connection`.

Every host has an address; code runs on the host of its process (see `process`), the test itself on `HOME`. Bytes take a
drawn time and arrive in drawn pieces, in order. On request a way between two hosts is cut (both ends notice nothing
until they lose patience), slowed down, or connections are reset. TCP's promises hold throughout: what arrives is a
prefix of what was sent, and a cut that heals in time loses nothing.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address
from random import Random
from typing import Any, NamedTuple

from barnabas.net.sockets import KEEPALIVE_COUNT, KEEPALIVE_IDLE_S, KEEPALIVE_INTERVAL_S
from barnabas.testing.sim.loop import VirtualTimeLoop
from barnabas.testing.sim.process import Process, current_process
from barnabas.testing.sim.transports import Pipe, SimulatedTransport

__all__ = ["HOME", "Link", "Network", "SimulatedServer"]

HOME = "10.255.0.1"
LOOPBACK = "127.0.0.1"
ANY = "0.0.0.0"  # not bound: a name in a table
FIRST_EPHEMERAL_PORT = 32_768
SYN_RETRIES_S = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
FIRST_RETRANSMISSION_S = 0.2
MAX_RETRANSMISSION_S = 6.4
MIN_SEGMENT_BITS = 4
MAX_SEGMENT_BITS = 17


@dataclass(frozen=True, slots=True)
class Link:
    """The way from one host to another. A delay is drawn for everything sent; `bytes_per_s` adds to it by size.

    `loss` is the chance that something sent gets lost. A kernel sends it again, so that it comes late and whatever
    follows on its connection with it; `reset_chance` is that of breaking the connection at the same time.
    """

    min_delay_s: float = 0.0001
    max_delay_s: float = 0.002
    bytes_per_s: float | None = None
    window_bytes: int = 256 * 1024
    loss: float = 0.0
    reset_chance: float = 0.0


class _Address(NamedTuple):
    address: str
    port: int


class BoundSocket:
    """What a server tells of its sockets: their names."""

    def __init__(self, address: str, port: int) -> None:
        self._name = (address, port)

    def getsockname(self) -> tuple[str, int]:
        return self._name


class SimulatedServer(asyncio.AbstractServer):
    """A listening socket, or several. As in newer Pythons `wait_closed` waits for the connections too."""

    def __init__(self, network: Network, factory: Callable[[], Any], host: str, context: Context) -> None:
        self.network = network
        self.factory = factory
        self.host = host
        self.context = context
        self.process: Process | None = context.get(current_process)
        self.bound: list[_Address] = []
        self._connection_count = 0
        self._waiters: list[asyncio.Future[None]] = []
        self._is_closed = False

    @property
    def sockets(self) -> tuple[BoundSocket, ...]:
        return tuple(BoundSocket(*each) for each in self.bound)

    def accept(self, transport: SimulatedTransport) -> None:
        """Runs in the server's process."""
        if transport.is_gone:
            return
        if self._is_closed:
            transport.abort()
            return
        self._connection_count += 1
        transport.on_gone = self._connection_gone
        transport.connect(self.factory())

    def _connection_gone(self) -> None:
        self._connection_count -= 1
        self._wake()

    def _wake(self) -> None:
        if self._is_closed and self._connection_count == 0:
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._waiters.clear()

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self.network.unbind(self)
            self.bound = []
            self._wake()

    async def wait_closed(self) -> None:
        if not self._is_closed or self._connection_count:
            waiter = self.network.loop.create_future()
            self._waiters.append(waiter)
            await waiter

    def is_serving(self) -> bool:
        return not self._is_closed

    def get_loop(self) -> VirtualTimeLoop:
        return self.network.loop

    async def start_serving(self) -> None:
        """It serves from the beginning."""

    async def serve_forever(self) -> None:
        await self.wait_closed()


class Network:
    """Hosts, the ways between them, who listens, and who is connected.

    - `names`: host names that can be resolved, besides addresses and `localhost`.
    - `retransmission_timeout_s`: how long a kernel sends into the dark before it breaks a connection.
    """

    def __init__(
        self,
        loop: VirtualTimeLoop,
        random: Random,
        *,
        link: Link | None = None,
        trace: Callable[..., None] = lambda *_: None,
        retransmission_timeout_s: float = 60.0,
    ) -> None:
        self.loop = loop
        self.default_link = link or Link()
        self.trace = trace
        self.retransmission_timeout_s = retransmission_timeout_s
        #: Whether what is on its way arrives, if its sender breaks the connection off: it may then be late, and come
        #: after what was sent on the next connection.
        self.delivers_before_reset = False
        self.names: dict[str, str] = {}
        self._random = random
        self._links: dict[tuple[str, str], Link] = {}
        self._usual: dict[tuple[str, str], Link] = {}
        self._cut: set[tuple[str, str]] = set()
        self._down: set[str] = set()
        self._listeners: dict[tuple[str, str, int], SimulatedServer] = {}
        self._connections: dict[int, tuple[SimulatedTransport, SimulatedTransport]] = {}
        self._next_port: dict[str, int] = {}
        self._connection_count = 0
        loop.network = self

    # Conditions

    def link(self, source: str, target: str) -> Link:
        key = source, target
        return self._links.get(key) or self._usual.get(key, self.default_link)

    def set_usual_link(self, source: str, target: str, link: Link) -> None:
        """What one direction is like as long as nothing changes it."""
        self._usual[source, target] = link

    def set_link(self, source: str, target: str, link: Link | None) -> None:
        """Change one direction; None for the usual conditions."""
        if link is None:
            self._links.pop((source, target), None)
        else:
            self._links[source, target] = link

    def cut(self, source: str, target: str) -> None:
        """Let nothing through in this direction. Silently: neither side is told."""
        self._cut.add((source, target))
        self.trace("cut", source, target)

    def partition(self, some: Iterable[str], others: Iterable[str]) -> None:
        """Cut both directions between two sides."""
        others = list(others)
        for one in some:
            for other in others:
                self.cut(one, other)
                self.cut(other, one)

    def mend(self, source: str, target: str) -> None:
        """Undo one cut."""
        if (source, target) in self._cut:
            self._cut.remove((source, target))
            self.trace("mend", source, target)
            self._wake_all()

    def heal(self) -> None:
        """Undo all cuts. What was sent meanwhile arrives, where nobody has lost patience."""
        self._cut.clear()
        self.trace("heal")
        self._wake_all()

    def reset(self, one: str | None = None, other: str | None = None) -> None:
        """Break the connections between two hosts, of one host, or all of them, at both ends."""
        for pair in self._connection_pairs():
            hosts = [pair[0].outgoing.source, pair[0].outgoing.target]
            if one in (None, *hosts) and other in (None, *hosts):
                self._break(pair)

    def break_connection(self, pipe: Pipe) -> None:
        """Break the connection that a pipe belongs to, at both ends."""
        for pair in self._connection_pairs():
            if pipe in (pair[0].outgoing, pair[1].outgoing):
                self._break(pair)

    def _break(self, pair: tuple[SimulatedTransport, SimulatedTransport]) -> None:
        self.trace("reset", pair[0].outgoing.name)
        for end in pair:
            end.outgoing.drop()
            self._fail_soon(end)

    def is_cut(self, source: str, target: str) -> bool:
        cut, down = self._cut, self._down
        return bool(cut and (source, target) in cut) or bool(down and (source in down or target in down))

    def _wake_all(self) -> None:
        for pair in self._connection_pairs():
            for end in pair:
                end.outgoing.wake()

    def _connection_pairs(self) -> list[tuple[SimulatedTransport, SimulatedTransport]]:
        return list(self._connections.values())

    # Deaths

    def kill(self, process: Process) -> None:
        """A process died: its kernel sends what it had taken over and closes all sockets."""
        for server in self._servers_of(process):
            self.unbind(server)
        for end in self._ends_of(process):
            end.vanish()
            is_reset = end.incoming.unread_bytes > 0
            self.forget(end, is_reset=is_reset)

    def power_off(self, address: str) -> None:
        """A host is gone, without a word to anybody."""
        self._down.add(address)
        self.trace("power off", address)
        for key, server in list(self._listeners.items()):
            if key[0] == address:
                server.bound = []
                del self._listeners[key]
        for pair in self._connection_pairs():
            for end in pair:
                if end.outgoing.source == address:
                    end.vanish()
                    end.outgoing.drop(self._random.randint(0, end.outgoing.segment_count()))
                    end.incoming.detach()
                    self._keep_alive(end.outgoing.receiver, address)

    def _keep_alive(self, end: SimulatedTransport, peer: str) -> None:
        """The kernel of who is left asks after a while whether the other is still there. Once the host is back, it says
        that it knows of no such connection; else the kernel gives up."""
        now_s, gives_up_s = self.loop.world_time(), KEEPALIVE_IDLE_S + KEEPALIVE_COUNT * KEEPALIVE_INTERVAL_S
        for after_s in range(KEEPALIVE_IDLE_S, gives_up_s + 1, KEEPALIVE_INTERVAL_S):
            is_last = after_s == gives_up_s
            self.loop.call_in_world(now_s + after_s, self._probe, end, peer, is_last, context=end.context)

    def _probe(self, end: SimulatedTransport, peer: str, is_last: bool) -> None:
        own = end.outgoing.source
        if end.is_gone:
            return
        if not self.is_cut(own, peer) and not self.is_cut(peer, own):
            self._fail(end)
        elif is_last:
            end.fail(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))

    def power_on(self, address: str) -> None:
        """Back again, with no memory of its connections: who still sends to one is told so."""
        self._down.discard(address)
        self.trace("power on", address)
        self._wake_all()

    def _servers_of(self, process: Process) -> list[SimulatedServer]:
        return list(dict.fromkeys(server for server in self._listeners.values() if server.process is process))

    def _ends_of(self, process: Process) -> list[SimulatedTransport]:
        return [end for pair in self._connection_pairs() for end in pair if end.process is process]

    # What transports and pipes ask

    def draw_delay_s(self, source: str, target: str, size_bytes: int) -> float:
        return self.draw_delay_over_s(self.link(source, target), size_bytes)

    def draw_delay_over_s(self, link: Link, size_bytes: int) -> float:
        delay_s = self._random.uniform(link.min_delay_s, link.max_delay_s)
        if link.loss:
            delay_s += self._draw_retransmissions_s(link.loss)
        return delay_s if link.bytes_per_s is None else delay_s + size_bytes / link.bytes_per_s

    def _draw_retransmissions_s(self, loss: float) -> float:
        """How much later something arrives that was lost any number of times."""
        total_s, pause_s = 0.0, FIRST_RETRANSMISSION_S
        while self._random.random() < loss and pause_s <= MAX_RETRANSMISSION_S:
            total_s += pause_s
            pause_s *= 2
        return total_s

    def is_reset_drawn(self, link: Link) -> bool:
        """Whether what is being sent breaks its connection."""
        return link.reset_chance > 0 and self._random.random() < link.reset_chance

    def draw_segment_bytes(self) -> int:
        """Sizes of all orders of magnitude are equally likely, so that every boundary is hit and streams still flow."""
        return 1 + self._draw_below(1 << (MIN_SEGMENT_BITS + self._draw_below(MAX_SEGMENT_BITS - MIN_SEGMENT_BITS + 1)))

    def _draw_below(self, limit: int) -> int:
        """As `randrange`, without its detours: this is drawn for each piece that arrives."""
        bits, draw = limit.bit_length(), self._random.getrandbits
        drawn = draw(bits)
        while drawn >= limit:
            drawn = draw(bits)
        return drawn

    def forget(self, end: SimulatedTransport, *, is_reset: bool) -> None:
        """One end's socket is closed."""
        if is_reset or end.incoming.unread_bytes:
            if not self.delivers_before_reset or self.is_cut(end.outgoing.source, end.outgoing.target):
                end.outgoing.drop()
            self.send_reset(end.outgoing.source, end.outgoing.receiver, end.outgoing.left_s)
        else:
            end.outgoing.finish()
        end.incoming.detach()
        for number, pair in self._connections.items():
            if end in pair and all(each.incoming.is_detached for each in pair):
                del self._connections[number]
                break

    def send_reset(self, source: str, end: SimulatedTransport, after_s: float = 0.0) -> None:
        """Tell one end that the other is gone, unless the word does not get through; not before so much time."""
        target = end.outgoing.source
        if not self.is_cut(source, target):
            delay_s = max(after_s, self.draw_delay_s(source, target, 0))
            self.loop.call_later(delay_s, self._fail, end, context=end.context)

    def _fail_soon(self, end: SimulatedTransport) -> None:
        self.loop.call_soon(self._fail, end, context=end.context)

    @staticmethod
    def _fail(end: SimulatedTransport) -> None:
        end.fail(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    # Names and addresses

    def own_address(self) -> str:
        process = current_process.get()
        return HOME if process is None else process.address

    def resolve(self, host: str | None) -> str:
        if host in (None, ""):
            return ANY
        if host == "localhost":
            return LOOPBACK
        if host in self.names:
            return self.names[host]
        try:
            return str(IPv4Address(host))
        except AddressValueError:
            raise OSError(errno.ENOENT, f"the simulated network has no host {host!r}") from None

    def _free_port(self, address: str) -> int:
        port = self._next_port.get(address, FIRST_EPHEMERAL_PORT)
        self._next_port[address] = port + 1
        return port

    # Listening

    async def create_server(
        self, factory: Callable[[], Any], host: str | Sequence[str] | None, port: int | None, **options: Any
    ) -> SimulatedServer:
        """Of the options, what concerns real sockets is accepted and has no meaning here; TLS is refused."""
        _refuse(options, "ssl", "sock")
        own = self.own_address()
        server = SimulatedServer(self, factory, own, copy_context())
        hosts = [host] if host is None or isinstance(host, str) else list(host)
        for each in hosts:
            self._bind(server, own, self.resolve(each), port or 0)
        return server

    def _bind(self, server: SimulatedServer, own: str, address: str, port: int) -> None:
        if address not in (ANY, LOOPBACK, own):
            raise OSError(errno.EADDRNOTAVAIL, f"{address} is not an address of {own}")
        port = port or self._free_port(own)
        for taken, taken_port in [(key[1], key[2]) for key in self._listeners if key[0] == own]:
            if taken_port == port and (taken == address or ANY in (taken, address)):
                raise OSError(errno.EADDRINUSE, f"error while attempting to bind on address {(address, port)}: in use")
        self._listeners[own, address, port] = server
        server.bound.append(_Address(address, port))
        self.trace("listen", own, address, port)

    def unbind(self, server: SimulatedServer) -> None:
        for address, port in server.bound:
            self._listeners.pop((server.host, address, port), None)

    def _listener(self, source: str, address: str, port: int) -> tuple[str, SimulatedServer | None]:
        """The host that an address means, seen from a host, and who listens there."""
        host = source if address in (LOOPBACK, ANY) else address
        for bound in (address if host != address else host, ANY):
            server = self._listeners.get((host, bound, port))
            if server is not None:
                return host, server
        return host, None

    # Connecting

    async def create_connection(
        self, factory: Callable[[], Any], host: str | None, port: int | None, **options: Any
    ) -> tuple[SimulatedTransport, Any]:
        """`local_addr=(address, 0)` connects from another host than the caller's."""
        _refuse(options, "ssl", "sock")
        local = options.get("local_addr")
        source = self.own_address() if local is None else local[0]
        address = self.resolve(host)
        target = source if address in (LOOPBACK, ANY) else address
        await self._reach(source, target)
        _, server = self._listener(source, address, int(port or 0))
        if server is None:
            self.trace("refuse", source, address, port)
            await asyncio.sleep(self.draw_delay_s(target, source, 0))
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"Connect call failed {(address, port)}")
        names = (source if target != source else address, self._free_port(source)), (address, int(port or 0))
        transport = self._connect(server, source, target, names)
        try:
            await asyncio.sleep(self.draw_delay_s(target, source, 0))
            protocol = factory()
            made = self.loop.create_future()
            self.loop.call_soon(_make, transport, protocol, made, context=transport.context)
            await made
        except BaseException:
            transport.abort()
            raise
        return transport, protocol

    async def _reach(self, source: str, target: str) -> None:
        """Get a packet there, trying again as kernels do."""
        await asyncio.sleep(self.draw_delay_s(source, target, 0))
        for pause_s in SYN_RETRIES_S:
            if not self.is_cut(source, target) and not self.is_cut(target, source):
                return
            await asyncio.sleep(pause_s)
        raise TimeoutError(errno.ETIMEDOUT, f"Connect call failed: {target} does not answer")

    def _connect(
        self, server: SimulatedServer, source: str, target: str, names: tuple[tuple[str, int], tuple[str, int]]
    ) -> SimulatedTransport:
        number = self._connection_count = self._connection_count + 1
        there = Pipe(self, f"{number}>", source, target)
        back = Pipe(self, f"{number}<", target, source)
        near = SimulatedTransport(self, copy_context(), back, there, *names)
        far = SimulatedTransport(self, server.context.copy(), there, back, *reversed(names))
        self._connections[number] = (near, far)
        self.trace("connect", number, source, target, names[1][1])
        self.loop.call_soon(server.accept, far, context=far.context)
        return near


def _make(transport: SimulatedTransport, protocol: Any, made: asyncio.Future[None]) -> None:
    transport.connect(protocol)
    if not made.done():
        made.set_result(None)


def _refuse(options: dict[str, Any], *names: str) -> None:
    for name in names:
        if options.get(name):
            raise NotImplementedError(f"the simulated network does not know {name}=")
