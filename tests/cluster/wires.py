"""What stands between the nodes and their controllers' listeners, so that a test can cut it.

Each controller is found at a port of ours, and all that comes there is carried on; where a test wants it, so is each
broker by the others. Who connects is known by the client id of its first request. A cut loses nothing and closes
nothing: what is sent waits, as in TCP, until it is healed.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import struct
import threading
from collections.abc import Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, TypeVar

from tests.cluster.nodes import Node

_NODE_ID: Final = re.compile(rb"(?:raft-client|broker)-(\d+)")
_PIECE_BYTES: Final = 65536
_PATIENCE_S: Final = 10.0
#: Two wires may lead to one node: the second has a number that is higher by this.
TO_BROKER: Final = 1000
T = TypeVar("T")


class Wires:
    """Everything happens on a thread of its own. `addresses` are where others find the controllers."""

    def __init__(self, node_ids: Iterable[int]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="wires", daemon=True)
        self._thread.start()
        self._targets: dict[int, str] = {}
        self._servers: dict[int, asyncio.Server] = {}
        self._cut: set[int] = set()
        #: All that was carried so far, in both directions.
        self.carried_bytes = 0
        self._changed = asyncio.Event()
        self._pumps: set[asyncio.Task[None]] = set()
        self._ports = {each: self._run(self._listen(each, 0)) for each in node_ids}

    @property
    def addresses(self) -> dict[int, str]:
        return {each: f"127.0.0.1:{port}" for each, port in self._ports.items()}

    def carry_to(self, nodes: Iterable[Node]) -> None:
        self._targets.update({each.node_id: each.controller for each in nodes})

    def carry_to_brokers(self, addresses: Mapping[int, str]) -> None:
        """Where other brokers find each, by the ids of the nodes."""
        self._targets.update({TO_BROKER + each: address for each, address in addresses.items()})

    # Faults

    def cut(self, node_id: int) -> None:
        """Nothing reaches this node any more, nor does it reach anybody."""
        self._run(self._set_cut(self._cut | {node_id}))

    def heal(self) -> None:
        self._run(self._set_cut(set()))

    def down(self, node_id: int) -> None:
        """The node is about to die: its ports refuse, as those of a dead process do."""
        for wire in (node_id, TO_BROKER + node_id):
            self._run(self._close(wire))

    def up(self, node_id: int) -> None:
        for wire in (node_id, TO_BROKER + node_id):
            if wire in self._ports and wire not in self._servers:
                self._run(self._listen(wire, self._ports[wire]))

    async def _set_cut(self, cut: set[int]) -> None:
        self._cut = cut
        self._changed.set()
        self._changed = asyncio.Event()

    # Carrying

    async def _listen(self, node_id: int, port: int) -> int:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._carry(node_id, reader, writer)

        server = self._servers[node_id] = await asyncio.start_server(connected, "127.0.0.1", port)
        bound: int = server.sockets[0].getsockname()[1]
        return bound

    async def _carry(self, to_id: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there: asyncio.StreamWriter | None = None
        task = asyncio.current_task()
        assert task is not None
        self._pumps.add(task)
        try:
            size = await reader.readexactly(4)
            first = await reader.readexactly(struct.unpack(">i", size)[0])
            named = _NODE_ID.search(first[:100])
            ends = {to_id % TO_BROKER} | (set() if named is None else {int(named[1])})
            await self._until_whole(ends)
            host, _, port = self._targets[to_id].rpartition(":")
            back, there = await asyncio.open_connection(host, int(port))
            there.write(size + first)
            self.carried_bytes += len(size) + len(first)
            _, pending = await asyncio.wait(
                [
                    asyncio.ensure_future(self._pump(reader, there, ends)),
                    asyncio.ensure_future(self._pump(back, writer, ends)),
                ],
                return_when=asyncio.FIRST_COMPLETED,
            )
            for each in pending:
                each.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._pumps.discard(task)
            writer.close()
            if there is not None:
                there.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ends: set[int]) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(_PIECE_BYTES):
                await self._until_whole(ends)
                self.carried_bytes += len(piece)
                writer.write(piece)
                await writer.drain()
            await self._until_whole(ends)

    async def _until_whole(self, ends: set[int]) -> None:
        while ends & self._cut:
            await self._changed.wait()

    # Life

    async def _close(self, node_id: int) -> None:
        server = self._servers.pop(node_id, None)
        if server is not None:
            server.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE_S)

    async def _end(self) -> None:
        for node_id in list(self._servers):
            await self._close(node_id)
        pumps = list(self._pumps)
        for each in pumps:
            each.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)

    def __enter__(self) -> Wires:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE_S)
        self._loop.close()
