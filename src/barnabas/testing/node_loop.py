"""The event loop of a node that shares its process with others: it knows whom the node talks to, so that the wire can
be cut, and which sockets are the node's, so that they are closed at once when it dies.

All that passes between two nodes goes through the `NodeWire` of the one that connected. While it is cut it neither
reads nor writes: what the other end sent waits in the system, what this end sends waits here, and a connection that is
closed here stays open to the other end, which cannot know. Nothing is lost, as with TCP.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

__all__ = ["EmbeddedNetwork", "NodeLoop"]

ProtocolT = TypeVar("ProtocolT", bound=asyncio.BaseProtocol)
Bytes = bytes | bytearray | memoryview


class EmbeddedNetwork:
    """Which nodes hear each other. It is changed from one thread and read from all."""

    def __init__(self, nodes_by_port: Mapping[int, int]) -> None:
        self.nodes_by_port = nodes_by_port
        #: Pairs of nodes, the smaller first.
        self.cut: frozenset[tuple[int, int]] = frozenset()

    def is_cut(self, one: int, other: int) -> bool:
        return (min(one, other), max(one, other)) in self.cut


class NodeLoop(asyncio.SelectorEventLoop):
    """See the module. Its methods are called on its own thread; `is_dead` may be set from any."""

    #: Whoever opens connections leaves the sockets to the loop.
    has_sockets = False

    def __init__(self, node_id: int, network: EmbeddedNetwork) -> None:
        super().__init__()
        self.node_id = node_id
        self.is_dead = False
        self._network = network
        self._servers: list[asyncio.Server] = []
        self._accepted: set[asyncio.Transport] = set()
        self._wires: set[NodeWire] = set()
        #: Of connections that ended here while the wire was cut: open until it is healed.
        self._ghosts: list[tuple[int, socket.socket]] = []
        self._rewired = asyncio.Event()

    # What the node calls

    async def create_connection(
        self, protocol_factory: Callable[[], ProtocolT], host: Any = None, port: Any = None, **more: Any
    ) -> tuple[asyncio.Transport, ProtocolT]:
        peer = self._network.nodes_by_port.get(port)
        if peer is None or peer == self.node_id:
            return await super().create_connection(protocol_factory, host, port, **more)
        while self._network.is_cut(self.node_id, peer):
            await self._rewired.wait()
        if self.is_dead:
            raise ConnectionRefusedError("the node was killed")
        inner = protocol_factory()
        wire = NodeWire(self, peer)
        await super().create_connection(lambda: _Introduction(inner, wire.opened, wire), host, port, **more)
        return wire, inner

    async def create_server(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], *place: Any, **more: Any
    ) -> asyncio.Server:
        def introduced() -> asyncio.BaseProtocol:
            return _Introduction(protocol_factory(), self._accept, None)

        server = await super().create_server(introduced, *place, **more)
        self._servers.append(server)
        return server

    def _accept(self, transport: asyncio.Transport) -> None:
        # Seldom enough: those that have ended are forgotten whenever there are twice as many.
        self._accepted = {each for each in self._accepted if not each.is_closing()}
        self._accepted.add(transport)

    # Faults

    def rewire(self) -> None:
        """Act on what the network is now."""
        for wire in list(self._wires):
            wire.hold() if self._network.is_cut(self.node_id, wire.peer) else wire.release()
        kept = [each for each in self._ghosts if self._network.is_cut(self.node_id, each[0])]
        for each in self._ghosts:
            if each not in kept:
                each[1].close()
        self._ghosts = kept
        self._rewired.set()
        self._rewired = asyncio.Event()

    def close_sockets(self) -> list[tuple[int, socket.socket]]:
        """As the system does when a process dies. What the other end of a cut wire cannot have heard of is handed
        over, to be closed when it is healed."""
        self.is_dead = True
        for server in self._servers:
            server.close()
        for wire in list(self._wires):
            wire.set_protocol(_Nobody())
            wire.abort()
        for transport in self._accepted:
            transport.set_protocol(_Nobody())
            transport.abort()
        ghosts, self._ghosts = self._ghosts, []
        return ghosts

    def forget(self, wire: NodeWire) -> None:
        self._wires.discard(wire)

    def remember(self, wire: NodeWire) -> None:
        self._wires = {each for each in self._wires if not each.is_closing()}
        self._wires.add(wire)
        if self.is_dead:
            wire.abort()
        elif self._network.is_cut(self.node_id, wire.peer):
            wire.hold()

    def haunt(self, peer: int, transport: asyncio.BaseTransport) -> None:
        """Keep the other end's connection open, though this end is closed."""
        known = transport.get_extra_info("socket")
        if known is not None:
            self._ghosts.append((peer, known.dup()))


class _Introduction(asyncio.BufferedProtocol):
    """Sees the transport of a new connection, introduces it to its protocol, and is not needed any more."""

    def __init__(
        self, inner: asyncio.BaseProtocol, seen: Callable[[asyncio.Transport], None], shown: asyncio.Transport | None
    ) -> None:
        self._inner = inner
        self._seen = seen
        self._shown = shown

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        real = cast(asyncio.Transport, transport)
        real.set_protocol(self._inner)
        self._seen(real)
        self._inner.connection_made(self._shown or real)


class _Nobody(asyncio.Protocol):
    """Is told that a connection ended, in the place of a node that is dead and cannot be told."""


class NodeWire(asyncio.Transport):
    """What a node holds of a connection to another node."""

    def __init__(self, loop: NodeLoop, peer: int) -> None:
        super().__init__()
        self.peer = peer
        self._loop = loop
        self._real = cast(asyncio.Transport, None)
        self._is_held = False
        self._wants_to_read = True
        self._waiting: list[bytes] = []

    def opened(self, transport: asyncio.Transport) -> None:
        self._real = transport
        self._loop.remember(self)

    # The wire

    def hold(self) -> None:
        if not self._is_held and not self._real.is_closing():
            self._is_held = True
            if self._wants_to_read:
                self._real.pause_reading()

    def release(self) -> None:
        if self._is_held:
            self._is_held = False
            waiting, self._waiting = self._waiting, []
            if not self._real.is_closing():
                self._real.writelines(waiting)
                if self._wants_to_read:
                    self._real.resume_reading()

    # What the node calls

    def write(self, data: Bytes) -> None:
        if self._is_held:
            self._waiting.append(bytes(data))
        else:
            self._real.write(data)

    def writelines(self, list_of_data: Iterable[Bytes]) -> None:
        if self._is_held:
            self._waiting.extend(bytes(each) for each in list_of_data)
        else:
            self._real.writelines(list_of_data)

    def pause_reading(self) -> None:
        self._wants_to_read = False
        if not self._is_held:
            self._real.pause_reading()

    def resume_reading(self) -> None:
        self._wants_to_read = True
        if not self._is_held:
            self._real.resume_reading()

    def is_reading(self) -> bool:
        return self._wants_to_read and not self._real.is_closing()

    def close(self) -> None:
        if self._is_held:
            self.abort()
        else:
            self._real.close()

    def abort(self) -> None:
        if self._is_held and not self._real.is_closing():
            self._loop.haunt(self.peer, self._real)
        self._loop.forget(self)
        self._real.abort()

    def is_closing(self) -> bool:
        return self._real.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._real.get_extra_info(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._real.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._real.get_write_buffer_size() + sum(map(len, self._waiting))

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._real.get_write_buffer_limits()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._real.set_protocol(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._real.get_protocol()
