"""Event loops to run stories on, a peer that sends any bytes, and a desk that answers when told to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, ClassVar, cast

from barnabas.net import Connection, ListenerSpec, Server, ServerLimits
from barnabas.wire import FrameSplitter, frame_parts
from tests.virtual_time import play

Story = Callable[[], Coroutine[Any, Any, None]]

TIMEOUT_S = 20
KIB = 1024
MIB = 1024 * KIB


def run_asyncio(story: Story) -> None:
    asyncio.run(_in_time(story))


def run_uvloop(story: Story) -> None:
    from barnabas.net.runtime import new_event_loop

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        assert "uvloop" in type(runner.get_loop()).__module__
        runner.run(_in_time(story))


def run_simulated(story: Story, seed: int = 1) -> None:
    """On virtual time: waiting takes none. Bytes arrive late and in pieces, as the seed says."""
    try:
        play(story(), seed=seed)
    finally:
        Peer.all_of_them.clear()


async def _in_time(story: Story) -> None:
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await story()
    finally:
        # Nothing of one story may stay behind for the next.
        for peer in Peer.all_of_them:
            peer.transport.abort()
        await asyncio.sleep(0.001)
        Peer.all_of_them.clear()


def framed(*frames: bytes) -> bytes:
    return b"".join(b"".join(frame_parts([frame])) for frame in frames)


class Peer(asyncio.Protocol):
    """The other end of a connection."""

    all_of_them: ClassVar[list[Peer]] = []

    def __init__(self) -> None:
        self.transport = cast(asyncio.Transport, None)
        self.frames: list[bytes] = []
        self.received_bytes = 0
        self.is_closed = False
        self._splitter = FrameSplitter()
        self._changed = asyncio.Event()

    @classmethod
    async def connect(cls, server: Server, listener: str = "PLAINTEXT", **options: Any) -> Peer:
        port = server.endpoints[listener][1]
        _, peer = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port, **options)
        return peer

    def send(self, *frames: bytes) -> None:
        self.transport.write(framed(*frames))

    async def answers(self, count: int) -> list[bytes]:
        await self.until(lambda: len(self.frames) >= count)
        return self.frames

    async def ask(self, frame: bytes) -> bytes:
        count = len(self.frames) + 1
        self.send(frame)
        return (await self.answers(count))[-1]

    async def closed(self) -> None:
        await self.until(lambda: self.is_closed, or_closed=True)

    async def until(self, holds: Callable[[], bool], *, or_closed: bool = False) -> None:
        while not holds():
            assert or_closed or not self.is_closed, "the connection was closed"
            self._changed.clear()
            await self._changed.wait()

    def stop_reading(self) -> None:
        self.transport.pause_reading()

    def read_on(self) -> None:
        self.transport.resume_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.all_of_them.append(self)

    def data_received(self, data: bytes) -> None:
        self.received_bytes += len(data)
        self.frames += map(bytes, self._splitter.feed(data))
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
        self._changed.set()


class Desk:
    """Takes requests. Answers each with itself, at once or when told to; `answer` may be replaced."""

    def __init__(self, *, is_patient: bool = False) -> None:
        self.is_patient = is_patient
        self.requests: list[tuple[Connection, bytes]] = []
        self.open: list[tuple[Connection, bytes]] = []
        self.answer: Callable[[Connection, bytes], None] = lambda connection, frame: connection.respond([frame])
        self._changed = asyncio.Event()

    def dispatch(self, connection: Connection, frame: bytearray) -> None:
        request = (connection, bytes(frame))
        self.requests.append(request)
        self._changed.set()
        if self.is_patient:
            self.open.append(request)
        else:
            self.answer(*request)

    @property
    def frames(self) -> list[bytes]:
        return [frame for _, frame in self.requests]

    def answer_next(self) -> None:
        self.answer(*self.open.pop(0))

    async def arrived(self, count: int) -> None:
        while len(self.requests) < count:
            self._changed.clear()
            await self._changed.wait()


def is_urgent(frame: bytes | bytearray) -> bool:
    return frame[:1] == b"!"


async def started(desk: Desk, *specs: ListenerSpec, **limits: Any) -> Server:
    server = Server(is_urgent, ServerLimits(**limits))
    await server.start(specs or [ListenerSpec("PLAINTEXT", "127.0.0.1", 0)], desk.dispatch)
    return server


async def eventually(holds: Callable[[], bool]) -> None:
    """For what no callback tells: look again after each turn of the loop."""
    for _ in range(100_000):
        if holds():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it has not come true")


async def all_of(awaitables: Sequence[Awaitable[Any]]) -> list[Any]:
    return await asyncio.gather(*awaitables)
