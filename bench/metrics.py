"""What metrics and quotas cost: requests with and without them by processor time, and a scrape of 10,000 partitions.

The ratio of requests is the processor time of a node while it counts nothing, and nobody has a quota, to that of the
same process while it does, and somebody has: two processes differ by some percent for where their memory lies. What
stands behind `±` is the standard error over nodes. A scrape tells of a group that is behind in all partitions; its
ratio is its bound, 200 ms, to its time; that of a stall 20 ms to the longest time for which it kept the event loop.
"""

from __future__ import annotations

import asyncio
import math
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import uvloop

from barnabas import OffsetAndMetadata, TopicPartition
from barnabas.aio import Admin, Producer
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
_NODES = 6
_LEAST = 0.98
#: Whose quotas there are, beside none at all. The first sets them on a node that counts requests for them alone.
_OTHERS, _OWN = "somebody else", clients.CLIENT_ID
_WHOSE = {_OTHERS: "quotas of others", _OWN: "quotas of its own"}
#: For how long nobody asks for anything, and what the listener may cost meanwhile: requests are compared without it.
_IDLE_S = 10.0
_IDLE_BOUND = 0.01
#: Starts differ by some percent from one to the next.
_LEAST_OF_START = 0.95
_SCRAPE_BOUND_S = 0.2
_STALL_BOUND_S = 0.02


def run() -> Iterator[Result]:
    yield from _requests(_NODES, rounds=12, seconds=0.25)
    yield from asyncio.Runner(loop_factory=uvloop.new_event_loop).run(_scrapes(PARTITIONS, 10))


def run_quickly() -> Iterator[Result]:
    yield from _requests(2, rounds=5, seconds=0.2)
    yield from asyncio.Runner(loop_factory=uvloop.new_event_loop).run(_scrapes(1000, 5))


def _requests(count: int, rounds: int, seconds: float) -> Iterator[Result]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as started:
        # Without `metrics.requests.enable` requests are counted as long as there are quotas, which are live.
        off = [Barnabas(Path(folder, f"off-{number}"), "metrics.requests.enable=false") for number in range(count)]
        on = [Barnabas(Path(folder, f"on-{number}"), "metrics.listener=127.0.0.1:0") for number in range(count)]
        started_s = {node: _start(node, started) for pair in zip(off, on, strict=True) for node in pair}
        idle = {node: resident_bytes(node.pid) for node in started_s}
        cpu_before_ns = {node: cpu_ns(node.pid) for node in started_s}
        time.sleep(_IDLE_S)
        idle_share = {node: (cpu_ns(node.pid) - before_ns) / _IDLE_S / 1e9 for node, before_ns in cpu_before_ns.items()}
        for node in on:
            node.stop()
        for node in off:
            with clients.connected(node.bootstrap) as peer:
                clients.create_topic(peer, "t", _CONNECTIONS)
                clients.create_topic(peer, "f", 1)
                peer.exchange(clients.produce_frame("f", [0], 10, 100))
        produce = [clients.produce_frame("t", [number], 10, 100) for number in range(_CONNECTIONS)]
        fetch = [clients.fetch_frame("f", 0, 1 << 20)] * _CONNECTIONS
        yield from _compared("produce, a batch of 10 records", off, produce, rounds, seconds)
        yield from _compared("fetch of 10 records", off, fetch, rounds, seconds)
    off_mb, on_mb = (statistics.median(idle[node] for node in nodes) / 1e6 for nodes in (off, on))
    detail = f"{off_mb:.1f} / {on_mb:.1f} MB"
    yield Result("metrics: idle memory, bound 5 MB more", 5 / max(on_mb - off_mb, 0.1), 1.0, detail)
    off_s, on_s = (statistics.median(started_s[node] for node in nodes) for nodes in (off, on))
    yield Result("metrics: start until it is ready", off_s / on_s, _LEAST_OF_START, f"{off_s:.2f} / {on_s:.2f} s")
    off_share, on_share = (statistics.median(idle_share[node] for node in nodes) for nodes in (off, on))
    more = max(on_share - off_share, 1e-5)
    detail = f"{off_share:.2%} / {on_share:.2%} of a core"
    yield Result("metrics: a listener that nobody asks, bound 1 % of a core more", _IDLE_BOUND / more, 1.0, detail)


def _start(node: Barnabas, started: ExitStack) -> float:
    """How long that took."""
    node.prepare()
    began_s = time.perf_counter()
    node.start()
    started.callback(node.stop)
    return time.perf_counter() - began_s


def _compared(
    what: str, nodes: Sequence[Barnabas], frames: Sequence[bytes], rounds: int, seconds: float
) -> Iterator[Result]:
    """Each node counts by the medians of its rounds, in which it has no quotas, those of others and those of who asks,
    beginning with another each time."""
    costs: dict[str | None, list[float]] = {None: [], _OTHERS: [], _OWN: []}
    for node in nodes:
        told: dict[str | None, list[float]] = {owner: [] for owner in costs}
        for number in range(rounds + 1):
            first = number % len(told)
            for owner in [*told][first:] + [*told][:first]:
                with _quotas_of(owner, node):
                    cost_us = _cpu_us(node, frames, seconds)
                if number:  # the first round warms up
                    told[owner].append(cost_us)
        for owner, each in told.items():
            costs[owner].append(statistics.median(each))
    off = costs.pop(None)
    for owner, on in costs.items():
        ratios = [before / after for before, after in zip(off, on, strict=True)]
        error = statistics.stdev(ratios) / math.sqrt(len(ratios))
        detail = f"{statistics.fmean(off):.2f} / {statistics.fmean(on):.2f} µs per request, ± {error:.3f}"
        name = f"metrics: {what}, CPU off to on, {_WHOSE[owner or '']}"
        yield Result(name, statistics.fmean(ratios), _LEAST, detail)


@contextmanager
def _quotas_of(owner: str | None, node: Barnabas) -> Iterator[None]:
    """So large that nobody ever waits: what is measured is the measuring."""
    if owner is None:
        yield
        return
    keys = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")
    with SyncAdmin(bootstrap_servers=node.bootstrap) as admin:
        admin.alter_client_quotas({QuotaEntity(client_id=owner): dict.fromkeys(keys, 1e12)})
        yield
        admin.alter_client_quotas({QuotaEntity(client_id=owner): dict.fromkeys(keys)})


def _cpu_us(node: Barnabas, frames: Sequence[bytes], seconds: float) -> float:
    """Of a request."""
    before_ns = cpu_ns(node.pid)
    done = load.exchange(node.bootstrap, frames, seconds)
    return (cpu_ns(node.pid) - before_ns) / done.requests / 1000


async def _scrapes(partitions: int, count: int) -> list[Result]:
    async with AsyncEmbeddedBroker(overrides={"metrics.listener": "127.0.0.1:0"}) as broker:
        async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            for number in range(_TOPICS):
                await admin.create_topics([NewTopic(f"topic-{number}", partitions // _TOPICS, 1)])
            await _lag(admin, broker.bootstrap_servers, partitions)
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


async def _lag(admin: Admin, bootstrap: str, partitions: int) -> None:
    """A group that has read nothing of what is in all of them."""
    places = [TopicPartition(f"topic-{number % _TOPICS}", number // _TOPICS) for number in range(partitions)]
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for place in places:
            await producer.send(place.topic, b"unread", partition=place.partition)
        await producer.flush()
    await admin.alter_group_offsets("behind", dict.fromkeys(places, OffsetAndMetadata(0)))


async def _watch(gaps: list[float]) -> None:
    """How long others keep the loop: between two of its turns, by processor time, since others want that, too."""
    last_s = time.thread_time()
    while True:
        await asyncio.sleep(0)
        now_s = time.thread_time()
        gaps.append(now_s - last_s)
        last_s = now_s
