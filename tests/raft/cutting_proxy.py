"""A way between processes that can be cut, silently: what is sent waits until it is healed, as TCP's packets do."""

from __future__ import annotations

import asyncio
import contextlib
from struct import Struct

from tests.raft.kv_server import client_id

HOST = "127.0.0.1"
#: The size of a frame, the api's key and version, the correlation id, the length of the client id.
_HEAD = Struct(">ihhih")


class Cuts:
    """Which ways are cut: (from, to), as ids of servers."""

    def __init__(self) -> None:
        self._cut: set[tuple[int, int]] = set()
        self._healed = asyncio.Event()

    def cut(self, *ways: tuple[int, int]) -> None:
        self._cut.update(ways)
        self._healed.clear()

    def isolate(self, one: int, others: list[int]) -> None:
        self.cut(*((one, other) for other in others), *((other, one) for other in others))

    def heal(self) -> None:
        self._cut.clear()
        self._healed.set()

    async def passable(self, way: tuple[int, int]) -> None:
        while way in self._cut:
            await self._healed.wait()


class CuttingProxy:
    """Stands before one server, and takes the connections of the others. It listens while the server lives: nobody
    listens at the port of a dead process."""

    def __init__(self, node_id: int, port: int, server_port: int, cuts: Cuts) -> None:
        self._node_id = node_id
        self._port = port
        self._server_port = server_port
        self._cuts = cuts
        self._listener: asyncio.Server | None = None
        self._talks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        self._listener = await asyncio.start_server(self._connected, HOST, self._port)

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    async def stop(self) -> None:
        self.close()
        for task in self._talks:
            task.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._talks.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._forward(reader, writer)
        finally:
            self._talks.discard(task)
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readexactly(_HEAD.size)
        name = await reader.readexactly(_HEAD.unpack(head)[-1])
        peer = next(each for each in range(1, 10) if client_id(each).encode() == name)
        there, back = (peer, self._node_id), (self._node_id, peer)
        await self._cuts.passable(there)
        server_reader, server_writer = await asyncio.open_connection(HOST, self._server_port)
        try:
            server_writer.write(head + name)
            pumps = [
                asyncio.ensure_future(self._pump(reader, server_writer, there)),
                asyncio.ensure_future(self._pump(server_reader, writer, back)),
            ]
            try:
                # Who of them closes it, and when, is seen at the other end, unless the way there is cut.
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in pumps:
                    each.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        finally:
            server_writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: tuple[int, int]) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                await self._cuts.passable(way)
                writer.write(data)
                await writer.drain()
        await self._cuts.passable(way)
