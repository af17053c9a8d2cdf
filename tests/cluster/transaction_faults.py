"""Read, compute and write in transactions while nodes and workers are killed, paused and cut off: exactly once.

    python -m tests.cluster.transaction_faults --rounds 20
    python -m tests.cluster.transaction_faults --rounds 2 --kafka      # the same on three nodes of Apache Kafka

Three combined nodes, all topics with three replicas. Two workers of one group, one with librdkafka and one with our
clients (`transaction_worker`, processes of their own), read orders, which come without pause, and write one total for
each, with their offsets, in transactions, some of which they abort on purpose. In each round a node or a worker gets
one of the faults. What was ordered until then must be worked off: while the node is still dead or paused; or, after the
rest, when it is healed. In the end read_committed has one total for each order, in the order of each key, nothing of a
transaction that was aborted, each transaction whole; and the group's offsets stand at the end of the orders.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import barnabas
from barnabas import OffsetSpec
from tests.cluster.asking import all_unfenced, until
from tests.cluster.kafka_nodes import KafkaNode, format_with_kafka
from tests.cluster.nodes import Node, end_with_parent
from tests.cluster.replica_faults import ReplicatedCluster
from tests.cluster.transaction_worker import GROUP, ORDERS, TOTALS, TRANSACTION_S
from tests.cluster.wires import TO_BROKER, Wires
from tests.compat.transacting import require_transactions

PARTITIONS: Final = 3
KEYS: Final = 12
NODE_FAULTS: Final = ("kill", "pause", "cut")
WORKER_FAULTS: Final = ("kill a worker", "pause a worker")
FAULTS: Final = (*NODE_FAULTS, *WORKER_FAULTS)
PATIENCE_S: Final = 120.0
RATE: Final = 200
_SETTINGS: Final = {
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


class Seen(NamedTuple):
    """One fault, and how long it took until what was sent after it was worked off."""

    fault: str
    worked_s: float


class KafkaCluster(ReplicatedCluster):
    """The same nodes, of Apache Kafka."""

    NODE = KafkaNode

    def format(self, node: Node, cluster_id: str | None = None) -> None:
        format_with_kafka(node, cluster_id or self.cluster_id)


# Clients


class Workers:
    """Two processes. One that has ended by itself is started again: that is what it ends for."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._bootstrap = bootstrap
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        #: Of each kind one, in one group.
        self._kinds = {"worker-1": "librdkafka", "worker-2": "ours"}
        self.names: Final = tuple(self._kinds)
        self.restarts = 0

    def __enter__(self) -> Self:
        self.start_missing()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self._processes.values():
            each.kill()
            each.wait()

    def start_missing(self) -> None:
        for name in self.names:
            process = self._processes.get(name)
            if process is None or process.poll() is not None:
                self.restarts += process is not None
                self._processes[name] = self._started(name)

    def _started(self, name: str) -> subprocess.Popen[bytes]:
        with (self._folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.cluster.transaction_worker", self._bootstrap, name, self._kinds[name]],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=end_with_parent,
            )

    def kill(self, name: str) -> None:
        self._processes[name].kill()
        self._processes[name].wait()

    def pause(self, name: str) -> None:
        os.kill(self._processes[name].pid, signal.SIGSTOP)

    def go_on(self, name: str) -> None:
        os.kill(self._processes[name].pid, signal.SIGCONT)

    def tail(self) -> str:
        return "\n".join((self._folder / f"{each}.log").read_text(errors="replace")[-1500:] for each in self.names)


class Orders:
    """Numbers that rise by one for each key, sent without pause until it is left, with idempotence."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 180_000,
                "socket.timeout.ms": 5000,
                "log_level": 0,
            }
        )
        self.failures: list[str] = []
        self.count = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="orders")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        left = self.finish()
        assert left == 0 or kind is not None, f"{left} orders were not acknowledged"

    def finish(self) -> int:
        """Send no more; how many were not acknowledged."""
        self._is_over.set()
        self._thread.join()
        return int(self._producer.flush(PATIENCE_S))

    def _run(self) -> None:
        while not self._is_over.wait(KEYS / RATE):
            for key in range(KEYS):
                self._producer.produce(ORDERS, b"%d" % (self.count // KEYS), b"key-%d" % key, on_delivery=self._told)
                self.count += 1
            self._producer.poll(0)

    def _told(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failures.append(str(error))


class Progress:
    """How far the workers are."""

    def __init__(self, bootstrap: str, workers: Workers) -> None:
        self.workers = workers
        self._looking = barnabas.Admin(bootstrap_servers=bootstrap, request_timeout_ms=2000)

    def close(self) -> None:
        self._looking.close()

    def ends(self) -> dict[int, int]:
        """Where orders end now."""
        asked = {barnabas.TopicPartition(ORDERS, number): OffsetSpec.latest() for number in range(PARTITIONS)}
        return {each.partition: found.offset for each, found in self._looking.list_offsets(asked, timeout=10).items()}

    def committed(self) -> dict[int, int]:
        found = self._looking.list_group_offsets(GROUP, timeout=10)
        return {each.partition: at.offset for each, at in found.items() if at is not None}

    def until_worked_off(self) -> None:
        """What is there now is worked off; who could not go on is started again meanwhile."""
        ends: dict[int, int] = {}

        def is_done() -> bool:
            self.workers.start_missing()
            try:
                ends.update(ends or self.ends())
                done = self.committed()
            except barnabas.BarnabasError:
                return False
            told.update(ends=ends, done=done)
            return all(done.get(number, -1) >= end for number, end in ends.items())

        told: dict[str, dict[int, int]] = {}
        try:
            until("orders are worked off", is_done, patience_s=PATIENCE_S)
        except AssertionError as problem:
            raise AssertionError(f"{problem}: {told}; workers said:\n{self.workers.tail()}") from None


class Faulty(Progress):
    """A cluster, workers, and orders that come."""

    def __init__(self, cluster: ReplicatedCluster, wires: Wires, workers: Workers) -> None:
        super().__init__(cluster.bootstrap, workers)
        self.cluster = cluster
        self.wires = wires

    def inject(self, fault: str, target: Node | str) -> None:
        if isinstance(target, str):
            self.workers.kill(target) if fault.startswith("kill") else self.workers.pause(target)
        elif fault == "kill":
            self.wires.down(target.node_id)
            target.kill()
        elif fault == "pause":
            target.pause()
        else:
            self.wires.cut(target.node_id)

    def heal(self, target: Node | str) -> None:
        if isinstance(target, str):
            with contextlib.suppress(ProcessLookupError):
                self.workers.go_on(target)
            self.workers.start_missing()
            return
        self.wires.heal()
        self.wires.up(target.node_id)
        self.cluster.start_missing()
        all_unfenced(self.cluster)


def create_topics(bootstrap: str) -> None:
    """With three replicas each."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for each in admin.create_topics([NewTopic(name, PARTITIONS, 3) for name in (ORDERS, TOTALS)]).values():
        each.result(30)


@contextlib.contextmanager
def faulty_cluster(folder: Path, *, of_kafka: bool) -> Iterator[Faulty]:
    ids = (1, 2, 3)
    with contextlib.ExitStack() as made:
        wires = made.enter_context(Wires([*ids, *(TO_BROKER + each for each in ids)]))
        cluster = (KafkaCluster if of_kafka else ReplicatedCluster)(folder, wires, _SETTINGS)
        made.enter_context(cluster)
        all_unfenced(cluster)
        require_transactions(cluster.brokers[0].bootstrap)
        create_topics(cluster.bootstrap)
        workers = made.enter_context(Workers(cluster.bootstrap, folder))
        faulty = Faulty(cluster, wires, workers)
        yield faulty
        faulty.close()


def one_round(faulty: Faulty, fault: str, target: Node | str) -> Seen:
    began_s = time.monotonic()
    faulty.inject(fault, target)
    if fault in ("cut", "pause a worker"):
        # A coordinator that is cut off still answers heartbeats of those that reach it, and knows nothing better: that
        # others go on meanwhile is not promised. A worker that is paused finds that its transaction was aborted, and
        # that another has its partitions.
        time.sleep(TRANSACTION_S + 2)
    if fault == "cut" or isinstance(target, str):
        faulty.heal(target)
    faulty.until_worked_off()
    worked_s = time.monotonic() - began_s
    faulty.heal(target)
    return Seen(fault, worked_s)


# What must be so


def read_totals(bootstrap: str) -> list[tuple[str, dict[str, Any]]]:
    """All that read_committed shows, partition by partition: key and value."""
    found: list[tuple[str, dict[str, Any]]] = []
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "checker", "isolation.level": "read_committed", "log_level": 0}
        | {"enable.auto.commit": False, "enable.partition.eof": True, "auto.offset.reset": "earliest"}
    )
    try:
        for number in range(PARTITIONS):
            consumer.assign([TopicPartition(TOTALS, number, 0)])
            while True:
                message = consumer.poll(PATIENCE_S)
                assert message is not None, f"partition {number} of the totals cannot be read"
                if message.error() is not None:
                    break
                found.append(((message.key() or b"").decode(), json.loads(message.value() or b"")))
    finally:
        consumer.close()
    return found


def check(totals: Sequence[tuple[str, dict[str, Any]]], count: int) -> None:
    """`count` orders were sent, in turns, to all keys."""
    assert not [value for _, value in totals if value["aborted"]], "what was aborted is shown"
    by_key: dict[str, list[int]] = defaultdict(list)
    for key, value in totals:
        by_key[key].append(value["number"])
    for key in (f"key-{number}" for number in range(KEYS)):
        wanted = list(range(count // KEYS))
        assert by_key[key] == wanted, f"{key}: {_difference(by_key[key], wanted)}"
    sources = Counter(tuple(value["from"]) for _, value in totals)
    assert max(sources.values()) == 1, f"worked off twice: {[each for each, times in sources.items() if times > 1][:5]}"
    sizes = Counter(value["transaction"] for _, value in totals)
    torn = {value["transaction"] for _, value in totals if sizes[value["transaction"]] != value["of"]}
    assert not torn, f"{len(torn)} transactions are shown in part"


def _difference(found: list[int], wanted: list[int]) -> str:
    missing, twice = sorted(set(wanted) - set(found)), [each for each, times in Counter(found).items() if times > 1]
    return f"{len(found)} of {len(wanted)}, missing {missing[:5]}, twice {twice[:5]}, sorted {found == sorted(found)}"


# Running


def play(folder: Path, faults: Sequence[str], *, of_kafka: bool = False) -> tuple[list[Seen], int]:
    """These faults, one after the other; what was seen, and how many orders there were."""
    seen: list[Seen] = []
    with faulty_cluster(folder, of_kafka=of_kafka) as faulty:
        with Orders(faulty.cluster.bootstrap) as orders:
            until("orders come", lambda: orders.count > RATE, patience_s=PATIENCE_S)
            faulty.until_worked_off()
            nodes = list(faulty.cluster.nodes.values())
            for number, fault in enumerate(faults):
                targets: Sequence[Node | str] = faulty.workers.names if fault in WORKER_FAULTS else nodes
                target = targets[number % len(targets)]
                seen.append(one_round(faulty, fault, target))
                name = target if isinstance(target, str) else f"node {target.node_id}"
                print(f"{number + 1}/{len(faults)}: {fault} ({name}): {seen[-1].worked_s:.2f} s", flush=True)
        assert not orders.failures, orders.failures[:3]
        faulty.until_worked_off()
        assert faulty.committed() == faulty.ends(), "the group's offsets are not where the orders end"
        check(read_totals(faulty.cluster.bootstrap), orders.count)
        print(f"workers were started again {faulty.workers.restarts} times", flush=True)
    return seen, orders.count


def summary(seen: Sequence[Seen]) -> Iterator[str]:
    groups: dict[str, list[float]] = defaultdict(list)
    for each in seen:
        groups[each.fault].append(each.worked_s)
    yield f"{'fault':<16} {'rounds':>6} {'worked off p50':>15} {'max':>8}"
    for fault, found in groups.items():
        yield f"{fault:<16} {len(found):>6} {statistics.median(found):>13.2f} s {max(found):>6.2f} s"


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.cluster.transaction_faults", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--rounds", type=int, default=20, help="of each fault (default %(default)s)")
    parser.add_argument("--fault", choices=FAULTS, help="only this one")
    parser.add_argument("--kafka", action="store_true", help="nodes of Apache Kafka instead of ours")
    asked = parser.parse_args(given)
    faults = [asked.fault] if asked.fault else list(FAULTS)
    with tempfile.TemporaryDirectory() as folder:
        seen, count = play(Path(folder), faults * asked.rounds, of_kafka=asked.kafka)
    print(*summary(seen), sep="\n")
    print(f"{count:,} orders: one total each, in order, nothing of what was aborted, no transaction in part")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
