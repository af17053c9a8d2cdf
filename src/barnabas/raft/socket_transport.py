"""A `Transport` over sockets that speaks Kafka's protocol: an Apache Kafka controller can be at the other end.

transport = SocketTransport(Address("0.0.0.0", 9093), randomness=Random())
await transport.start(receive, on_refused)
transport.send(Address("10.0.0.2", 9093), VoteRequest(...), on_response, timeout_ms=2000)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from random import Random

from barnabas.base.errors import check, known
from barnabas.raft.ports import RequestReceiver
from barnabas.raft.socket_client import WAITING_APIS, OnResponse, PeerChannel
from barnabas.raft.socket_parts import Complaints, SocketOptions, SocketSurroundings
from barnabas.raft.socket_server import AcceptedConnection
from barnabas.raft.types import Address
from barnabas.wire.message import Request

__all__ = ["SocketOptions", "SocketTransport"]


class SocketTransport:
    """See the module. Without an address to listen at it only asks, as replicas do that will never be voters."""

    def __init__(
        self,
        listen: Address | None,
        *,
        randomness: Random,
        client_id: str = "barnabas-raft",
        options: SocketOptions | None = None,
    ) -> None:
        self._listen = listen
        self._randomness = randomness
        self._client_id = client_id
        self._options = options or SocketOptions()
        self._around: SocketSurroundings | None = None
        self._server: asyncio.Server | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._peers: dict[Address, _Peer] = {}
        self._on_refused: Callable[[Address], None] = lambda address: None

    @property
    def address(self) -> Address:
        """Where it listens, with the port that the system chose if 0 was asked for."""
        host = known(self._listen, "this transport does not listen").host
        server = known(self._server, "the transport was not started")
        return Address(host, server.sockets[0].getsockname()[1])

    async def start(self, receive: RequestReceiver, on_refused: Callable[[Address], None]) -> None:
        check(self._around is None, "a transport is started once")
        loop = asyncio.get_running_loop()
        around = self._around = SocketSurroundings(loop, self._options, Complaints(loop))
        self._on_refused = on_refused
        if self._listen is not None:
            make = partial(AcceptedConnection, around, receive)
            self._server = await loop.create_server(make, self._listen.host, self._listen.port)
            self._close_idle(around)

    def send(self, to: Address, request: Request, on_response: OnResponse, *, timeout_ms: int) -> None:
        around = known(self._around, "the transport was not started")
        if around.is_stopped:
            return
        peer = self._peers.get(to) or self._add_peer(to, around)
        peer.channel_for(request).send(request, on_response, timeout_ms)

    async def stop(self) -> None:
        around = self._around
        if around is None or around.is_stopped:
            return
        around.is_stopped = True
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._server is not None:
            self._server.close()
        opening = [task for peer in self._peers.values() for task in peer.stop()]
        # What was written still leaves: a resignation is worth the moment that it takes.
        for each in list(around.connections):
            each.close()
        if opening:
            await asyncio.wait(opening)
        await self._until_gone(around)
        for each in list(around.connections):
            each.abort()
        await self._until_gone(around)
        if self._server is not None:
            await self._server.wait_closed()

    async def _until_gone(self, around: SocketSurroundings) -> None:
        if around.connections:
            around.all_gone = around.loop.create_future()
            await asyncio.wait([around.all_gone], timeout=self._options.stop_timeout_ms / 1000)

    def _close_idle(self, around: SocketSurroundings) -> None:
        """Peers may vanish without a word; what they left open would pile up."""
        idle_s = self._options.connections_max_idle_ms / 1000
        before_s = around.loop.time() - idle_s
        for each in list(around.connections):
            if isinstance(each, AcceptedConnection) and each.active_at_s <= before_s:
                each.abort()
        self._idle_timer = around.loop.call_later(idle_s / 2, self._close_idle, around)

    def _add_peer(self, address: Address, around: SocketSurroundings) -> _Peer:
        peer = self._peers[address] = _Peer(
            address, around, self._client_id, self._randomness, partial(self._on_refused, address)
        )
        return peer


class _Peer:
    """Both channels to an address. That it is gone is told once, though both of them find out."""

    def __init__(
        self,
        address: Address,
        around: SocketSurroundings,
        client_id: str,
        randomness: Random,
        on_refused: Callable[[], None],
    ) -> None:
        self._around = around
        self._on_refused = on_refused
        self._is_gone = False
        make = partial(PeerChannel, address, around, client_id, randomness, self._connected, self._refused)
        self._prompt = make()
        self._waiting = make()

    def channel_for(self, request: Request) -> PeerChannel:
        return self._waiting if request.API_KEY in WAITING_APIS else self._prompt

    def stop(self) -> list[asyncio.Task[None]]:
        """What is still being opened, and will end."""
        found = [each.opening for each in (self._prompt, self._waiting) if each.opening is not None]
        for each in (self._prompt, self._waiting):
            each.stop()
        return found

    def _connected(self) -> None:
        self._is_gone = False

    def _refused(self) -> None:
        if not self._is_gone:
            self._is_gone = True
            # After those who wait were told that there is no answer.
            self._around.loop.call_soon(self._tell_refused)

    def _tell_refused(self) -> None:
        if not self._around.is_stopped:
            self._on_refused()
