"""Three combined nodes at full produce load: nobody may lose the lead, and nobody may be fenced.

    python -m tests.cluster.load --minutes 10

Two producers, processes of their own with librdkafka, send as fast as the nodes take it; on two cores, nodes and
producers have far less than they want. Heartbeats, Raft and the controllers' traffic must come through all the same.
Sessions and timeouts are Kafka's defaults. Every second each node is asked who leads and who is fenced.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.asking import active, all_unfenced, fenced, quorum
from tests.cluster.nodes import Cluster

TOPIC: Final = "load"
PARTITIONS: Final = 6
PRODUCERS: Final = 2
_LOOK_S: Final = 1.0
_FENCED: Final = re.compile(r"Fencing broker \d+.*")
_SETTINGS: Final = {
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "2000",
    # What was produced goes soon, or the disk would be full.
    "log.retention.check.interval.ms": "2000",
    "log.segment.delete.delay.ms": "1000",
}
_TOPIC_SETTINGS: Final = {"retention.bytes": str(128 * 2**20), "segment.bytes": str(32 * 2**20)}


class Seen(NamedTuple):
    """What a run has come to: records and bytes that were acknowledged, and all that should not have been."""

    seconds: float
    records: int
    errors: int
    looks: int
    slowest_answer_s: float
    troubles: list[str]


def run(folder: Path, seconds: float, size: int, factor: int) -> Seen:
    cluster = Cluster(folder, settings=_SETTINGS)
    with cluster:
        all_unfenced(cluster)
        _, epoch = active(cluster)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topic = NewTopic(TOPIC, PARTITIONS, factor, config=_TOPIC_SETTINGS)
        for each in admin.create_topics([topic]).values():
            each.result(30)
        began_s = time.monotonic()
        producers = [_producing(cluster.bootstrap, seconds, size) for _ in range(PRODUCERS)]
        try:
            looks, slowest_s, troubles = _watch(cluster, epoch, began_s + seconds)
            told = [each.communicate(timeout=120)[0].split() for each in producers]
        finally:
            for each in producers:
                each.kill()
        took_s = time.monotonic() - began_s
        for node in cluster.nodes.values():
            troubles += [f"node {node.node_id} said: {line}" for line in _FENCED.findall(node.told())]
    records, errors = (sum(int(each[place]) for each in told) for place in (0, 1))
    return Seen(took_s, records, errors, looks, slowest_s, troubles)


def _watch(cluster: Cluster, epoch: int, end_s: float) -> tuple[int, float, list[str]]:
    looks, slowest_s, troubles = 0, 0.0, set[str]()
    while time.monotonic() < end_s:
        for node in cluster.brokers:
            asked_s = time.monotonic()
            try:
                found, gone = quorum(node.controller, timeout_s=10.0), fenced(node)
            except OSError as problem:
                troubles.add(f"node {node.node_id} did not answer: {problem}")
                continue
            slowest_s = max(slowest_s, time.monotonic() - asked_s)
            looks += 1
            if found is not None and found.epoch != epoch:
                troubles.add(f"epoch {found.epoch}, led by {found.leader_id}, follows epoch {epoch}")
            if gone:
                troubles.add(f"node {node.node_id} tells that brokers {sorted(gone)} are fenced")
        time.sleep(_LOOK_S)
    return looks, slowest_s, sorted(troubles)


def _producing(bootstrap: str, seconds: float, size: int) -> subprocess.Popen[str]:
    how = ["--minutes", str(seconds / 60), "--size", str(size)]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.cluster.load", "--produce", bootstrap, *how],
        stdout=subprocess.PIPE,
        text=True,
    )


def produce(bootstrap: str, seconds: float, size: int) -> tuple[int, int]:
    """Send for so long, as fast as it goes; how many records were acknowledged, and how many not."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "enable.idempotence": True})
    counts = [0, 0]

    def delivered(error: KafkaError | None, _: Message) -> None:
        counts[error is not None] += 1

    value, end_s, number = bytes(size), time.monotonic() + seconds, 0
    while time.monotonic() < end_s:
        try:
            producer.produce(TOPIC, value, on_delivery=delivered)
            number += 1
        except BufferError:
            producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush(60)
    return counts[0], counts[1]


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.load", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (default %(default)s)")
    parser.add_argument("--size", type=int, default=1000, help="bytes of a record (default %(default)s)")
    parser.add_argument("--factor", type=int, default=1, help="replicas of each partition (default %(default)s)")
    parser.add_argument("--produce", metavar="BOOTSTRAP", help=argparse.SUPPRESS)
    asked = parser.parse_args(given)
    if asked.produce:
        print(*produce(asked.produce, asked.minutes * 60, asked.size))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        seen = run(Path(folder), asked.minutes * 60, asked.size, asked.factor)
    mib = seen.records * asked.size / 2**20
    print(
        f"{seen.seconds:.0f} s: {seen.records:,} records of {asked.size} bytes acknowledged, "
        f"{seen.records / seen.seconds:,.0f} records/s, {mib / seen.seconds:.0f} MiB/s, {seen.errors} errors; "
        f"{seen.looks} looks, the slowest answer after {seen.slowest_answer_s:.2f} s"
    )
    for each in seen.troubles:
        print(f"TROUBLE: {each}")
    print("no election, no fencing" if not seen.troubles else f"{len(seen.troubles)} troubles")
    return 1 if seen.troubles or seen.errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
