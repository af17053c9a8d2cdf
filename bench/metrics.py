"""What metrics and quotas cost: requests with and without them by processor time, and a scrape of 10,000 partitions.

The ratio of requests is the processor time of a node that counts nothing and offers nothing to that of one that does,
for the same requests; that of two that do not tells how much is noise. A scrape's ratio is its bound, 200 ms, to its
time; that of a stall 20 ms to the longest time for which a scrape kept the event loop.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import uvloop

from barnabas.aio import Admin
from barnabas.client.admin import NewTopic, QuotaEntity
from barnabas.client.admin.sync_admin import Admin as SyncAdmin
from barnabas.testing import AsyncEmbeddedBroker
from bench import load
from bench import node_clients as clients
from bench.measure import Result
from bench.node_brokers import Barnabas, cpu_ns, resident_bytes

PARTITIONS = 10_000
_TOPICS = 100
_CONNECTIONS = 20
#: What a node that counts nothing and has no quotas is held against: another like it, which shows the noise, one with
#: metrics and quotas of others, one with metrics and quotas of who asks.
_HOW = ("off to off", "off to on, quotas of others", "off to on, quotas of its own")
_TARGETS = (None, 0.98, 0.98)
_SCRAPE_BOUND_S = 0.2
_STALL_BOUND_S = 0.02


def run() -> Iterator[Result]:
    yield from _requests(rounds=16, seconds=0.5)
    yield from asyncio.Runner(loop_factory=uvloop.new_event_loop).run(_scrapes(PARTITIONS, 10))


def run_quickly() -> Iterator[Result]:
    yield from _requests(rounds=4, seconds=0.3)
    yield from asyncio.Runner(loop_factory=uvloop.new_event_loop).run(_scrapes(1000, 5))


def _requests(rounds: int, seconds: float) -> Iterator[Result]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as started:
        off, again = (Barnabas(Path(folder, name), "metrics.requests.enable=false") for name in ("off", "again"))
        on, own = (Barnabas(Path(folder, name), "metrics.listener=127.0.0.1:0") for name in ("on", "own"))
        nodes = (off, again, on, own)
        started_s = []
        for node in nodes:
            node.prepare()
            began_s = time.perf_counter()
            node.start()
            started.callback(node.stop)
            started_s.append(time.perf_counter() - began_s)
        idle = [resident_bytes(node.pid) for node in nodes]
        for node in nodes:
            with clients.connected(node.bootstrap) as peer:
                clients.create_topic(peer, "t", _CONNECTIONS)
                clients.create_topic(peer, "f", 1)
                peer.exchange(clients.produce_frame("f", [0], 10, 100))
        _set_quotas(on, "somebody else")
        _set_quotas(own, clients.CLIENT_ID)
        produce = [clients.produce_frame("t", [number], 10, 100) for number in range(_CONNECTIONS)]
        fetch = [clients.fetch_frame("f", 0, 1 << 20)] * _CONNECTIONS
        yield from _compared("produce, a batch of 10 records", nodes, produce, rounds, seconds)
        yield from _compared("fetch of 10 records", nodes, fetch, rounds, seconds)
    more_mb = (idle[2] - idle[0]) / 1e6
    detail = f"{idle[0] / 1e6:.1f} / {idle[2] / 1e6:.1f} MB"
    yield Result("metrics: idle memory, bound 5 MB more", 5 / max(more_mb, 0.1), 1.0, detail)
    yield Result(
        "metrics: start until it is ready",
        started_s[0] / started_s[2],
        None,
        f"{started_s[0]:.2f} / {started_s[2]:.2f} s",
    )


def _set_quotas(node: Barnabas, client_id: str) -> None:
    """So large that nobody ever waits: what is measured is the measuring."""
    quotas = dict.fromkeys(("producer_byte_rate", "consumer_byte_rate", "request_percentage"), 1e12)
    with SyncAdmin(bootstrap_servers=node.bootstrap) as admin:
        admin.alter_client_quotas({QuotaEntity(client_id=client_id): quotas})


def _compared(
    what: str, nodes: Sequence[Barnabas], frames: Sequence[bytes], rounds: int, seconds: float
) -> Iterator[Result]:
    """Of the first node to each of the others, by the best round of each. Who begins takes turns."""
    costs: list[list[float]] = [[] for _ in nodes]
    for number in range(rounds + 1):
        order = [(number + place) % len(nodes) for place in range(len(nodes))]
        for place in order:
            node = nodes[place]
            before_ns = cpu_ns(node.pid)
            done = load.exchange(node.bootstrap, frames, seconds)
            if number:  # the first round warms up
                costs[place].append((cpu_ns(node.pid) - before_ns) / done.requests / 1000)
    off_us = min(costs[0])
    for how, target, cost in zip(_HOW, _TARGETS, costs[1:], strict=True):
        detail = f"{off_us:.2f} / {min(cost):.2f} µs per request"
        yield Result(f"metrics: {what}, CPU {how}", off_us / min(cost), target, detail)


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
