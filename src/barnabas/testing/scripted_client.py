"""A client that says exactly what a test tells it to, in Kafka's protocol, and nothing of its own accord.

It works on any event loop: in a simulated world and against a real port.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, cast

from barnabas.wire.apis import api
from barnabas.wire.compiler import Buffer
from barnabas.wire.frames import FrameSplitter, frame_parts
from barnabas.wire.headers import decode_response, encode_request
from barnabas.wire.message import Request, Response

__all__ = ["ScriptedClient"]


class ScriptedClient(asyncio.Protocol):
    """One connection. `await client.ask(request)` sends a request and returns the response; `send` does not wait, so
    that several can be on their way. A connection that ends fails what is waiting with `ConnectionError`."""

    def __init__(self, client_id: str = "scripted", *, timeout_s: float = 60.0) -> None:
        self.client_id = client_id
        self.timeout_s = timeout_s
        self.is_connected = False
        self._splitter = FrameSplitter()
        self._waiting: deque[tuple[int, Request, int, asyncio.Future[Any]]] = deque()
        self._next_id = 0
        self._transport: asyncio.Transport

    @classmethod
    async def connect(
        cls, bootstrap: str, client_id: str = "scripted", *, timeout_s: float = 60.0, address: str | None = None
    ) -> ScriptedClient:
        """Connect to `host:port`; in a simulated world from a host of one's choice."""
        host, _, port = bootstrap.rpartition(":")
        client = cls(client_id, timeout_s=timeout_s)
        local = None if address is None else (address, 0)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(timeout_s):
            await loop.create_connection(lambda: client, host, int(port), local_addr=local)
        return client

    def send(self, request: Request, version: int | None = None) -> asyncio.Future[Any]:
        """Send a request, in the newest version that nodes serve unless told otherwise; the response will come."""
        version = api(request.API_KEY).served.high if version is None else version
        self._next_id += 1
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if not self.is_connected:
            future.set_exception(ConnectionError("the connection is closed"))
            return future
        self._waiting.append((self._next_id, request, version, future))
        self.send_raw(frame_parts(encode_request(request, version, self._next_id, self.client_id)))
        return future

    def send_raw(self, parts: list[Buffer]) -> None:
        """Send any bytes."""
        self._transport.write(b"".join(parts))

    async def ask(self, request: Request, version: int | None = None) -> Any:
        """Send a request and wait for its response."""
        async with asyncio.timeout(self.timeout_s):
            return await self.send(request, version)

    def tell(self, request: Request, version: int | None = None) -> None:
        """Send a request that gets no response (Produce with acks=0)."""
        version = api(request.API_KEY).served.high if version is None else version
        self._next_id += 1
        self.send_raw(frame_parts(encode_request(request, version, self._next_id, self.client_id)))

    async def close(self) -> None:
        """Close the connection and wait until it is."""
        if self.is_connected:
            self._transport.close()
            await self._closed

    def abort(self) -> None:
        """Break the connection, as a client does that dies."""
        self._transport.abort()

    # The protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's do not inherit from it
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_connected = True

    def data_received(self, data: bytes) -> None:
        for frame in self._splitter.feed(data):
            expected_id, request, version, future = self._waiting.popleft()
            response_type: type[Response] = api(request.API_KEY).response
            if int.from_bytes(frame[:4], "big", signed=True) != expected_id:
                raise AssertionError(f"an answer to request {expected_id} was due, another one came")
            if len(frame) > 5 and request.API_KEY == 18 and frame[4:6] == b"\x00\x23":
                version = 0  # a node that does not know the version of ApiVersions answers in the oldest
            _, response = decode_response(response_type, version, frame)
            if not future.done():
                future.set_result(response)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_connected = False
        waiting, self._waiting = self._waiting, deque()
        for _, request, _, future in waiting:
            if not future.done():
                future.set_exception(
                    ConnectionError(f"the connection ended before {type(request).__name__} was answered")
                )
                future.exception()  # nobody need look
        if not self._closed.done():
            self._closed.set_result(None)
