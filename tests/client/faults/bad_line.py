"""A line between clients and a broker that a test can cut in the midst of an answer, or fill with noise."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from barnabas.testing import EmbeddedBroker


class BadLine:
    """Passes on what it is given, on a thread of its own. Trouble is for one connection at a time, and then over."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._target = ("", 0)
        self.port = 0
        #: After so many more bytes of answers the line is cut.
        self.cut_after_bytes: int | None = None
        #: The next answer is replaced by this.
        self.noise: bytes | None = None
        self.trouble_count = 0

    @property
    def is_whole(self) -> bool:
        return self.cut_after_bytes is None

    def start(self) -> None:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def lead_to(self, bootstrap_servers: str) -> None:
        host, _, port = bootstrap_servers.rpartition(":")
        self._target = (host, int(port))

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            broker_reader, broker_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.close()
            return
        self._writers += [writer, broker_writer]
        asking = asyncio.create_task(self._pass_on(reader, broker_writer, is_answer=False))
        try:
            await self._pass_on(broker_reader, writer, is_answer=True)
        finally:
            asking.cancel()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool) -> None:
        try:
            while data := await reader.read(1 << 16):
                if is_answer and self.noise is not None:
                    data, self.noise = self.noise, None
                    self.trouble_count += 1
                is_cut = is_answer and self.cut_after_bytes is not None and len(data) > self.cut_after_bytes
                if is_answer and self.cut_after_bytes is not None:
                    data = data[: self.cut_after_bytes] if is_cut else data
                    self.cut_after_bytes -= len(data)
                writer.write(data)
                await writer.drain()
                if is_cut:
                    self.cut_after_bytes = None
                    self.trouble_count += 1
                    break
        except OSError:
            pass
        finally:
            writer.close()


@contextmanager
def broker_behind_a_bad_line(**settings: Any) -> Iterator[tuple[EmbeddedBroker, BadLine, str]]:
    """The broker, the line, and the address of the line, which is also what the broker tells its clients."""
    line = BadLine()
    line.start()
    address = f"127.0.0.1:{line.port}"
    overrides = {"advertised.listeners": f"PLAINTEXT://{address}"}
    try:
        with EmbeddedBroker(overrides=overrides, **settings) as broker:
            line.lead_to(broker.bootstrap_servers)
            yield broker, line, address
    finally:
        line.stop()
