"""The broker that the clients' tests talk to: our node, in a process of its own.

Every one of these tests also holds for Apache Kafka, and can be checked there, with the jars of `make oracles`:

    BARNABAS_COMPAT_BROKER=kafka pytest tests/compat

and against a broker that runs already, such as one under a debugger:

    BARNABAS_COMPAT_BOOTSTRAP=127.0.0.1:9092 pytest tests/compat

A broker for these tests has the settings of `OVERRIDES`.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.oracles import missing
from tests.oracles.kafka_server import KafkaServer, answers

OVERRIDES: Mapping[str, str] = {
    "node.id": "0",  # kafka-python's own suite places replicas there
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "log.initial.task.delay.ms": "0",  # what is old by its timestamp goes before any test, not in the midst of one
}
_READY = "ready: bootstrap "
_START_TIMEOUT_S = 30
_STOP_TIMEOUT_S = 20
_SHOWN_LOG_BYTES = 6000


class OurServer:
    """`barnabas up`, as somebody would type it; what it tells goes to a file in `folder`."""

    def __init__(
        self, folder: Path, overrides: Mapping[str, str], arguments: tuple[str, ...] = ("--ephemeral",)
    ) -> None:
        self._command = [sys.executable, "-m", "barnabas", "up", "--listen", "127.0.0.1:0", "-v", *arguments]
        own = {
            "controller.quorum.voters": f"{overrides.get('node.id', '1')}@127.0.0.1:9093",
            "advertised.listeners": "PLAINTEXT://127.0.0.1:0",  # as somebody would who has a server.properties
        }
        for name, value in (own | dict(overrides)).items():
            self._command += ["--override", f"{name}={value}"]
        self._process: subprocess.Popen[str] | None = None
        self.log_path = folder / "barnabas.log"
        self.bootstrap = ""

    def __enter__(self) -> OurServer:
        self.start()
        return self

    def __exit__(self, *_failure: object) -> None:
        self.stop()

    def start(self) -> None:
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True
            )
        try:
            self.bootstrap = self._ready_line().removeprefix(_READY)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> int:
        """Stop cleanly and return the exit code; a node that does not stop in time is killed."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.terminate()
        try:
            return process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()
        finally:
            if process.stdout is not None:
                process.stdout.close()

    @property
    def pid(self) -> int:
        assert self._process is not None, "the node was not started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log_tail(self) -> str:
        return self.log_path.read_text(errors="replace")[-_SHOWN_LOG_BYTES:] if self.log_path.exists() else ""

    def _ready_line(self) -> str:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        deadline = time.monotonic() + _START_TIMEOUT_S
        while select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
            line = process.stdout.readline()
            if line.startswith(_READY):
                return line.strip()
            if not line:
                raise RuntimeError(f"the node ended with code {process.wait()}:\n{self.log_tail()}")
        raise RuntimeError(f"the node was not ready within {_START_TIMEOUT_S} s:\n{self.log_tail()}")


def serve(folder: Path, overrides: Mapping[str, str] = OVERRIDES) -> Iterator[str]:
    """The address of the broker to test, which lives until the iterator is closed."""
    running = os.environ.get("BARNABAS_COMPAT_BOOTSTRAP")
    if running:
        if not answers(running):
            pytest.fail(f"BARNABAS_COMPAT_BOOTSTRAP: no broker answers at {running}")
        yield running
        return
    which = os.environ.get("BARNABAS_COMPAT_BROKER", "barnabas")
    if which == "kafka":
        reason = missing()
        if reason is not None:
            pytest.fail(f"BARNABAS_COMPAT_BROKER=kafka: {reason}")
        with KafkaServer(folder, overrides) as kafka:
            yield kafka.bootstrap
        return
    if which != "barnabas":
        pytest.fail(f"BARNABAS_COMPAT_BROKER={which}: write barnabas or kafka")
    with OurServer(folder, overrides) as ours:
        yield ours.bootstrap
        if not ours.is_running:
            pytest.fail(f"the node ended while the tests ran:\n{ours.log_tail()}")


def unique(name: str) -> str:
    """A name for a topic or a group that no other test has."""
    return f"{name}-{uuid.uuid4().hex[:10]}"
