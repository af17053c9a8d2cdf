"""Our clients against the others for Python: the same node, the same run, in turns.

Each rate is the best of the rounds. Slow clients write and read fewer records, so that all take about as long.
`--quick` looks once, at one partition and a quarter of the records.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
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
    "our_arrow_consume": ARROW,
}
_TIMEOUT_S: Final = 300


@dataclass(frozen=True, slots=True)
class Plan:
    """How often to look, at how many partitions, and at which part of the records."""

    rounds: int = 3
    partitions: tuple[int, ...] = (1, 6)
    divisor: int = 1


FULL: Final = Plan()
QUICK: Final = Plan(rounds=1, partitions=(1,), divisor=4)


class Contest:
    """One node, and clients that take turns on it."""

    def __init__(self, bootstrap: str, plan: Plan) -> None:
        self._bootstrap = bootstrap
        self._plan = plan
        self._numbers = count()

    def produce(self, partitions: int, names: Sequence[str]) -> dict[str, float]:
        """Records per second, by client; each writes to a topic of its own."""
        rates = dict.fromkeys(names, 0.0)
        for _ in range(self._plan.rounds):
            for name in names:
                topic = self._topic(partitions)
                rates[name] = max(rates[name], self._turn(name, topic, partitions))
                with node_clients.connected(self._bootstrap) as peer:
                    node_clients.delete_topic(peer, topic)
        return rates

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

    def _turn(self, name: str, topic: str, partitions: int) -> float:
        records = _COUNTS.get(name, FAST) // self._plan.divisor
        command = [sys.executable, "-m", "bench.client_contestants", name, self._bootstrap, topic, str(partitions)]
        done = subprocess.run([*command, str(records)], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        if done.returncode:
            raise RuntimeError(f"{name}: {done.stderr}")
        return records / float(done.stdout)


def compared(name: str, ours: float, peers: dict[str, float], target: float | None) -> Result:
    """Our rate over the best of theirs."""
    shown = ", ".join(f"{peer.rpartition('_')[0].replace('_', '-')} {rate / 1e3:,.0f}k" for peer, rate in peers.items())
    return Result(name, ours / max(peers.values()), target, f"{ours / 1e3:,.0f}k / {shown} per s")


def only(rates: dict[str, float], *names: str) -> dict[str, float]:
    return {name: rates[name] for name in names}


def run(plan: Plan = FULL) -> list[Result]:
    folder = Path(tempfile.mkdtemp(prefix="barnabas-bench-"))
    # What is deleted goes at once: memory for files is part of what is measured.
    node = Barnabas(folder / "barnabas", "log.segment.delete.delay.ms=0")
    results = []
    try:
        node.prepare()
        node.start()
        contest = Contest(node.bootstrap, plan)
        for partitions in plan.partitions:
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
            results += [
                compared(f"send, {where}", made["our_produce"], confluent, 1.0),
                compared("  against the others", made["our_produce"], others, 5.0),
                compared("  with no setting but the address", installed, confluent, None),
                compared(f"asyncio send, {where}", made["our_asyncio_produce"], aiokafka, 3.0),
                compared(f"send_arrow, {where}", made["our_arrow_produce"], confluent, 5.0),
                compared(f"iteration, {where}", read["our_iteration"], readers, 1.0),
                compared(f"async for, {where}", read["our_asyncio_iteration"], only(read, "aiokafka_consume"), None),
                compared(f"poll_arrow, {where}", read["our_arrow_consume"], only(read, "confluent_consume"), 5.0),
            ]
        return results
    finally:
        node.stop()
        shutil.rmtree(folder, ignore_errors=True)


def run_quickly() -> list[Result]:
    return run(QUICK)
