"""How full disks are is told without waiting for one that does not answer, and not told where nobody knows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from barnabas.base.metrics.exposition import Exposition, whole_text
from barnabas.broker.metrics.logs import DiskReader
from barnabas.storage.files import Space
from tests.virtual_time import on_virtual_time


class Disk:
    """A log directory as far as its space goes, whose look takes as long as the test wants."""

    def __init__(self, path: str, space: Space) -> None:
        self.path = path
        self.answer = space
        self.is_online = True
        self.logs: dict[object, object] = {}
        self.looks = 0

    def space(self) -> Space:
        self.looks += 1
        return self.answer


class Node:
    def __init__(self, *disks: Disk) -> None:
        self.disks = disks
        self.reader = DiskReader()
        #: By directory, of those that hang: when they do not any more.
        self.hung: dict[str, asyncio.Event] = {}
        cleaner = SimpleNamespace(
            uncleanable=(), largest_dirty_ratio=0, last_look_ms=None, last_cleaning_ms=0, cleaned_count=0
        )
        logs = SimpleNamespace(directories=disks, cleaner=cleaner, flush_ms=0, flush_count=0)
        clock = SimpleNamespace(monotonic_ms=lambda: 0)
        self.parts: Any = SimpleNamespace(
            services=SimpleNamespace(logs=logs), runtime=SimpleNamespace(offload=self.offload, clock=clock)
        )

    async def offload(self, work: Callable[[], Space]) -> Space:
        disk: Disk = work.__self__  # type: ignore[attr-defined]
        found = work()
        if disk.path in self.hung:
            await self.hung[disk.path].wait()
        return found

    async def free(self) -> dict[str, int]:
        """What a scrape tells is free, by directory."""
        out = Exposition()
        await self.reader.look(self.parts)
        for _ in self.reader.collect(self.parts, out):
            pass
        lines = [line for line in whole_text(out).splitlines() if line.startswith("barnabas_logdirectory_free_bytes{")]
        return {line.split('"')[1]: int(line.rpartition(" ")[2]) for line in lines}


@on_virtual_time
async def test_a_disk_that_hangs_is_asked_once_and_keeps_no_other_waiting() -> None:
    loop = asyncio.get_running_loop()
    near, far = Disk("/near", Space(1000, 400)), Disk("/far", Space(1000, 700))
    node = Node(near, far)
    assert await node.free() == {"/near": 400, "/far": 700}
    node.hung["/far"] = asyncio.Event()
    near.answer = Space(1000, 300)
    began_s = loop.time()
    for _ in range(20):
        assert await node.free() == {"/near": 300, "/far": 700}, "what was known of it"
    assert loop.time() - began_s < 1
    assert far.looks == 2, "one at a time"
    node.hung.pop("/far").set()
    far.answer = Space(1000, 600)
    await asyncio.sleep(1)
    assert await node.free() == {"/near": 300, "/far": 600}
    node.reader.stop()


@on_virtual_time
async def test_of_a_disk_that_never_said_how_full_it_is_nothing_is_told() -> None:
    mute, silent, failed = Disk("/mute", Space(-1, -1)), Disk("/silent", Space(9, 9)), Disk("/failed", Space(9, 9))
    node = Node(mute, silent, failed)
    node.hung["/silent"] = asyncio.Event()
    failed.is_online = False
    assert await node.free() == {}, "neither -1 nor anything else"
    assert failed.looks == 0
    mute.answer = Space(10, 5)
    assert await node.free() == {"/mute": 5}
    mute.answer = Space(-1, -1)
    assert await node.free() == {}
    node.reader.stop()
