"""How brokers are compared: they take turns at the same work, and each pair of turns has a ratio."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from bench import load
from bench import node_clients as clients
from bench.measure import Result
from bench.node_brokers import Broker, cpu_seconds

MB: Final = 1_000_000
GB: Final = 1_000_000_000
CONNECTIONS: Final = 100
READERS: Final = 50
FAN_OUT_PARTITIONS: Final = 6
FAN_OUT_RECORDS: Final = 100


@dataclass(frozen=True, slots=True)
class Plan:
    """How long to look."""

    pairs: int
    record_bytes: int
    exchange_s: float
    idle_s: float
    warm_up_s: float
    fan_out_batches: int
    #: Numbers of partitions and sizes of records with which librdkafka writes and reads.
    shapes: tuple[tuple[int, int], ...] = ((1, 100), (1, 1000), (6, 100), (6, 1000))


@dataclass(slots=True)
class Figures:
    """What was measured of one broker in one contest: a rate for each turn, and the processor time of all of them."""

    rates: list[float] = field(default_factory=list)
    p50_s: list[float] = field(default_factory=list)
    p99_s: list[float] = field(default_factory=list)
    cpu_s: float = 0.0
    done: float = 0.0

    def add(self, done: float, seconds: float, cpu_s: float) -> None:
        self.rates.append(done / seconds)
        self.cpu_s += cpu_s
        self.done += done


class Contest:
    """All brokers, in turns; the first one is ours."""

    def __init__(self, brokers: list[Broker], plan: Plan) -> None:
        self.brokers = brokers
        self.plan = plan
        self._numbers = count()

    # Turns

    def _take_turns(
        self, turn: Callable[[Broker, str, Figures], None], partitions: int, *, anew: bool = False
    ) -> list[Figures]:
        """Let each broker have its turn several times, with one topic for all of them or with a new one for each.

        The first appends to a new partition cost a broker more than all that follow, so only who reads a topic from its
        beginning asks for a new one.
        """
        measured = [Figures() for _ in self.brokers]
        topics: list[str] = []
        for number in range(self.plan.pairs):
            if anew or not topics:
                topics = [self._create_topic(broker, partitions) for broker in self.brokers]
            for broker, topic, figures in zip(self.brokers, topics, measured, strict=True):
                os.sync()  # or the system writes down in one's turn what the other has left
                turn(broker, topic, figures)
            if anew or number == self.plan.pairs - 1:
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

    def _result(self, name: str, measured: list[Figures], target: float | None, shown: str = "{:,.0f}") -> Result:
        """The median of the ratios of the pairs; of each broker the median rate, and the best."""
        medians = " / ".join(shown.format(statistics.median(each.rates)) for each in measured)
        best = " / ".join(shown.format(max(each.rates)) for each in measured)
        detail = f"{medians} per s, best {best}"
        return Result(name, paired(measured), target if len(measured) > 1 else None, detail, cpu_ratio(measured))

    # librdkafka

    def throughput(self, partitions: int, size: int) -> Iterator[Result]:
        records = max(clients.CHUNK, self.plan.record_bytes // size // clients.CHUNK * clients.CHUNK)
        filled: set[str] = set()
        #: Few and large records are read in a tenth of a second, in which a processor's time is known to some percent.
        passes = max(1, self.plan.record_bytes // (100 * records))

        def produce(broker: Broker, topic: str, figures: Figures) -> None:
            before = cpu_seconds(broker.pid)
            seconds = clients.produce(broker.bootstrap, topic, partitions, records, size)
            figures.add(records, seconds, cpu_seconds(broker.pid) - before)

        def consume(broker: Broker, topic: str, figures: Figures) -> None:
            if topic not in filled:
                clients.fill(broker.bootstrap, topic, partitions, records, size)
                filled.add(topic)
            before = cpu_seconds(broker.pid)
            seconds = [clients.consume(broker.bootstrap, topic, partitions, records) for _ in range(passes)]
            figures.add(passes * records, sum(seconds), cpu_seconds(broker.pid) - before)

        what = f"{size} B records, {partitions} partition{'s' * (partitions > 1)}"
        for verb, turn, anew in (("produce", produce, True), ("consume", consume, False)):
            measured = self._take_turns(turn, partitions, anew=anew)
            yield self._result(f"librdkafka {verb} {what}", measured, 1.0)
            yield cost("CPU seconds per GB", measured, GB / size)

    def fetch(self) -> Iterator[Result]:
        """Reading without a client's own work."""
        filled: set[str] = set()

        def turn(broker: Broker, topic: str, figures: Figures) -> None:
            if topic not in filled:
                clients.fill(broker.bootstrap, topic, 1, self.plan.record_bytes // 1000, 1000)
                filled.add(topic)
            before = cpu_seconds(broker.pid)
            rate = clients.fetch(broker.bootstrap, topic, self.plan.exchange_s / 2)
            figures.add(rate * self.plan.exchange_s / 2, self.plan.exchange_s / 2, cpu_seconds(broker.pid) - before)

        measured = self._take_turns(turn, 1)
        yield self._result("bare socket fetches 1 MiB at a time: bytes", measured, None)
        yield cost("CPU seconds per GB", measured, GB)

    # Small requests

    def many_connections(self, partitions_per_request: int, records: int) -> Iterator[Result]:
        """Small batches on many connections to many partitions, one request under way on each connection."""
        frames: list[bytes] = []

        def turn(broker: Broker, topic: str, figures: Figures) -> None:
            spans = [
                [(first + offset) % CONNECTIONS for offset in range(partitions_per_request)]
                for first in range(CONNECTIONS)
            ]
            frames[:] = [clients.produce_frame(topic, span, records, 100) for span in spans]
            clients.exchange(broker.bootstrap, frames, self.plan.exchange_s / 2)
            before = cpu_seconds(broker.pid)
            done = clients.exchange(broker.bootstrap, frames, self.plan.exchange_s)
            figures.add(done.requests, done.seconds, cpu_seconds(broker.pid) - before)

        measured = self._take_turns(turn, CONNECTIONS)
        batches = f"{partitions_per_request} batch{'es' * (partitions_per_request > 1)} of {records}"
        yield self._result(f"{CONNECTIONS} connections × {CONNECTIONS} partitions, {batches} each", measured, 1.0)
        yield cost("CPU seconds per million requests", measured, 1e6)
        most = load.ceiling(frames, 30 + 30 * partitions_per_request, self.plan.exchange_s)
        share = most.rate / statistics.median(measured[0].rates)
        yield Result("  the load generator's ceiling, over our rate", share, None, f"{most.rate:,.0f} per s")

    def one_by_one(self) -> Iterator[Result]:
        """One record per request, one request after the other."""

        def bare(broker: Broker, topic: str, figures: Figures) -> None:
            frame = clients.produce_frame(topic, [0], records=1, size=100)
            before = cpu_seconds(broker.pid)
            done = clients.exchange(broker.bootstrap, [frame], self.plan.exchange_s)
            figures.add(done.requests, done.seconds, cpu_seconds(broker.pid) - before)
            figures.p50_s.append(done.p50_s)
            figures.p99_s.append(done.p99_s)

        def librdkafka(broker: Broker, topic: str, figures: Figures) -> None:
            before = cpu_seconds(broker.pid)
            times = sorted(clients.produce_one_by_one(broker.bootstrap, topic, self.plan.exchange_s))
            figures.add(len(times), sum(times), cpu_seconds(broker.pid) - before)
            figures.p50_s.append(times[len(times) // 2])
            figures.p99_s.append(times[len(times) * 99 // 100])

        for name, turn in (("bare socket", bare), ("librdkafka without linger", librdkafka)):
            measured = self._take_turns(turn, 1)
            yield self._result(f"one record at a time, {name}", measured, 1.0)
            yield latency("p50", [each.p50_s for each in measured])
            yield latency("p99", [each.p99_s for each in measured])
            yield cost("CPU seconds per million requests", measured, 1e6)

    # Fan-out

    def fan_out(self) -> Iterator[Result]:
        """One producer, and many groups that each read all that it writes while it is written."""
        batches = self.plan.fan_out_batches // FAN_OUT_PARTITIONS * FAN_OUT_PARTITIONS
        each_gets = batches // FAN_OUT_PARTITIONS * FAN_OUT_RECORDS
        produced: list[list[float]] = [[] for _ in self.brokers]

        def turn(broker: Broker, topic: str, figures: Figures) -> None:
            places = range(FAN_OUT_PARTITIONS)
            frames = [clients.produce_frame(topic, [index], FAN_OUT_RECORDS, 100) for index in places]
            feeds = [load.Feed(frame, 1, 1 + each_gets) for frame in frames]  # a first record is there since creation
            commits = [clients.commit_template(f"group-{number}", topic, places) for number in range(READERS)]
            before = cpu_seconds(broker.pid)
            done = load.fan_out(broker.bootstrap, feeds, batches, clients.fetch_template(topic, places), commits)
            figures.add(batches * FAN_OUT_RECORDS * READERS, done.seconds, cpu_seconds(broker.pid) - before)
            produced[self.brokers.index(broker)].append(batches * FAN_OUT_RECORDS / done.produced_s)

        measured = self._take_turns(turn, FAN_OUT_PARTITIONS, anew=True)
        yield self._result(f"1 producer, {READERS} groups: records of 100 B that were read", measured, 1.0)
        yield cost("CPU seconds per million records", measured, 1e6)
        shown = " / ".join(f"{statistics.median(rates):,.0f}" for rates in produced)
        yield Result("  records that were written meanwhile", paired_rates(produced), None, f"{shown} per s")

    def warm_up(self) -> None:
        """As long for each, with something of everything."""
        for broker in self.brokers:
            topic = self._create_topic(broker, FAN_OUT_PARTITIONS)
            end_s = time.monotonic() + self.plan.warm_up_s
            frames = [clients.produce_frame(topic, [index], 5, 100) for index in range(FAN_OUT_PARTITIONS)]
            while time.monotonic() < end_s:
                clients.produce(broker.bootstrap, topic, FAN_OUT_PARTITIONS, 200_000, 100)
                clients.consume(broker.bootstrap, topic, FAN_OUT_PARTITIONS, 200_000)
                clients.exchange(broker.bootstrap, frames * 10, 1.0)
            with clients.connected(broker.bootstrap) as peer:
                clients.delete_topic(peer, topic)


def paired(measured: list[Figures]) -> float:
    return paired_rates([each.rates for each in measured])


def paired_rates(rates: list[list[float]]) -> float:
    """The median of our rate over the other's, pair by pair."""
    if len(rates) < 2:
        return math.nan
    return statistics.median(ours / other for ours, other in zip(rates[0], rates[1], strict=True))


def cost(name: str, measured: list[Figures], unit: float) -> Result:
    """What was taken of the processor for so much of it; the other's over ours."""
    found = [each.cpu_s / each.done * unit for each in measured]
    return Result(f"  {name}", cpu_ratio(measured), None, " / ".join(f"{each:.2f}" for each in found))


def cpu_ratio(measured: list[Figures]) -> float:
    return inverse([each.cpu_s / each.done for each in measured])


def latency(name: str, times_s: list[list[float]]) -> Result:
    found = [statistics.median(each) for each in times_s]
    return Result(f"  {name}", inverse(found), None, " / ".join(f"{each * 1e6:,.0f} µs" for each in found))


def inverse(costs: list[float]) -> float:
    """The other's cost over ours: above one is better."""
    return costs[1] / costs[0] if len(costs) > 1 and costs[0] else math.nan
