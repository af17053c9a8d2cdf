"""Our node against Apache Kafka: the same clients, the same machine, the same run, in turns.

With `--against` it is measured against that of another checkout, as before a change.
`--quick` takes a tenth of the time and says less exactly. Without Kafka's jars (`make oracles`)
our figures are told alone. Each rate is the best of a few rounds; both were warmed up, which Kafka's compiler needs.
"""

from __future__ import annotations

import math
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from tests.oracles import missing

from bench import measure
from bench import node_clients as clients
from bench.measure import Result
from bench.node_brokers import Barnabas, Broker, Kafka, cpu_seconds, idle_load, resident_bytes

MB = 1_000_000
GB = 1_000_000_000
START_BUDGET_S = 1.0
IDLE_BUDGET_BYTES = 100 * 1024 * 1024
IDLE_BUDGET_CORE = 0.01
CONNECTIONS = 100


@dataclass(frozen=True, slots=True)
class Plan:
    """How long to look."""

    rounds: int
    record_bytes: int
    exchange_s: float
    idle_s: float
    warm_up_s: float
    #: Numbers of partitions and sizes of records with which librdkafka writes and reads.
    shapes: tuple[tuple[int, int], ...] = ((1, 100), (1, 1000), (6, 100), (6, 1000))


FULL = Plan(rounds=4, record_bytes=100 * MB, exchange_s=3, idle_s=10, warm_up_s=8)
QUICK = Plan(rounds=1, record_bytes=25 * MB, exchange_s=0.5, idle_s=1, warm_up_s=2, shapes=((1, 100), (6, 1000)))


@dataclass(slots=True)
class Figures:
    """What was measured of one broker in one contest."""

    rate: float = 0.0
    cpu_s: float = 0.0
    bytes: int = 0
    times_s: list[float] = field(default_factory=list)

    @property
    def cpu_s_per_gb(self) -> float:
        return self.cpu_s / self.bytes * GB if self.bytes else math.nan

    def percentile(self, share: float) -> float:
        ordered = sorted(self.times_s)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


class Contest:
    """All brokers, in turns; the first one is ours."""

    def __init__(self, brokers: list[Broker], plan: Plan) -> None:
        self.brokers = brokers
        self.plan = plan
        self._numbers = count()

    def measure(
        self, turn: Callable[[Broker, str, Figures], None], partitions: int, *, anew: bool = False
    ) -> list[Figures]:
        """Let each broker have its turn several times, with one topic for all of them or with a new one for each.

        The first appends to a new partition cost a broker more than all that follow, so only who reads a topic from its
        beginning asks for a new one.
        """
        measured = [Figures() for _ in self.brokers]
        topics: list[str] = []
        for number in range(self.plan.rounds):
            if anew or not topics:
                topics = [self._create_topic(broker, partitions) for broker in self.brokers]
            for broker, topic, figures in zip(self.brokers, topics, measured, strict=True):
                turn(broker, topic, figures)
            if anew or number == self.plan.rounds - 1:
                self._delete(topics)
        return measured

    def _create_topic(self, broker: Broker, partitions: int) -> str:
        topic = f"bench-{next(self._numbers)}"
        with clients.connected(broker.bootstrap) as peer:
            clients.create_topic(peer, topic, partitions)
        return topic

    def _delete(self, topics: list[str]) -> None:
        for broker, topic in zip(self.brokers, topics, strict=True):
            with clients.connected(broker.bootstrap) as peer:
                clients.delete_topic(peer, topic)

    def produce(self, partitions: int, size: int) -> list[Result]:
        records = self._records(size)

        def turn(broker: Broker, topic: str, figures: Figures) -> None:
            before = cpu_seconds(broker.pid)
            seconds = clients.produce(broker.bootstrap, topic, partitions, records, size)
            add(figures, records, size, seconds, cpu_seconds(broker.pid) - before)

        return self._throughput("produce", partitions, size, self.measure(turn, partitions, anew=True))

    def consume(self, partitions: int, size: int) -> list[Result]:
        records = self._records(size)
        filled: set[str] = set()

        def turn(broker: Broker, topic: str, figures: Figures) -> None:
            if topic not in filled:
                clients.fill(broker.bootstrap, topic, partitions, records, size)
                filled.add(topic)
            before = cpu_seconds(broker.pid)
            seconds = clients.consume(broker.bootstrap, topic, partitions, records)
            add(figures, records, size, seconds, cpu_seconds(broker.pid) - before)

        return self._throughput("consume", partitions, size, self.measure(turn, partitions))

    def _records(self, size: int) -> int:
        return max(clients.CHUNK, self.plan.record_bytes // size // clients.CHUNK * clients.CHUNK)

    def _throughput(self, verb: str, partitions: int, size: int, measured: list[Figures]) -> list[Result]:
        what = f"{size} B records, {partitions} partition{'s' * (partitions > 1)}"
        rates = " / ".join(f"{each.rate / 1e3:,.0f}k ({each.rate * size / MB:,.0f} MB/s)" for each in measured)
        costs = [each.cpu_s_per_gb for each in measured]
        return [
            Result(f"librdkafka {verb} {what}", ratio(measured), self.target(1.0), f"{rates} per s"),
            Result("  CPU seconds per GB", inverse(costs), None, " / ".join(f"{cost:.2f}" for cost in costs)),
        ]

    def fetch(self) -> Result:
        """Reading without a client's own work."""
        filled: set[str] = set()

        def turn(broker: Broker, topic: str, figures: Figures) -> None:
            if topic not in filled:
                clients.fill(broker.bootstrap, topic, 1, self._records(1000), 1000)
                filled.add(topic)
            figures.rate = max(figures.rate, clients.fetch(broker.bootstrap, topic, self.plan.exchange_s / 2))

        measured = self.measure(turn, 1)
        rates = " / ".join(f"{each.rate / MB:,.0f} MB/s" for each in measured)
        return Result("bare socket fetches 1 MiB at a time", ratio(measured), None, rates)

    def many_connections(self, partitions_per_request: int, records: int) -> Result:
        """Small batches on many connections to many partitions, one request under way on each connection."""

        def turn(broker: Broker, topic: str, figures: Figures) -> None:
            spans = [
                [(first + offset) % CONNECTIONS for offset in range(partitions_per_request)]
                for first in range(CONNECTIONS)
            ]
            frames = [clients.produce_frame(topic, span, records, 100) for span in spans]
            clients.exchange_on_many(broker.bootstrap, frames, self.plan.exchange_s / 2)
            rate = clients.exchange_on_many(broker.bootstrap, frames, self.plan.exchange_s)
            figures.rate = max(figures.rate, rate)

        measured = self.measure(turn, CONNECTIONS)
        batches = f"{partitions_per_request} batch{'es' * (partitions_per_request > 1)} of {records}"
        rates = " / ".join(f"{each.rate:,.0f}" for each in measured)
        name = f"{CONNECTIONS} connections × {CONNECTIONS} partitions, {batches} each"
        return Result(name, ratio(measured), self.target(1.0), f"{rates} requests per s")

    def one_by_one(
        self, name: str, send: Callable[[str, str, float], list[float]], target: float | None
    ) -> list[Result]:
        """One record per request, one request after the other."""

        def turn(broker: Broker, topic: str, figures: Figures) -> None:
            times = send(broker.bootstrap, topic, self.plan.exchange_s)
            figures.rate = max(figures.rate, len(times) / sum(times))
            figures.times_s += times

        measured = self.measure(turn, 1)
        rates = " / ".join(f"{each.rate:,.0f}" for each in measured)
        results = [Result(f"one record at a time, {name}", ratio(measured), self.target(target), f"{rates} per s")]
        for label, share in (("p50", 0.5), ("p99", 0.99)):
            times = [each.percentile(share) for each in measured]
            shown = " / ".join(f"{each * 1e6:,.0f} µs" for each in times)
            results.append(Result(f"  {label}", inverse(times), None, shown))
        return results

    def target(self, wanted: float | None) -> float | None:
        return wanted if len(self.brokers) > 1 else None

    def warm_up(self) -> None:
        def turn(broker: Broker, topic: str, _: Figures) -> None:
            end = time.monotonic() + self.plan.warm_up_s
            frames = [clients.produce_frame(topic, [index], 5, 100) for index in range(6)]
            while time.monotonic() < end:
                records = 200_000
                clients.produce(broker.bootstrap, topic, 6, records, 100)
                clients.consume(broker.bootstrap, topic, 6, records)
                clients.exchange_on_many(broker.bootstrap, frames, 0.5)

        once = Contest(self.brokers, Plan(1, 0, 0, 0, self.plan.warm_up_s))
        once._numbers = self._numbers
        once.measure(turn, 6)


def add(figures: Figures, records: int, size: int, seconds: float, cpu_s: float) -> None:
    figures.rate = max(figures.rate, records / seconds)
    figures.cpu_s += cpu_s
    figures.bytes += records * size


def ratio(measured: list[Figures]) -> float:
    """Our rate over the other's."""
    return measured[0].rate / measured[1].rate if len(measured) > 1 and measured[1].rate else math.nan


def inverse(costs: list[float]) -> float:
    """The other's cost over ours: above one is better."""
    return costs[1] / costs[0] if len(costs) > 1 and costs[0] else math.nan


def start_times(brokers: list[Broker]) -> list[float]:
    """Seconds from the start of each process to its first acknowledged record, in a topic that is created for it."""
    times = []
    for broker in brokers:
        broker.prepare()
        start = time.perf_counter()
        broker.start()
        with clients.connected(broker.bootstrap) as peer:
            clients.create_topic(peer, "first", 1)
        times.append(time.perf_counter() - start)
    return times


def at_rest(brokers: list[Broker], plan: Plan) -> list[Result]:
    """What a node takes that nobody uses."""
    loads = idle_load([broker.pid for broker in brokers], plan.idle_s)
    sizes = [resident_bytes(broker.pid) for broker in brokers]
    memory = " / ".join(f"{size / MB:,.0f} MB" for size in sizes)
    load = " / ".join(f"{each * 100:.1f} %" for each in loads)
    return [
        Result("idle memory: budget of 100 MiB", IDLE_BUDGET_BYTES / sizes[0], 1.0, memory),
        Result("idle CPU: budget of 1 % of a core", IDLE_BUDGET_CORE / max(loads[0], 1e-4), 1.0, load),
    ]


def run(plan: Plan = FULL) -> list[Result]:
    folder = Path(tempfile.mkdtemp(prefix="barnabas-bench-"))
    brokers: list[Broker] = [Barnabas(folder / "barnabas")]
    if measure.against is not None:
        brokers.append(Barnabas(folder / "against", sources=measure.against))
    elif missing() is None:
        brokers.append(Kafka(folder / "kafka"))
    else:
        print(f"node: alone, without Apache Kafka: {missing()}", file=sys.stderr)
    try:
        times = start_times(brokers)
        shown = " / ".join(f"{each:.2f} s" for each in times)
        results = [Result("start to first acknowledged record: budget of 1 s", START_BUDGET_S / times[0], 1.0, shown)]
        time.sleep(2)
        results += at_rest(brokers, plan)
        contest = Contest(brokers, plan)
        contest.warm_up()
        for partitions, size in plan.shapes:
            results += contest.produce(partitions, size)
            results += contest.consume(partitions, size)
        results.append(contest.fetch())
        results.append(contest.many_connections(partitions_per_request=1, records=10))
        results.append(contest.many_connections(partitions_per_request=CONNECTIONS, records=1))
        results += contest.one_by_one("bare socket", clients.exchange_one_by_one, 1.0)
        results += contest.one_by_one("librdkafka without linger", clients.produce_one_by_one, None)
        return results
    finally:
        for broker in brokers:
            broker.stop()
        shutil.rmtree(folder, ignore_errors=True)


def run_quickly() -> list[Result]:
    return run(QUICK)
