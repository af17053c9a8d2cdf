"""How a broker asks another broker: about partitions of a transaction, and for its markers.

A connection is served in order, and markers wait for followers; so each API has a channel of its own to each broker,
or a question that is answered at once would wait behind one that is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from barnabas.base.errors import BrokerError
from barnabas.metadata.image import ClusterImage
from barnabas.net.channel import Channel, ChannelLimits
from barnabas.net.errors import ChannelError, ConnectError, RequestTimeoutError
from barnabas.net.security import PLAINTEXT, ChannelSecurity
from barnabas.wire.apis import api
from barnabas.wire.message import Request, Response

#: Answers a request of this broker to itself, in the given version.
LocalCall = Callable[[Request, int], Awaitable[Response]]

__all__ = ["BrokerChannels", "ChannelError", "LocalCall"]


class BrokerChannels:
    """Takes requests to the brokers of the image, to where they listen for each other."""

    def __init__(
        self,
        node_id: int,
        listener: str,
        randomness: Random,
        limits: ChannelLimits,
        call_locally: LocalCall,
        security: ChannelSecurity = PLAINTEXT,
    ) -> None:
        self._node_id = node_id
        self._listener = listener
        self._randomness = randomness
        self._limits = limits
        self._call_locally = call_locally
        self._security = security
        self._addresses: dict[int, tuple[str, int]] = {}
        #: By broker and API.
        self._channels: dict[tuple[int, int], Channel] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def send(self, broker_id: int, request: Request, *, timeout_ms: int) -> Response:
        """The answer, in the highest version that both sides know.

        Raises a `ChannelError` where none came: `ConnectError` if the request was certainly not carried out,
        `DisconnectedError` or `RequestTimeoutError` if it may have been, `UnsupportedRequestError` if the broker knows
        no version in which this can be said.
        """
        if broker_id == self._node_id:
            return await self._ask_ourselves(request, timeout_ms)
        response: Response = await self._channel_to(broker_id, request).request(request, timeout_ms=timeout_ms)
        return response

    async def _ask_ourselves(self, request: Request, timeout_ms: int) -> Response:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await self._call_locally(request, api(request.API_KEY).served.high)
        except TimeoutError:
            raise RequestTimeoutError(f"broker {self._node_id}", f"no answer in {timeout_ms} ms") from None
        except BrokerError as failure:
            raise ConnectError(f"broker {self._node_id}", str(failure)) from None

    def _channel_to(self, broker_id: int, request: Request) -> Channel:
        address = self._addresses.get(broker_id)
        if self._is_closed:
            raise ConnectError(f"broker {broker_id}", "this broker is stopping")
        if address is None:
            raise ConnectError(f"broker {broker_id}", f"the metadata has no listener {self._listener} of it")
        channel = self._channels.get((broker_id, request.API_KEY))
        if channel is None:
            channel = self._channels[broker_id, request.API_KEY] = Channel(
                *address,
                client_id=f"broker-{self._node_id}-{api(request.API_KEY).key.camel_name}",
                randomness=self._randomness,
                limits=self._limits,
                node_id=broker_id,
                security=self._security,
            )
        return channel

    def apply(self, image: ClusterImage, changed: tuple[int, ...]) -> None:
        """Brokers may be elsewhere than they were, or gone: who waits for an answer of those is told at once."""
        for broker_id in changed:
            broker = image.brokers.get(broker_id)
            endpoint = None if broker is None else broker.endpoint(self._listener)
            address = None if endpoint is None else (endpoint.host, endpoint.port)
            if address == self._addresses.get(broker_id):
                continue
            if address is None:
                del self._addresses[broker_id]
            else:
                self._addresses[broker_id] = address
            for key in [key for key in self._channels if key[0] == broker_id]:
                self._close_soon(self._channels.pop(key))

    def _close_soon(self, channel: Channel) -> None:
        task = asyncio.get_running_loop().create_task(channel.close(), name=f"close the channel to {channel.address}")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        self._is_closed = True
        for channel in self._channels.values():
            self._close_soon(channel)
        self._channels.clear()
        await asyncio.gather(*self._closing)
