"""A node under load for a long time: order and loss are checked all the while, memory must stop growing.

    python -m tests.soak.soak --minutes 10

Two idempotent producers write numbers, a group of three reads them, and its members keep being replaced; others create
topics, use and delete them, or connect and leave. At the end a table of what the node took over time, and exit code 1
when something was lost, out of order, or grew without bound.
"""
# ruff: noqa: T201

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.wire.messages.metadata import MetadataRequest
from tests.compat.brokers import OurServer
from tests.fuzz.attacks import connect, framed, send
from tests.fuzz.processes import cpu_seconds, open_files, resident_bytes

TOPIC = "soak"
GROUP = "soak-group"
PARTITIONS = 6
PRODUCERS = 2
MEMBERS = 3
PER_SECOND = 3000
VALUE_BYTES = 200
TIMEOUT_S = 30

#: Small segments and little retention, so that rolling and deletion happen all the time.
SETTINGS = {
    "log.segment.bytes": str(16 << 20),
    "log.retention.bytes": str(48 << 20),
    "log.retention.check.interval.ms": "5000",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "4",
}
GROWTH_FACTOR, GROWTH_BYTES = 1.2, 16 << 20
BARS = "▁▂▃▄▅▆▇█"


class Ledger:
    """What was acknowledged and what was read, by producer and partition."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.acknowledged: dict[tuple[int, int], int] = defaultdict(lambda: -1)
        self.read: dict[tuple[int, int], int] = defaultdict(lambda: -1)
        self.records = 0
        self.repeated = 0
        self.complaints: list[str] = []

    def complain(self, complaint: str) -> None:
        with self._lock:
            self.complaints.append(complaint)

    def delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self.complain(f"a record was not delivered: {error}")
            return
        producer, number = parsed(message.value())
        with self._lock:
            self.acknowledged[producer, message.partition()] = number

    def consumed(self, message: Any) -> None:
        """Whatever is read twice was read before; whatever is new follows on what was read last."""
        producer, number = parsed(message.value())
        key = (producer, message.partition())
        with self._lock:
            last = self.read[key]
            if number > last + 1:
                self.complaints.append(
                    f"partition {key[1]}, offset {message.offset()}: {number} of producer {producer} came after {last}"
                )
            self.records += number > last
            self.repeated += number <= last
            self.read[key] = max(last, number)

    def is_complete(self) -> bool:
        with self._lock:
            return all(self.read[key] >= number for key, number in self.acknowledged.items())


def parsed(value: bytes) -> tuple[int, int]:
    producer, number, _ = value.split(b":", 2)
    return int(producer), int(number)


class Sample(NamedTuple):
    seconds: float
    memory_bytes: int
    files: int
    cpu_share: float
    records: int


class Soak:
    """One run. Every client is a thread; `over` tells all to finish."""

    def __init__(self, bootstrap: str, pid: int, seed: int) -> None:
        self.bootstrap = bootstrap
        self.pid = pid
        self.random = Random(seed)
        self.ledger = Ledger()
        self.over = threading.Event()
        self.written = threading.Event()
        self.samples: list[Sample] = []

    def run(self, seconds: float) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(TIMEOUT_S)
        producers = [self._thread(partial(self.produce, number)) for number in range(PRODUCERS)]
        group = [self._thread(self.members) for _ in range(MEMBERS)]
        others = [self._thread(self.topics_that_come_and_go), self._thread(self.visitors)]
        self.watch(seconds)
        self.over.set()
        for thread in (*producers, *others):
            thread.join(TIMEOUT_S)
        deadline = time.monotonic() + TIMEOUT_S
        while not self.ledger.is_complete():
            if time.monotonic() > deadline:
                self.ledger.complain("not all that was acknowledged could be read")
                break
            time.sleep(0.05)
        self.written.set()
        for thread in group:
            thread.join(TIMEOUT_S)

    def _thread(self, work: Callable[[], None]) -> threading.Thread:
        def guarded() -> None:
            try:
                work()
            except Exception as failure:
                self.ledger.complain(f"a client failed: {type(failure).__name__}: {failure}")

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        return thread

    def produce(self, number: int) -> None:
        """Every partition gets the numbers from zero on."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "linger.ms": 5})
        value = b":" + b"x" * VALUE_BYTES
        count = 0
        start = time.monotonic()
        while not self.over.is_set():
            for _ in range(PER_SECOND // 20):
                text = b"%d:%d" % (number, count // PARTITIONS) + value
                producer.produce(TOPIC, text, partition=count % PARTITIONS, on_delivery=self.ledger.delivered)
                count += 1
            producer.poll(0)
            self.over.wait(max(0.0, start + count / PER_SECOND - time.monotonic()))
        producer.flush(TIMEOUT_S)

    def members(self) -> None:
        """One place in the group, taken by one member after the other; some close, some are just dropped."""
        while not self.written.is_set():
            self.member(time.monotonic() + self.random.uniform(3, 15), polite=self.random.random() < 0.7)

    def member(self, end: float, *, polite: bool) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 3000,
                "heartbeat.interval.ms": 500,
            }
        )
        consumer.subscribe([TOPIC])
        while time.monotonic() < end and not self.written.is_set():
            messages = [each for each in consumer.consume(1000, timeout=0.2) if each.error() is None]
            ends: dict[int, int] = {}
            for message in messages:
                self.ledger.consumed(message)
                ends[message.partition()] = message.offset() + 1
            if ends and self.random.random() < 0.5:
                offsets = [TopicPartition(TOPIC, partition, offset) for partition, offset in ends.items()]
                consumer.commit(offsets=offsets, asynchronous=True)
        if polite:
            consumer.close()

    def topics_that_come_and_go(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        number = 0
        while not self.over.is_set():
            topic = f"passing-{number}"
            number += 1
            admin.create_topics([NewTopic(topic, 3, 1, config={"cleanup.policy": "compact"})])[topic].result(TIMEOUT_S)
            producer = Producer({"bootstrap.servers": self.bootstrap, "compression.type": "lz4"})
            for count in range(300):
                producer.produce(topic, b"x" * 100, key=b"%d" % (count % 50))
            if producer.flush(TIMEOUT_S):
                self.ledger.complain(f"records of {topic} were not delivered")
            admin.delete_topics([topic])[topic].result(TIMEOUT_S)
            self.over.wait(1)

    def visitors(self) -> None:
        """They come, ask for all topics, and may not wait for the answer."""
        question = framed(MetadataRequest(topics=None), 12)
        while not self.over.wait(0.05):
            peer = connect(self.bootstrap)
            send(peer, question)
            if self.random.random() < 0.5:
                peer.recv(1 << 16)
            peer.close()

    def watch(self, seconds: float) -> None:
        start = time.monotonic()
        cpu, records, before = cpu_seconds(self.pid), 0, start
        while (now := time.monotonic()) < start + seconds and not self.ledger.complaints:
            time.sleep(min(1.0, start + seconds - now))
            now = time.monotonic()
            share = (cpu_seconds(self.pid) - cpu) / (now - before)
            rate = (self.ledger.records - records) / (now - before)
            cpu, records, before = cpu_seconds(self.pid), self.ledger.records, now
            memory = resident_bytes(self.pid)
            self.samples.append(Sample(now - start, memory, open_files(self.pid), share, round(rate)))


def verdict_on_memory(samples: list[Sample]) -> str | None:
    """The last quarter is compared with the second: in the first, everything is still being filled."""
    quarter = len(samples) // 4
    if quarter < 5:
        return None
    early = statistics.median(each.memory_bytes for each in samples[quarter : 2 * quarter])
    late = statistics.median(each.memory_bytes for each in samples[-quarter:])
    if late > early * GROWTH_FACTOR + GROWTH_BYTES:
        return f"memory grew from {early / 1e6:.0f} MB to {late / 1e6:.0f} MB"
    files = [
        statistics.median(each.files for each in part) for part in (samples[quarter : 2 * quarter], samples[-quarter:])
    ]
    if files[1] > files[0] * 2 + 50:
        return f"open files grew from {files[0]:.0f} to {files[1]:.0f}"
    return None


def sparkline(values: list[float], width: int = 60) -> str:
    step = max(1, len(values) // width)
    means = [statistics.mean(values[at : at + step]) for at in range(0, len(values), step)]
    low, high = min(means), max(means)
    return "".join(BARS[int((each - low) / (high - low or 1) * (len(BARS) - 1))] for each in means)


def report(soak: Soak) -> None:
    samples = soak.samples
    print(f"{'minute':>7} {'memory':>9} {'files':>6} {'CPU':>6} {'records/s':>10}")
    step = max(1, len(samples) // 12)
    for each in samples[::step]:
        minute, memory = each.seconds / 60, each.memory_bytes / 1e6
        print(f"{minute:>7.1f} {memory:>6.0f} MB {each.files:>6} {each.cpu_share:>6.0%} {each.records:>10,}")
    megabytes = [each.memory_bytes / 1e6 for each in samples]
    print(f"memory  {sparkline(megabytes)}  {min(megabytes):.0f} to {max(megabytes):.0f} MB")
    print(f"{soak.ledger.records:,} records read, {soak.ledger.repeated:,} of them more than once")


def main() -> int:
    parser = argparse.ArgumentParser(description="Load a node for a long time and watch it.")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="barnabas-soak-") as folder:
        server = OurServer(Path(folder), SETTINGS, ("--data-dir", str(Path(folder) / "data")))
        server.start()
        try:
            soak = Soak(server.bootstrap, server.pid, arguments.seed)
            soak.run(arguments.minutes * 60)
        finally:
            code = server.stop()
        log = server.log_path.read_text(errors="replace")
    report(soak)
    complaints = soak.ledger.complaints[:20]
    complaints += [each] if (each := verdict_on_memory(soak.samples)) else []
    if code != 0:
        complaints.append(f"the node ended with code {code}")
    if "Traceback" in log:
        complaints.append(f"the node's log has an exception:\n{log[log.index('Traceback') :][:3000]}")
    for complaint in complaints:
        print(f"FAILED: {complaint}")
    if not complaints:
        print("ok: nothing lost, all in order, memory bounded")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
