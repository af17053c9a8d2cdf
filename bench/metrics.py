"""What metrics cost: requests with and without them by processor time, and a scrape of 10,000 partitions.

The ratio of requests is the processor time of a node that counts nothing and offers nothing to that of one that does,
for the same requests. A scrape's ratio is its bound, 200 ms, to its time; that of a stall 20 ms to the longest time for
which a scrape kept the event loop.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import uvloop

from barnabas.aio import Admin
from barnabas.client.admin import NewTopic
from barnabas.testing import AsyncEmbeddedBroker
from bench import load
from bench import node_clients as clients
from bench.measure import Result
from bench.node_brokers import Barnabas, cpu_seconds, resident_bytes

PARTITIONS = 10_000
_TOPICS = 100
_CONNECTIONS = 20
_SCRAPE_BOUND_S = 0.2
_STALL_BOUND_S = 0.02


def run() -> Iterator[Result]:
    yield from _requests(rounds=9, seconds=1.5)
    yield from asyncio.Runner(loop_factory=uvloop.new_event_loop).run(_scrapes(PARTITIONS, 10))


def run_quickly() -> Iterator[Result]:
    yield from _requests(rounds=3, seconds=0.5)
    yield from asyncio.Runner(loop_factory=uvloop.new_event_loop).run(_scrapes(1000, 5))


def _requests(rounds: int, seconds: float) -> Iterator[Result]:
    with tempfile.TemporaryDirectory() as folder:
        off = Barnabas(Path(folder, "off"), "metrics.requests.enable=false")
        on = Barnabas(Path(folder, "on"), "metrics.listener=127.0.0.1:0")
        started_s = []
        for node in (off, on):
            node.prepare()
            began_s = time.perf_counter()
            node.start()
            started_s.append(time.perf_counter() - began_s)
        try:
            idle = [resident_bytes(node.pid) for node in (off, on)]
            for node in (off, on):
                with clients.connected(node.bootstrap) as peer:
                    clients.create_topic(peer, "t", _CONNECTIONS)
                    clients.create_topic(peer, "f", 1)
                    peer.exchange(clients.produce_frame("f", [0], 10, 100))
            produce = [clients.produce_frame("t", [number], 10, 100) for number in range(_CONNECTIONS)]
            fetch = [clients.fetch_frame("f", 0, 1 << 20)] * _CONNECTIONS
            yield _compared("produce, a batch of 10 records", (off, on), produce, rounds, seconds)
            yield _compared("fetch of 10 records", (off, on), fetch, rounds, seconds)
        finally:
            for node in (off, on):
                node.stop()
    more_mb = (idle[1] - idle[0]) / 1e6
    detail = f"{idle[0] / 1e6:.1f} / {idle[1] / 1e6:.1f} MB"
    yield Result("metrics: idle memory, bound 5 MB more", 5 / max(more_mb, 0.1), 1.0, detail)
    yield Result(
        "metrics: start until it is ready",
        started_s[0] / started_s[1],
        None,
        f"{started_s[0]:.2f} / {started_s[1]:.2f} s",
    )


def _compared(
    what: str, nodes: tuple[Barnabas, Barnabas], frames: Sequence[bytes], rounds: int, seconds: float
) -> Result:
    costs: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 1):
        for node, found in zip(nodes, costs, strict=True):
            before_s = cpu_seconds(node.pid)
            done = load.exchange(node.bootstrap, frames, seconds)
            if number:  # the first round warms up
                found.append((cpu_seconds(node.pid) - before_s) / done.requests * 1e6)
    ratio = statistics.median(a / b for a, b in zip(*costs, strict=True))
    off_us, on_us = (statistics.median(each) for each in costs)
    return Result(f"metrics: {what}, CPU without to with", ratio, 0.98, f"{off_us:.2f} / {on_us:.2f} µs per request")


async def _scrapes(partitions: int, count: int) -> list[Result]:
    async with AsyncEmbeddedBroker(overrides={"metrics.listener": "127.0.0.1:0"}) as broker:
        async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            for number in range(_TOPICS):
                await admin.create_topics([NewTopic(f"topic-{number}", partitions // _TOPICS, 1)])
        metrics = broker.node.metrics.node_metrics
        took, stalls, cpu, size = [], [], [], 0
        for _ in range(count):
            await asyncio.sleep(0.3)
            gaps: list[float] = []
            watching = asyncio.get_running_loop().create_task(_watch(gaps))
            await asyncio.sleep(0)
            began_s, cpu_s = time.perf_counter(), time.thread_time()
            size = sum(map(len, await metrics.text()))
            took.append(time.perf_counter() - began_s)
            cpu.append(time.thread_time() - cpu_s)
            watching.cancel()
            stalls.append(max(gaps))
        detail = (
            f"{statistics.median(took) * 1000:.0f} ms, {size / 1e6:.1f} MB, CPU {statistics.median(cpu) * 1000:.0f} ms"
        )
        stall_s = max(stalls)
        return [
            Result(
                f"metrics: a scrape of {partitions:,} partitions, bound 200 ms",
                _SCRAPE_BOUND_S / statistics.median(took),
                1.0,
                detail,
            ),
            Result(
                "  the longest that it kept the loop, bound 20 ms",
                _STALL_BOUND_S / stall_s,
                1.0,
                f"{stall_s * 1000:.1f} ms",
            ),
        ]


async def _watch(gaps: list[float]) -> None:
    """How long others keep the loop: between two of its turns, by processor time, since others want that, too."""
    last_s = time.thread_time()
    while True:
        await asyncio.sleep(0)
        now_s = time.thread_time()
        gaps.append(now_s - last_s)
        last_s = now_s
