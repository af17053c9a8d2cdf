"""Our node against Apache Kafka: the same clients, the same machine, the same run, in turns.

With `--against` it is measured against that of another checkout, as before a change.
`--quick` takes a tenth of the time and says less exactly. Without Kafka's jars (`make oracles`) our figures are told
alone. Both are warmed up, which Kafka's compiler needs, and then take turns; a ratio is the median of those of the
pairs of turns. What they take of the processor stands below it: noise hides less there.
Each section can be asked for by itself: `node:rest`, `node:throughput`, `node:small`, `node:one-by-one`,
`node:fan-out`.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.oracles import missing

from bench import measure
from bench import node_clients as clients
from bench.measure import Result
from bench.node_brokers import Barnabas, Broker, Kafka, idle_load, resident_bytes
from bench.node_contest import CONNECTIONS, MB, Contest, Plan

START_BUDGET_S: Final = 1.0
IDLE_BUDGET_BYTES: Final = 100 * 1024 * 1024
IDLE_BUDGET_CORE: Final = 0.01

FULL: Final = Plan(pairs=5, record_bytes=100 * MB, exchange_s=3, idle_s=10, warm_up_s=15, fan_out_batches=6_000)
QUICK: Final = Plan(
    pairs=1,
    record_bytes=25 * MB,
    exchange_s=0.5,
    idle_s=1,
    warm_up_s=2,
    fan_out_batches=600,
    shapes=((1, 100), (6, 1000)),
)


@contextmanager
def prepared() -> Iterator[list[Broker]]:
    """Ours and the one that it is compared with, not started yet."""
    folder = Path(tempfile.mkdtemp(prefix="barnabas-bench-"))
    brokers: list[Broker] = [Barnabas(folder / "barnabas")]
    if measure.against is not None:
        brokers.append(Barnabas(folder / "against", sources=measure.against))
    elif missing() is None:
        brokers.append(Kafka(folder / "kafka"))
    else:
        print(f"node: alone, without Apache Kafka: {missing()}", file=sys.stderr)
    try:
        yield brokers
    finally:
        for broker in brokers:
            broker.stop()
        shutil.rmtree(folder, ignore_errors=True)


# At rest


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


def at_rest(brokers: list[Broker], plan: Plan) -> Iterator[Result]:
    """How fast a node is there, and what it takes while nobody uses it."""
    times = start_times(brokers)
    shown = " / ".join(f"{each:.2f} s" for each in times)
    yield Result("start to first acknowledged record: budget of 1 s", START_BUDGET_S / times[0], 1.0, shown)
    time.sleep(2)
    loads = idle_load([broker.pid for broker in brokers], plan.idle_s)
    sizes = [resident_bytes(broker.pid) for broker in brokers]
    memory = " / ".join(f"{size / MB:,.0f} MB" for size in sizes)
    load = " / ".join(f"{each * 100:.1f} %" for each in loads)
    yield Result("idle memory: budget of 100 MiB", IDLE_BUDGET_BYTES / sizes[0], 1.0, memory)
    yield Result("idle CPU: budget of 1 % of a core", IDLE_BUDGET_CORE / max(loads[0], 1e-4), 1.0, load)


# Contests


def throughput(contest: Contest) -> Iterator[Result]:
    for partitions, size in contest.plan.shapes:
        yield from contest.throughput(partitions, size)
    yield from contest.fetch()


def small(contest: Contest) -> Iterator[Result]:
    yield from contest.many_connections(partitions_per_request=1, records=10)
    yield from contest.many_connections(partitions_per_request=CONNECTIONS, records=1)


CONTESTS: Final[dict[str, Callable[[Contest], Iterator[Result]]]] = {
    "throughput": throughput,
    "small": small,
    "one-by-one": Contest.one_by_one,
    "fan-out": Contest.fan_out,
}


def section(name: str) -> Callable[[bool], Iterator[Result]]:
    def results(is_quick: bool) -> Iterator[Result]:
        plan = QUICK if is_quick else FULL
        with prepared() as brokers:
            if name == "rest":
                yield from at_rest(brokers, plan)
                return
            start_times(brokers)
            contest = Contest(brokers, plan)
            contest.warm_up()
            yield from CONTESTS[name](contest)

    return results


SECTIONS: Final = {name: section(name) for name in ("rest", *CONTESTS)}


def run(plan: Plan = FULL) -> Iterator[Result]:
    with prepared() as brokers:
        yield from at_rest(brokers, plan)
        contest = Contest(brokers, plan)
        contest.warm_up()
        for each in CONTESTS.values():
            yield from each(contest)


def run_quickly() -> Iterator[Result]:
    return run(QUICK)
