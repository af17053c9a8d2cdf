"""A client: asks one server after the other until the leader has answered."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

from barnabas.raft import parse_voters


class Client:
    """Keeps its connection to whoever led last."""

    def __init__(self, hosts: str, patience_s: float = 10.0, attempt_s: float = 3.0) -> None:
        self._hosts = parse_voters(hosts)
        self._ids = sorted(self._hosts)
        self._leader_id = self._ids[0]
        self._patience_s = patience_s
        self._attempt_s = attempt_s
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def set(self, key: str, value: Any) -> dict[str, Any]:
        return await self._ask({"id": uuid.uuid4().hex, "key": key, "value": value})

    async def get(self, key: str) -> dict[str, Any]:
        return await self._ask({"key": key})

    async def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        async with asyncio.timeout(self._patience_s):
            while True:
                try:
                    response = await asyncio.wait_for(self._ask_once(request), self._attempt_s)
                except (OSError, TimeoutError, ValueError):
                    response = {"leader": None}
                if "leader" not in response:
                    return response
                self.close()
                known = response["leader"]
                self._leader_id = self._next_id() if known in (None, self._leader_id) else known
                await asyncio.sleep(0.05)

    def _next_id(self) -> int:
        return self._ids[(self._ids.index(self._leader_id) + 1) % len(self._ids)]

    async def _ask_once(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._streams is None:
            address = self._hosts[self._leader_id]
            self._streams = await asyncio.open_connection(address.host, address.port + 1)
        reader, writer = self._streams
        writer.write(json.dumps(request).encode() + b"\n")
        response: dict[str, Any] = json.loads(await reader.readline())
        return response

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
