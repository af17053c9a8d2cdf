"""Three replicas of everything: produce with acks=all, leaders that die or stop, followers that idle or catch up."""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread
from typing import Final, cast

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.cluster.asking import active, all_unfenced, ask, leaders, replicas_in_sync, until
from tests.cluster.nodes import Cluster, Node
from tests.cluster.records import LibrdkafkaSender
from tests.oracles import missing

from barnabas.wire.messages.metadata import MetadataRequest, MetadataResponse
from bench import node_clients as clients
from bench.cluster_nodes import KafkaCluster, OurCluster
from bench.measure import Result
from bench.node_brokers import cpu_seconds
from bench.node_contest import Figures, cost, cpu_ratio, paired

FACTOR: Final = 3
PRODUCE_TARGET: Final = 1.2
SMALL_PARTITIONS: Final = 99
PRODUCE_S: Final = 4.0
PAIRS: Final = 5
QUICK_PRODUCE_S: Final = 2.0
WARM_UP_S: Final = 10.0
ROUNDS: Final = 20
QUICK_ROUNDS: Final = 2
LEADERSHIPS: Final = 1_000
QUICK_LEADERSHIPS: Final = 60
IDLE_S: Final = 10.0
REPLICAS: Final = 10_000
QUICK_REPLICAS: Final = 200
CATCH_UP_MIB: Final = 400
QUICK_CATCH_UP_MIB: Final = 32
STOP_BUDGET_S: Final = 2.0
START_BUDGET_S: Final = 10.0
FOLLOWING_BUDGET: Final = 0.03
CATCH_UP_MB_S: Final = 150.0
#: A little more than `broker.session.timeout.ms`.
_SESSION_S: Final = 10.0
_PATIENCE_S: Final = 180.0
_SETTINGS: Final = {"min.insync.replicas": "2"}

Makers = dict[str, Callable[[Path], Cluster]]


def makers() -> Makers:
    found: Makers = {"ours": lambda folder: OurCluster(folder, _SETTINGS)}
    if missing() is None:
        found["Kafka"] = lambda folder: KafkaCluster(folder, _SETTINGS)
    return found


@contextlib.contextmanager
def one_cluster(maker: Callable[[Path], Cluster]) -> Iterator[Cluster]:
    """Alone on the machine: idle nodes of the other kind would take their share."""
    with tempfile.TemporaryDirectory() as folder, maker(Path(folder)) as cluster:
        all_unfenced(cluster)
        yield cluster


def created(cluster: Cluster, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    settings = {"segment.bytes": str(64 * 2**20)}
    for each in admin.create_topics([NewTopic(topic, partitions, FACTOR, config=settings)]).values():
        each.result(60)
    in_sync(cluster, topic)


def deleted(cluster: Cluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for each in admin.delete_topics([topic]).values():
        each.result(60)


def in_sync(cluster: Cluster, topic: str) -> None:
    for node in cluster.brokers:
        until(
            f"all replicas of {topic} are in sync",
            lambda node=node: {len(each) for each in replicas_in_sync(node, topic)} == {FACTOR},  # type: ignore[misc]
            patience_s=_PATIENCE_S,
        )


# Produce


def produce(is_quick: bool) -> Iterator[Result]:
    """Both clusters are there, and take turns."""
    seconds, pairs = (QUICK_PRODUCE_S, 1) if is_quick else (PRODUCE_S, PAIRS)
    with contextlib.ExitStack() as running:
        clusters = [running.enter_context(one_cluster(maker)) for maker in makers().values()]
        for each in clusters:
            created(each, "warm-up", 6)
            for size in (1000, 100):
                _rate(each, "warm-up", size, QUICK_PRODUCE_S if is_quick else WARM_UP_S)
        for size in (100, 1000):
            for partitions in (6, 100):
                yield from _produced(clusters, size, partitions, seconds, pairs)


def _produced(clusters: Sequence[Cluster], size: int, partitions: int, seconds: float, pairs: int) -> Iterator[Result]:
    topic = f"of-{size}-{partitions}"
    measured = [Figures() for _ in clusters]
    for each in clusters:
        created(each, topic, partitions)
    for _ in range(pairs):
        for cluster, figures in zip(clusters, measured, strict=True):
            pids = [each.pid for each in cluster.nodes.values()]
            before = sum(map(cpu_seconds, pids))
            rate = _rate(cluster, topic, size, seconds)
            figures.add(rate * seconds, seconds, sum(map(cpu_seconds, pids)) - before)
    for each in clusters:
        deleted(each, topic)
    rates = [statistics.median(each.rates) for each in measured]
    detail = " / ".join(f"{rate:,.0f} per s ({rate * size / 2**20:.0f} MiB/s)" for rate in rates)
    target = PRODUCE_TARGET if len(clusters) > 1 else None
    name = f"cluster: 3 replicas, acks=all, {size} B, {partitions} partitions"
    yield Result(name, paired(measured), target, detail, cpu_ratio(measured))
    yield cost("CPU seconds per GB, all nodes", measured, 1e9 / size)


def small(is_quick: bool) -> Iterator[Result]:
    """Small batches on many connections, each to a leader; one request under way on each connection."""
    seconds, pairs = (QUICK_PRODUCE_S, 1) if is_quick else (PRODUCE_S, PAIRS)
    with contextlib.ExitStack() as running:
        clusters = [running.enter_context(one_cluster(maker)) for maker in makers().values()]
        for each in clusters:
            created(each, "small", SMALL_PARTITIONS)
            _exchanged(each, "small", 1.0 if is_quick else WARM_UP_S)
        measured = [Figures() for _ in clusters]
        for _ in range(pairs):
            for cluster, figures in zip(clusters, measured, strict=True):
                pids = [each.pid for each in cluster.nodes.values()]
                before = sum(map(cpu_seconds, pids))
                rate = _exchanged(cluster, "small", seconds)
                figures.add(rate * seconds, seconds, sum(map(cpu_seconds, pids)) - before)
    rates = " / ".join(f"{statistics.median(each.rates):,.0f}" for each in measured)
    name = f"cluster: 3 replicas, acks=all, {SMALL_PARTITIONS} connections, 1 batch of 10 each"
    yield Result(name, paired(measured), None, f"{rates} requests per s")
    yield cost("CPU seconds per million requests, all nodes", measured, 1e6)


def _exchanged(cluster: Cluster, topic: str, seconds: float) -> float:
    """Requests a second; a load generator for each node."""
    led_by = leaders(cluster.brokers[0], topic) or []
    frames = [clients.produce_frame(topic, [index], records=10, size=100) for index in range(len(led_by))]
    with ThreadPoolExecutor() as threads:
        at_work = [
            threads.submit(
                clients.exchange,
                node.bootstrap,
                [frame for frame, leader in zip(frames, led_by, strict=True) if leader == node.node_id],
                seconds,
            )
            for node in cluster.brokers
        ]
        return sum(each.result().rate for each in at_work)


def _rate(cluster: Cluster, topic: str, size: int, seconds: float) -> float:
    """Acknowledged records a second, from a producer in a process of its own."""
    command = [sys.executable, "-m", "bench.cluster_replicas", cluster.bootstrap, topic, str(size), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout)


def _produce_for(bootstrap: str, topic: str, size: int, seconds: float) -> float:
    """A client that takes little of the machine for itself: it hears of records that fail, and of no others."""
    settings = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "enable.idempotence": True}
    room = {"queue.buffering.max.messages": 200_000, "batch.size": 256 * 1024, "delivery.report.only.error": True}
    producer = Producer({**settings, **room})

    def failed(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            raise RuntimeError(str(error))

    value = bytes(size)
    messages, count, began_s = [{"value": value} for _ in range(500)], 0, time.monotonic()
    while time.monotonic() < began_s + seconds:
        queued = producer.produce_batch(topic, messages, on_delivery=failed)
        count += queued
        producer.poll(0 if queued == len(messages) else 0.01)
    if left := producer.flush(120):
        raise RuntimeError(f"{left} records were not acknowledged")
    return count / (time.monotonic() - began_s)


# Leaders that go


def leader_fail_over(is_quick: bool) -> Iterator[Result]:
    """From kill -9 of a node that leads until each partition takes a new record."""
    yield _fail_over("kill -9 of a leader", Node.kill, False, QUICK_ROUNDS if is_quick else ROUNDS)


def controller_fail_over(is_quick: bool) -> Iterator[Result]:
    """The same of a node that is the active controller, too."""
    rounds = QUICK_ROUNDS if is_quick else ROUNDS
    yield _fail_over("kill -9 of a leader that is the controller", Node.kill, True, rounds)


def silence(is_quick: bool) -> Iterator[Result]:
    """The same of a node that says nothing any more, and is known by its session alone."""
    yield _fail_over("silence of a leader", Node.pause, False, 1 if is_quick else ROUNDS // 4)


def _fail_over(what: str, goes: Callable[[Node], None], is_active: bool, rounds: int) -> Result:
    times = {name: _fail_overs(maker, goes, is_active, rounds) for name, maker in makers().items()}
    medians = {who: statistics.median(found) for who, found in times.items()}
    ratio = medians["Kafka"] / medians["ours"] if "Kafka" in medians else float("nan")
    detail = "; ".join(
        f"{who}: median {medians[who]:.2f} s, worst {max(found):.2f} s of {len(found)}" for who, found in times.items()
    )
    return Result(f"cluster: {what}, until all partitions are written", ratio, 1.0, detail)


def _fail_overs(
    maker: Callable[[Path], Cluster], goes: Callable[[Node], None], is_active: bool, rounds: int
) -> list[float]:
    topic, partitions = "failing-over", 6
    found = []
    gone_s: dict[int, float] = {}
    with one_cluster(maker) as cluster:
        created(cluster, topic, partitions)
        sender = LibrdkafkaSender(cluster.bootstrap, topic, partitions)
        with sender:
            _until_written(sender, 0)
            for _ in range(rounds):
                controller, _epoch = active(cluster)
                others = [each for each in cluster.brokers if each is not controller]
                node = controller if is_active else min(others, key=lambda each: gone_s.get(each.node_id, 0.0))
                # A node that dies twice within a session is believed less the second time.
                time.sleep(max(0.0, gone_s.get(node.node_id, 0.0) + _SESSION_S - time.monotonic()))
                began_s = gone_s[node.node_id] = time.monotonic()
                goes(node)
                _until_written(sender, began_s)
                found.append(time.monotonic() - began_s)
                cluster.start_missing()
                all_unfenced(cluster)
                in_sync(cluster, topic)
                _prefer(cluster)
    return found


def _until_written(sender: LibrdkafkaSender, since_s: float) -> None:
    until("all partitions are written", lambda: min(sender.latest_s.values()) > since_s, patience_s=_PATIENCE_S)


def _prefer(cluster: Cluster) -> None:
    """Everybody leads something again."""
    from barnabas import Admin, BarnabasError

    with Admin(bootstrap_servers=cluster.bootstrap) as admin, contextlib.suppress(BarnabasError):
        admin.elect_leaders()


def controlled_shutdown(is_quick: bool) -> Iterator[Result]:
    """A node that leads many partitions stops: until others lead them, until it has ended (which brings all its files
    to disk), and the longest time that a client waited."""
    count = QUICK_LEADERSHIPS if is_quick else LEADERSHIPS
    handed: dict[str, float] = {}
    took: dict[str, float] = {}
    gaps: dict[str, float] = {}
    for name, maker in makers().items():
        with one_cluster(maker) as cluster:
            for number in range(count * FACTOR // 100 or 1):
                created(cluster, f"many-{number}", min(100, count * FACTOR))
            created(cluster, "watched", 6)
            sender = LibrdkafkaSender(cluster.bootstrap, "watched", 6)
            with sender:
                _until_written(sender, 0)
                handed[name], took[name], gaps[name] = _stop_one(cluster, sender)
    yield within(f"controlled shutdown of {count:,} leaderships", STOP_BUDGET_S, handed)
    for what, found in (("until its process has ended", took), ("longest gap of a client meanwhile", gaps)):
        ratio = found["Kafka"] / found["ours"] if "Kafka" in found else float("nan")
        yield Result(f"  {what}", ratio, None, "; ".join(f"{who}: {each:.2f} s" for who, each in found.items()))


def _stop_one(cluster: Cluster, sender: LibrdkafkaSender) -> tuple[float, float, float]:
    node = next(each for each in cluster.brokers if each is not active(cluster)[0])
    began_s = time.monotonic()
    assert node.process is not None
    node.process.terminate()
    longest_s, ended_s = 0.0, began_s
    others = [each for each in cluster.brokers if each is not node]
    handed_s: list[float] = []
    handing = Thread(target=lambda: handed_s.append(_when_it_leads_nothing(node, others[0])), daemon=True)
    handing.start()
    while node.process.poll() is None or time.monotonic() < began_s + 5:
        # The age of the oldest partition's newest record; a record is sent to each every few milliseconds.
        longest_s = max(longest_s, time.monotonic() - min(sender.latest_s.values()))
        ended_s = time.monotonic() if node.process.poll() is None else ended_s
        time.sleep(0.01)
    _until_written(sender, began_s)
    node.end()
    handing.join(_PATIENCE_S)
    return handed_s[0] - began_s, ended_s - began_s, longest_s


def _when_it_leads_nothing(node: Node, other: Node) -> float:
    """As another node tells."""
    while True:
        told = cast(MetadataResponse, ask(other.bootstrap, MetadataRequest(topics=None)))
        if all(each.leader_id != node.node_id for topic in told.topics for each in topic.partitions):
            return time.monotonic()
        time.sleep(0.02)


# Followers


def following(is_quick: bool) -> Iterator[Result]:
    """What a node takes that follows many partitions of which nothing comes."""
    count = QUICK_LEADERSHIPS if is_quick else LEADERSHIPS
    shares: dict[str, float] = {}
    for name, maker in makers().items():
        with one_cluster(maker) as cluster:
            for number in range(max(1, count // 100)):
                created(cluster, f"idle-{number}", min(100, count))
            pids = [each.pid for each in cluster.nodes.values()]
            time.sleep(3)
            before, began_s = sum(map(cpu_seconds, pids)), time.monotonic()
            time.sleep(IDLE_S)
            shares[name] = (sum(map(cpu_seconds, pids)) - before) / (time.monotonic() - began_s) / len(pids)
    detail = "; ".join(f"{who}: {100 * each:.1f} % of a core a node" for who, each in shares.items())
    name = f"cluster: {count:,} partitions with 3 replicas, idle: budget of 3 %"
    yield Result(name, FOLLOWING_BUDGET / shares["ours"], 1.0, detail)


def catching_up(is_quick: bool) -> Iterator[Result]:
    """A follower that was away while much was written, until it is in sync."""
    mib = QUICK_CATCH_UP_MIB if is_quick else CATCH_UP_MIB
    rates: dict[str, float] = {}
    for name, maker in makers().items():
        with one_cluster(maker) as cluster:
            rates[name] = _catch_up(cluster, mib)
    detail = "; ".join(f"{who}: {each:.0f} MB/s" for who, each in rates.items())
    yield Result(f"cluster: a follower catches up {mib} MiB, over 150 MB/s", rates["ours"] / CATCH_UP_MB_S, 1.0, detail)


def _catch_up(cluster: Cluster, mib: int) -> float:
    topic = "behind"
    created(cluster, topic, 6)
    node = next(each for each in cluster.brokers if each is not active(cluster)[0])
    node.stop()
    others = [each for each in cluster.brokers if each is not node]
    until("others lead", lambda: node.node_id not in (leaders(others[0], topic) or [node.node_id]))
    _write(others, topic, mib)
    before = _size(node, topic)
    node.launch()
    # From the first byte that comes: what a start takes is measured elsewhere.
    until("it begins to catch up", lambda: _size(node, topic) > before, patience_s=_PATIENCE_S)
    began, began_s = _size(node, topic), time.monotonic()
    whole = _size(others[0], topic)
    until("it has all", lambda: _size(node, topic) >= whole, patience_s=_PATIENCE_S)
    rate = (whole - began) / 1e6 / (time.monotonic() - began_s)
    in_sync(cluster, topic)
    return rate


def _size(node: Node, topic: str) -> int:
    """Bytes of a topic in a node's log; the files are looked at, since a node that catches up has enough to do."""
    return sum(each.stat().st_size for each in node.data.glob(f"{topic}-*/*.log"))


def _write(brokers: Sequence[Node], topic: str, mib: int) -> None:
    bootstrap = ",".join(each.bootstrap for each in brokers)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 20, "batch.size": 2**19})
    value = bytes(10_000)
    for _ in range(mib * 2**20 // len(value)):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush(120)


# Many replicas


def restart(is_quick: bool) -> Iterator[Result]:
    """A node with very many replicas, of which it leads a third, is stopped and started."""
    count = QUICK_REPLICAS if is_quick else REPLICAS
    starts: dict[str, float] = {}
    stops: dict[str, float] = {}
    for name, maker in makers().items():
        with one_cluster(maker) as cluster:
            for number in range(max(1, count // 100)):
                created(cluster, f"many-{number}", min(100, count))
            node = next(each for each in cluster.brokers if each is not active(cluster)[0])
            began_s = time.monotonic()
            node.stop()
            stopped_s = time.monotonic()
            node.launch()
            node.until_ready()
            all_unfenced(cluster)
            stops[name], starts[name] = stopped_s - began_s, time.monotonic() - stopped_s
    yield within(f"start of a node with {count:,} replicas", START_BUDGET_S, starts)
    ratio = stops["Kafka"] / stops["ours"] if "Kafka" in stops else float("nan")
    detail = "; ".join(f"{who}: {each:.2f} s" for who, each in stops.items())
    yield Result("cluster: stop of the same node", ratio, None, detail)


def within(what: str, budget_s: float, took_s: dict[str, float]) -> Result:
    """How often what we took goes into what we may take."""
    detail = "; ".join(f"{who}: {each:.2f} s" for who, each in took_s.items())
    return Result(f"cluster: {what}: budget of {budget_s:.0f} s", budget_s / took_s["ours"], 1.0, detail)


SECTIONS: Final[dict[str, Callable[[bool], Iterator[Result]]]] = {
    "produce": produce,
    "small": small,
    "leader-fail-over": leader_fail_over,
    "leader-and-controller": controller_fail_over,
    "silence": silence,
    "shutdown": controlled_shutdown,
    "following": following,
    "catching-up": catching_up,
    "restart": restart,
}


if __name__ == "__main__":
    print(_produce_for(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
