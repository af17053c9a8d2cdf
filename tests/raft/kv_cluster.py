"""Three servers of `examples.raft_kv` as processes: started, killed, stopped, cut off from each other."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

from tests.raft.cutting_proxy import HOST, Cuts, CuttingProxy

ROOT = Path(__file__).parents[2]
#: Below those that systems give to who asks for any port: nobody else is given ours between two starts.
_PORTS = range(20_000, 32_000)


class ServerProcess:
    """One server. Its proxy listens as long as it lives."""

    def __init__(
        self, node_id: int, hosts: str, port: int, folder: Path, proxy: CuttingProxy, plant: str | None
    ) -> None:
        self.node_id = node_id
        self._client_port = port + 1
        self.proxy = proxy
        self.log = folder / f"server-{node_id}.log"
        self._command = [sys.executable, "-m", "tests.raft.kv_server", hosts, str(node_id)]
        self._command += ["--data-dir", str(folder / f"data-{node_id}"), "--listen", str(port + 2)]
        self._command += [] if plant is None else ["--plant", plant]
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it, and wait until it takes clients."""
        await self.proxy.open()
        paths = os.pathsep.join(dict.fromkeys([str(ROOT), str(ROOT / "src"), *filter(None, sys.path)]))
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": paths},
                cwd=ROOT,
            )
        async with asyncio.timeout(60):
            while not await self._takes_clients():
                assert self._process.returncode is None, self.log.read_text()
                await asyncio.sleep(0.02)

    async def _takes_clients(self) -> bool:
        try:
            _, writer = await asyncio.open_connection(HOST, self._client_port)
        except OSError:
            return False
        writer.close()
        return True

    async def kill(self) -> None:
        """kill -9. It need not be there any more."""
        self.proxy.close()
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def stop(self) -> int:
        """End it as an operator does; its exit code."""
        assert self._process is not None
        if self._process.returncode is None:
            self._process.terminate()
        return await asyncio.wait_for(self._process.wait(), 20)

    def pause(self) -> None:
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def signal(self, which: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(which)


class KvCluster:
    """Three servers, each behind its proxy. Clients reach them directly, whatever is cut."""

    def __init__(self, folder: Path, *, plant: str | None = None) -> None:
        self.cuts = Cuts()
        ports = _free_ports(3)
        self.hosts = ",".join(f"{HOST}:{port}:{node_id}" for node_id, port in enumerate(ports, 1))
        self.servers: dict[int, ServerProcess] = {}
        for node_id, port in enumerate(ports, 1):
            proxy = CuttingProxy(node_id, port, port + 2, self.cuts)
            self.servers[node_id] = ServerProcess(node_id, self.hosts, port, folder, proxy, plant)

    @property
    def ids(self) -> Sequence[int]:
        return sorted(self.servers)

    def others(self, node_id: int) -> list[int]:
        return [each for each in self.ids if each != node_id]

    async def __aenter__(self) -> Self:
        try:
            async with asyncio.TaskGroup() as starting:
                for each in self.servers.values():
                    starting.create_task(each.start())
        except BaseException:
            await self.end()
            raise
        return self

    async def end(self) -> None:
        for each in self.servers.values():
            await each.kill()
        for each in self.servers.values():
            await each.proxy.stop()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        await self.end()

    def logs(self) -> str:
        """The last that each server said."""
        found = [(each.node_id, each.log.read_text(errors="replace")[-3000:]) for each in self.servers.values()]
        return "\n".join(f"--- server {node_id}\n{text}" for node_id, text in found)


def _free_ports(count: int) -> list[int]:
    """Ports that are free with the two above them: for the proxy, for clients, for the server itself."""
    random = Random()
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(_PORTS.start, _PORTS.stop, 3)
        if port not in found and all(_is_free(port + place) for place in range(3)):
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
