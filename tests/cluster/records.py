"""Clients that write while a cluster has trouble and remember what was acknowledged, and what must be read afterwards.

Every record has a value of its own: who sent it, to which partition, and a number that rises. Acknowledged records must
be there, once, at the offset that was told, and those of one sender and partition in the order in which they were sent.
Records that were not acknowledged may be there, once.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka import Producer as Librdkafka

import barnabas
from tests.cluster.nodes import end_with_parent
from tests.oracles import java

#: Longer than any fault: a record that expires was not acknowledged, but nothing should.
DELIVERY_S: Final = 120
_END_S: Final = 150.0
#: A leader that is cut off still takes requests from clients that reach it, and never answers them: so long they wait.
_REQUEST_S: Final = 5
#: So many a second from each sender: it is for what happens to them, not for speed.
RATE: Final = 400


#: A retry that the leader finds to be a duplicate of something older than the batches whose offsets it keeps.
UNKNOWN_OFFSET: Final = -1


class Acknowledged(NamedTuple):
    partition: int
    offset: int
    value: str


class Sender(Protocol):
    """`with` sends until it is left, and then waits until all that was sent is answered."""

    name: str
    acknowledged: list[Acknowledged]
    failures: list[str]

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class _Threaded:
    """A sender in a thread of its own; `_send` sends one record, `_finish` waits for all."""

    def __init__(self, name: str, topic: str, partitions: int) -> None:
        self.name = name
        self.acknowledged: list[Acknowledged] = []
        self.failures: list[str] = []
        self._topic = topic
        self._partitions = partitions
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)

    def _run(self) -> None:
        began_s, number = time.monotonic(), 0
        while not self._is_over.is_set():
            partition = number % self._partitions
            try:
                self._send(partition, f"{self.name}/{partition}/{number:09d}")
                number += 1
            except BufferError:
                self._is_over.wait(0.05)
            ahead_s = number / RATE - (time.monotonic() - began_s)
            if ahead_s > 0.005:
                self._wait(ahead_s)
        self._finish()

    def _wait(self, seconds: float) -> None:
        self._is_over.wait(seconds)

    def _send(self, partition: int, value: str) -> None:
        raise NotImplementedError

    def _finish(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join(_END_S)
        if kind is None:
            assert not self._thread.is_alive(), f"{self.name} has not ended"


class LibrdkafkaSender(_Threaded):
    """confluent-kafka, idempotent. `latest_s` says of each partition when the newest acknowledged record was sent."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, name: str = "librdkafka") -> None:
        super().__init__(name, topic, partitions)
        self.latest_s: dict[int, float] = dict.fromkeys(range(partitions), 0.0)
        self._producer = Librdkafka(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "delivery.timeout.ms": DELIVERY_S * 1000,
                "request.timeout.ms": _REQUEST_S * 1000,
                "socket.timeout.ms": 2 * _REQUEST_S * 1000,
                "linger.ms": 2,
            }
        )

    def _send(self, partition: int, value: str) -> None:
        sent_s = time.monotonic()

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self.latest_s[partition] = max(sent_s, self.latest_s[partition])
                # None where the leader knows that it has the record, as one sent again, but not where.
                offset = message.offset()
                known = offset is not None and offset >= 0
                self.acknowledged.append(Acknowledged(partition, offset if known else UNKNOWN_OFFSET, value))
            else:
                self.failures.append(f"{value}: {error}")

        self._producer.produce(self._topic, value.encode(), partition=partition, on_delivery=delivered)

    def _wait(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        # It comes back as soon as it has told of something.
        while (left_s := end_s - time.monotonic()) > 0:
            self._producer.poll(left_s)

    def _finish(self) -> None:
        self._producer.flush(_END_S)


class OurSender(_Threaded):
    """Our producer, idempotent as by default."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, name: str = "barnabas") -> None:
        super().__init__(name, topic, partitions)
        self._producer = barnabas.Producer(
            bootstrap_servers=bootstrap,
            acks="all",
            delivery_timeout_ms=DELIVERY_S * 1000,
            request_timeout_ms=_REQUEST_S * 1000,
            linger_ms=2,
        )
        self._sent: list[tuple[str, Any]] = []

    def _send(self, partition: int, value: str) -> None:
        self._sent.append((value, self._producer.send(self._topic, value.encode(), partition=partition)))

    def _finish(self) -> None:
        for value, delivery in self._sent:
            try:
                told = delivery.result(_END_S)
                self.acknowledged.append(Acknowledged(told.partition, told.offset, value))
            except barnabas.BarnabasError as failure:
                self.failures.append(f"{value}: {failure}")
        self._producer.close()


class JavaSender:
    """Kafka's VerifiableProducer. It chooses partitions itself, and its values are numbers behind a prefix."""

    def __init__(self, bootstrap: str, topic: str, folder: Path) -> None:
        self.name = "java"
        self.acknowledged: list[Acknowledged] = []
        self.failures: list[str] = []
        settings = folder / "java-producer.properties"
        settings.write_text(
            f"retries=2147483647\nenable.idempotence=true\ndelivery.timeout.ms={DELIVERY_S * 1000}\nlinger.ms=2\n"
            f"request.timeout.ms={_REQUEST_S * 1000}\n"
        )
        self._said = folder / "java-producer.log"
        self._command = java("-Xmx128m")
        self._command += ["org.apache.kafka.tools.VerifiableProducer", "--bootstrap-server", bootstrap]
        self._command += ["--topic", topic, "--throughput", str(RATE), "--acks", "-1", "--value-prefix", "7"]
        self._command += ["--command-config", str(settings)]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                self._command, stdout=said, stderr=subprocess.DEVNULL, preexec_fn=end_with_parent
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(_END_S)
        finally:
            self._process.kill()
        for line in self._said.read_text(errors="replace").splitlines():
            told = json.loads(line) if line.startswith("{") else {}
            if told.get("name") == "producer_send_success":
                self.acknowledged.append(Acknowledged(told["partition"], told["offset"], told["value"]))
            elif told.get("name") == "producer_send_error":
                self.failures.append(f"{told['value']}: {told['message']}")


class GroupReader:
    """A member of a group that reads all the time and commits what it has read. It may see a record again after a
    fault, but must miss none, and the group must stand at the end of what was read."""

    def __init__(self, bootstrap: str, topic: str, group: str = "readers") -> None:
        self.values: set[str] = set()
        self._topic = topic
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 10_000,
        }
        self._is_over = threading.Event()
        self._wanted: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="group reader")
        self.positions: dict[int, int] = {}
        self.commits = 0

    def _run(self) -> None:
        consumer = Consumer(self._settings)
        consumer.subscribe([self._topic])
        committed_s = time.monotonic()
        end_s = float("inf")
        while time.monotonic() < end_s:
            for message in consumer.consume(500, 0.2):
                if message.error() is None:
                    value = message.value()
                    assert isinstance(value, bytes)
                    self.values.add(value.decode())
                    self.positions[message.partition() or 0] = (message.offset() or 0) + 1
            if self.positions and time.monotonic() > committed_s + 0.5:
                committed_s = time.monotonic()
                self._commit(consumer)
            if self._is_over.is_set():
                end_s = min(end_s, time.monotonic() + _END_S)
                if self._wanted <= self.values and self._commit(consumer):
                    break
        consumer.close()

    def _commit(self, consumer: Consumer) -> bool:
        offsets = [TopicPartition(self._topic, partition, offset) for partition, offset in self.positions.items()]
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException:
            return False
        self.commits += 1
        return True

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread.is_alive():
            self._is_over.set()
            self._thread.join(_END_S + 20)

    def finish(self, wanted: set[str]) -> None:
        """Read on until all of these were seen, and commit."""
        self._wanted = wanted
        self._is_over.set()
        self._thread.join(_END_S + 20)
        missing = wanted - self.values
        assert not missing, f"the group has not read {len(missing)} records, {sorted(missing)[:3]} among them"

    def committed(self) -> dict[int, int]:
        """Where the group stands, as a new member is told."""
        consumer = Consumer(self._settings)
        try:
            asked = [TopicPartition(self._topic, each) for each in self.positions]
            return {each.partition: each.offset for each in consumer.committed(asked, 30)}
        finally:
            consumer.close()


def read_all(bootstrap: str, topic: str, partitions: int) -> dict[int, dict[int, str]]:
    """All that is committed, by partition and offset."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "checker", "enable.auto.commit": False}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.partition.eof": True})
    found: dict[int, dict[int, str]] = {each: {} for each in range(partitions)}
    at_end: set[int] = set()
    deadline_s = time.monotonic() + _END_S
    try:
        consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
        while len(at_end) < partitions:
            assert time.monotonic() < deadline_s, f"{topic} was not read to its end: {sorted(at_end)}"
            for message in consumer.consume(1000, 0.5):
                error, partition = message.error(), message.partition() or 0
                if error is None:
                    value = message.value()
                    assert isinstance(value, bytes)
                    found[partition][message.offset() or 0] = value.decode()
                elif error.code() == KafkaError._PARTITION_EOF:
                    at_end.add(partition)
    finally:
        consumer.close()
    return found


def check(found: dict[int, dict[int, str]], senders: Sequence[Sender]) -> int:
    """What must hold of all senders; returns how many records were acknowledged."""
    count = 0
    places: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for partition, records in found.items():
        assert list(records) == list(range(len(records))), f"partition {partition} has a hole"
        for offset, value in records.items():
            places[value].append((partition, offset))
    twice = {value: where for value, where in places.items() if len(where) > 1}
    by_sender = Counter(value.replace(".", "/").partition("/")[0] for value in twice)
    assert not twice, f"{len(twice)} records are there twice, of {dict(by_sender)}, such as {list(twice.items())[:3]}"
    for sender in senders:
        assert sender.acknowledged, f"{sender.name} was acknowledged nothing: {sender.failures[:3]}"
        for partition, offset, value in sender.acknowledged:
            if offset == UNKNOWN_OFFSET:
                assert [each for each, _ in places[value]] == [partition], f"{value} is lost"
                continue
            there = found[partition].get(offset)
            assert there == value, (
                f"{sender.name} was told that {value} is in partition {partition} at {offset}, where {there} is; "
                f"it is at {places.get(value)}"
            )
        count += len(sender.acknowledged)
    _check_order(found)
    return count


def _check_order(found: dict[int, dict[int, str]]) -> None:
    for partition, records in found.items():
        last: dict[str, int] = {}
        for offset, value in records.items():
            sender, _, number = value.replace(".", "/").rpartition("/")
            sent = int(number)
            assert sent > last.get(sender, -1), f"{value} of partition {partition} at {offset} comes too late"
            last[sender] = sent
