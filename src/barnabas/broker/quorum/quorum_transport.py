"""The way between the replicas of the metadata log: requests over `net`'s channels, and what comes in on the
controllers' listener.

Two channels lead to each replica: a Fetch may wait there for records, and votes must not wait behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from barnabas.net.channel import Channel, ChannelLimits
from barnabas.net.errors import ChannelError, ConnectError, DisconnectedError, RequestTimeoutError
from barnabas.net.security import PLAINTEXT, ChannelSecurity
from barnabas.raft.ports import Reply, RequestReceiver
from barnabas.raft.types import Address
from barnabas.wire.apis import ApiKey
from barnabas.wire.message import Request, Response

_WAITING_APIS: Final = frozenset({ApiKey.FETCH, ApiKey.FETCH_SNAPSHOT})


class QuorumTransport:
    """A `Transport`. `receive` takes the requests of others, which the handlers of the controllers' listener bring."""

    def __init__(
        self, randomness: Random, client_id: str, limits: ChannelLimits, security: ChannelSecurity = PLAINTEXT
    ) -> None:
        self._security = security
        self._randomness = randomness
        self._client_id = client_id
        self._limits = limits
        self._peers: dict[tuple[Address, bool], _Peer] = {}
        self._receive: RequestReceiver | None = None
        self._on_refused: Callable[[Address], None] = lambda _: None
        self._is_stopped = False

    async def start(self, receive: RequestReceiver, on_refused: Callable[[Address], None]) -> None:
        self._receive = receive
        self._on_refused = on_refused

    def receive(self, request: Request, version: int, listener: str) -> asyncio.Future[Response]:
        """The answer to a request of another replica, when there is one. It came in on a listener of this name."""
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

        def reply(response: Response) -> None:
            if not answer.done():
                answer.set_result(response)

        if self._receive is None or self._is_stopped:
            answer.cancel()
        else:
            given: Reply = reply
            self._receive(request, version, given, listener)
        return answer

    def send(
        self, to: Address, request: Request, on_response: Callable[[Response | None], None], *, timeout_ms: int
    ) -> None:
        if self._is_stopped:
            return
        waits = request.API_KEY in _WAITING_APIS
        peer = self._peers.get((to, waits))
        if peer is None:
            peer = self._peers[to, waits] = _Peer(
                to, self._client_id, self._randomness, self._limits, self._security, partial(self._refused, to)
            )

        def answered(outcome: Response | ChannelError | None) -> None:
            if not self._is_stopped:
                on_response(outcome if isinstance(outcome, Response) else None)

        peer.channel.request_soon(request, answered, timeout_ms=timeout_ms)

    def _refused(self, address: Address) -> None:
        if not self._is_stopped:
            self._on_refused(address)

    async def stop(self) -> None:
        self._is_stopped = True
        await asyncio.gather(*(each.channel.close() for each in self._peers.values()))


class _Peer:
    """One channel, and whether its other end is gone: the peer closed it, and refuses another."""

    def __init__(
        self,
        address: Address,
        client_id: str,
        randomness: Random,
        limits: ChannelLimits,
        security: ChannelSecurity,
        on_refused: Callable[[], None],
    ) -> None:
        self._on_refused = on_refused
        self._was_closed = False
        self.channel = Channel(
            address.host,
            address.port,
            client_id=client_id,
            randomness=randomness,
            limits=limits,
            security=security,
            on_ready=self._look,
        )

    def _look(self, _: int) -> None:
        """The channel was connected, or lost, or could not be connected."""
        failure = self.channel.last_failure
        if failure is None:
            self._was_closed = False
        elif isinstance(failure, DisconnectedError) and not isinstance(failure, RequestTimeoutError):
            self._was_closed = True
            self.channel.connect_soon()
        elif isinstance(failure, ConnectError) and failure.is_refused and self._was_closed:
            self._was_closed = False
            self._on_refused()
