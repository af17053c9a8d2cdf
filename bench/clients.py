"""Our clients against the others for Python: the same node, the same run, in turns.

Each rate is the best of the rounds. Slow clients write and read fewer records, so that all take about as long.
`--quick` looks once, at one partition and a quarter of the records.

`clients:defaults` has what most people get: nobody has a setting but the address. There each ratio is the median of
pairs of turns, ours and then theirs.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from typing import Final

from bench import node_clients
from bench.measure import Result
from bench.node_brokers import Barnabas

FAST: Final = 2_000_000
SLOW: Final = 200_000
ARROW: Final = 5_000_000
_COUNTS: Final = {
    "kafka_python_produce": SLOW,
    "kafka_python_consume": SLOW,
    "aiokafka_produce": SLOW,
    "our_arrow_produce": ARROW,
    "our_arrow_produce_as_installed": ARROW,
    "our_arrow_consume": ARROW,
}
_TIMEOUT_S: Final = 300


@dataclass(frozen=True, slots=True)
class Plan:
    """How often to look, at how many partitions, and at which part of the records."""

    rounds: int = 3
    partitions: tuple[int, ...] = (1, 6)
    divisor: int = 1
    pairs: int = 5


FULL: Final = Plan()
QUICK: Final = Plan(rounds=1, partitions=(1,), divisor=4, pairs=3)


class Contest:
    """One node, and clients that take turns on it."""

    def __init__(self, bootstrap: str, plan: Plan, folder: Path) -> None:
        self._bootstrap = bootstrap
        self._plan = plan
        self._warm = folder / "warm"
        self._numbers = count()

    def produce(self, partitions: int, names: Sequence[str]) -> dict[str, float]:
        """Records per second, by client; each writes to a topic of its own."""
        rates = dict.fromkeys(names, 0.0)
        for _ in range(self._plan.rounds):
            for name in names:
                rates[name] = max(rates[name], self._produced(name, partitions))
        return rates

    def pairs(self, ours: str, theirs: str) -> list[tuple[float, float]]:
        """Records per second of both, turn by turn, at one partition."""
        return [(self._produced(ours, 1), self._produced(theirs, 1)) for _ in range(self._plan.pairs)]

    def _produced(self, name: str, partitions: int) -> float:
        topic = self._topic(partitions)
        try:
            return self._turn(name, topic, partitions, str(self._warm))
        finally:
            with node_clients.connected(self._bootstrap) as peer:
                node_clients.delete_topic(peer, topic)

    def consume(self, partitions: int, names: Sequence[str]) -> dict[str, float]:
        """Records per second, by client; all read the same topic."""
        rates = dict.fromkeys(names, 0.0)
        topic = self._topic(partitions)
        node_clients.fill(self._bootstrap, topic, partitions, ARROW // self._plan.divisor, 100)
        for _ in range(self._plan.rounds):
            for name in names:
                rates[name] = max(rates[name], self._turn(name, topic, partitions))
        with node_clients.connected(self._bootstrap) as peer:
            node_clients.delete_topic(peer, topic)
        return rates

    def _topic(self, partitions: int) -> str:
        topic = f"clients-{next(self._numbers)}"
        with node_clients.connected(self._bootstrap) as peer:
            node_clients.create_topic(peer, topic, partitions)
        return topic

    def _turn(self, name: str, topic: str, partitions: int, *warm: str) -> float:
        records = _COUNTS.get(name, FAST) // self._plan.divisor
        command = [sys.executable, "-m", "bench.client_contestants", name, self._bootstrap, topic, str(partitions)]
        command += [str(records), *warm]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        if done.returncode:
            raise RuntimeError(f"{name}: {done.stderr}")
        return records / float(done.stdout)


def compared(name: str, ours: float, peers: dict[str, float], target: float | None) -> Result:
    """Our rate over the best of theirs."""
    shown = ", ".join(f"{peer.rpartition('_')[0].replace('_', '-')} {rate / 1e3:,.0f}k" for peer, rate in peers.items())
    return Result(name, ours / max(peers.values()), target, f"{ours / 1e3:,.0f}k / {shown} per s")


def only(rates: dict[str, float], *names: str) -> dict[str, float]:
    return {name: rates[name] for name in names}


@contextmanager
def contest_on_a_node(plan: Plan) -> Iterator[Contest]:
    folder = Path(tempfile.mkdtemp(prefix="barnabas-bench-"))
    # What is deleted goes at once: memory for files is part of what is measured.
    node = Barnabas(folder / "barnabas", "log.segment.delete.delay.ms=0")
    try:
        node.prepare()
        node.start()
        yield Contest(node.bootstrap, plan, folder)
    finally:
        node.stop()
        shutil.rmtree(folder, ignore_errors=True)


def defaults(plan: Plan) -> list[Result]:
    """Nobody has a setting but the address. The targets are for the median."""
    results = []
    with contest_on_a_node(plan) as contest:
        for name, ours, target in (
            ("send", "our_produce_as_installed", 1.0),
            ("send, linger_ms=5", "our_produce_with_linger", 1.0),
            ("send_arrow", "our_arrow_produce_as_installed", 5.0),
            ("asyncio send", "our_asyncio_produce_as_installed", None),
        ):
            pairs = contest.pairs(ours, "confluent_produce_as_installed")
            ratios = [our_rate / their_rate for our_rate, their_rate in pairs]
            our_rate, their_rate = (median(rates) / 1e3 for rates in zip(*pairs, strict=True))
            detail = f"{our_rate:,.0f}k / confluent {their_rate:,.0f}k per s; {min(ratios):.2f} to {max(ratios):.2f}"
            results.append(Result(f"{name}, no other setting", median(ratios), target, detail))
    return results


def run(plan: Plan = FULL) -> list[Result]:
    with contest_on_a_node(plan) as contest:
        results = [result for partitions in plan.partitions for result in compare(contest, partitions)]
    return results + defaults(plan)


def compare(contest: Contest, partitions: int) -> list[Result]:
    where = f"{partitions} partition{'s' * (partitions > 1)}"
    made = contest.produce(
        partitions,
        [
            "our_produce",
            "confluent_produce",
            "our_asyncio_produce",
            "aiokafka_produce",
            "kafka_python_produce",
            "our_arrow_produce",
            "our_produce_as_installed",
        ],
    )
    confluent, aiokafka = only(made, "confluent_produce"), only(made, "aiokafka_produce")
    others = only(made, "aiokafka_produce", "kafka_python_produce")
    read = contest.consume(
        partitions,
        [
            "our_iteration",
            "confluent_consume",
            "aiokafka_consume",
            "kafka_python_consume",
            "our_asyncio_iteration",
            "our_arrow_consume",
        ],
    )
    readers = only(read, "confluent_consume", "aiokafka_consume", "kafka_python_consume")
    installed = made["our_produce_as_installed"]
    return [
        compared(f"send, {where}", made["our_produce"], confluent, 1.0),
        compared("  against the others", made["our_produce"], others, 5.0),
        compared("  with no setting but the address", installed, confluent, None),
        compared(f"asyncio send, {where}", made["our_asyncio_produce"], aiokafka, 3.0),
        compared(f"send_arrow, {where}", made["our_arrow_produce"], confluent, 5.0),
        compared(f"iteration, {where}", read["our_iteration"], readers, 1.0),
        compared(f"async for, {where}", read["our_asyncio_iteration"], only(read, "aiokafka_consume"), None),
        compared(f"poll_arrow, {where}", read["our_arrow_consume"], only(read, "confluent_consume"), 5.0),
    ]


def run_quickly() -> list[Result]:
    return run(QUICK)


SECTIONS: Final[dict[str, Callable[[bool], list[Result]]]] = {
    "defaults": lambda is_quick: defaults(QUICK if is_quick else FULL),
}
