"""Kafka Connect's source of files writes exactly once into our node, though its worker is killed again and again.

A worker in distributed mode with exactly.once.source.support: what a task reads and how far it has read are written in
one transaction, so that a reader of committed data sees every line of the file once, and in order.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.compat.brokers import unique
from tests.compat.confluent_client import Confluent
from tests.oracles import QUICK_JVM, ROOT, other_process
from tests.ports import free_ports

JARS: Final = Path(os.environ.get("BARNABAS_ORACLES", ROOT / ".oracles")) / "kafka-connect"
LIVES: Final = 4
LINES_PER_LIFE: Final = 400
MORE: Final = "more"
COMMITTED: Final = {"isolation.level": "read_committed"}
EVERYTHING: Final = {"isolation.level": "read_uncommitted"}
PATIENCE_S: Final = 120


def missing() -> str | None:
    if shutil.which("java") is None:
        return "java is not installed"
    found = any(JARS.glob("connect-runtime-*.jar"))
    return None if found else "Kafka Connect is not in .oracles: run 'make oracles'"


pytestmark = [other_process(missing()), pytest.mark.slow]


class Worker:
    """Of a cluster of Connect, with one connector."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._log_path = folder / "connect.log"
        self._properties = folder / "worker.properties"
        self._url = f"http://127.0.0.1:{free_ports(1)[0]}"
        self._name = unique("lines")
        group = unique("connect")
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "listeners": self._url,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "exactly.once.source.support": "enabled",
            "offset.storage.partitions": "2",
            "status.storage.partitions": "1",
            "session.timeout.ms": "3000",
            "heartbeat.interval.ms": "500",
            # Or a killed worker's tasks would rest for five minutes, in case it comes back.
            "scheduled.rebalance.max.delay.ms": "0",
        }
        for topic in ("offset", "config", "status"):
            settings[f"{topic}.storage.topic"] = f"{group}-{topic}"
            settings[f"{topic}.storage.replication.factor"] = "1"
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._process: subprocess.Popen[bytes] | None = None

    @contextmanager
    def alive(self) -> Iterator[None]:
        """From its start until it is killed."""
        command = ["java", *QUICK_JVM, "-cp", f"{JARS}/*", "org.apache.kafka.connect.cli.ConnectDistributed"]
        with self._log_path.open("ab") as log:
            process = self._process = subprocess.Popen(
                [*command, str(self._properties)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            yield
        finally:
            process.kill()
            process.wait()

    def check_runs(self) -> None:
        assert self._process is not None
        if self._process.poll() is not None:
            pytest.fail(f"the worker ended by itself:\n{self._log_path.read_text(errors='replace')[-4000:]}")

    def put(self, config: dict[str, str]) -> None:
        """Have it run a connector. While it starts, and while its group rebalances, it says so."""
        deadline = time.monotonic() + PATIENCE_S
        while "name" not in (told := self._ask("PUT", f"/connectors/{self._name}/config", config)):
            self.check_runs()
            assert time.monotonic() < deadline, f"the connector was not created: {told}"
            time.sleep(0.3)

    def status(self) -> Any:
        return self._ask("GET", f"/connectors/{self._name}/status", None)

    def _ask(self, method: str, path: str, body: object) -> Any:
        """What it says, or why it says nothing."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self._url}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return json.load(answer)
        except (urllib.error.URLError, ConnectionError, TimeoutError) as failure:
            return {"failure": str(failure)}


class Reader:
    """Of the lines that are in a topic."""

    def __init__(self, consumer: Any, topic: str, worker: Worker) -> None:
        consumer.subscribe([topic])
        self._consumer = consumer
        self._worker = worker
        self.lines: list[str] = []
        self.offset = -1

    def read(self, is_enough: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_enough():
            self._worker.check_runs()
            assert time.monotonic() < deadline, f"{len(self.lines)} lines came; {self._worker.status()}"
            message = self._consumer.poll(0.05)
            if message is not None and message.error() is None:
                self.offset = message.offset()
                if message.value() != MORE.encode():
                    self.lines.append(message.value().decode())


@contextmanager
def growing(path: Path, lines: list[str]) -> Iterator[None]:
    """These lines come to a file one after the other, and then others: the source shows the end of a file, and ends a
    transaction, only when more comes."""
    is_over = threading.Event()

    def write() -> None:
        with path.open("a") as file:
            for at in range(0, len(lines), 10):
                file.writelines(f"{each}\n" for each in lines[at : at + 10])
                file.flush()
                is_over.wait(0.1)
            while not is_over.wait(0.05):
                file.write(f"{MORE}\n" * 20)
                file.flush()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def read_all(client: Confluent, topic: str, settings: dict[str, str]) -> list[str]:
    with client.consumer(settings=settings) as consumer:
        consumer.subscribe([topic])
        return [message.value().decode() for message in iter(lambda: consumer.poll(5.0), None)]


def test_every_line_of_a_file_comes_once(transacting: str, tmp_path: Path) -> None:
    client = Confluent(transacting)
    topic = client.topic(1)
    source = tmp_path / "lines.txt"
    worker = Worker(transacting, tmp_path)
    config = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks.max": "1",
        "file": str(source),
        "topic": topic,
        "exactly.once.support": "required",
        "batch.size": "7",
        # Of several polls, so that a kill comes in the middle of one. It ends with the first poll after the interval.
        "transaction.boundary": "interval",
        "transaction.boundary.interval.ms": "300",
    }
    lines = [f"line {number}" for number in range(LIVES * LINES_PER_LIFE)]
    with client.consumer(settings=COMMITTED) as one, client.consumer(settings=EVERYTHING) as other:
        committed, everything = Reader(one, topic, worker), Reader(other, topic, worker)
        for life in range(LIVES):
            of_life = lines[life * LINES_PER_LIFE :][:LINES_PER_LIFE]
            wanted = len(lines) if life == LIVES - 1 else life * LINES_PER_LIFE + LINES_PER_LIFE // 3
            with ExitStack() as growth, worker.alive():
                worker.put(config)
                growth.enter_context(growing(source, of_life))
                committed.read(lambda wanted=wanted: len(committed.lines) >= wanted)  # type: ignore[misc]
                # Killed while a transaction is open, as far as that can be seen.
                everything.read(lambda: everything.offset > committed.offset)
    assert committed.lines[: len(lines)] == lines
    # The same once it is over, and its last transaction was aborted or has run out of time.
    seen = read_all(client, topic, COMMITTED)
    assert [each for each in seen if each != MORE] == lines
    assert len(read_all(client, topic, EVERYTHING)) > len(seen), "nothing was aborted, so nothing could be seen twice"
