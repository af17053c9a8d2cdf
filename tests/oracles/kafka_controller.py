"""Apache Kafka's controllers, each a process of its own: voters of a quorum in which ours may be the others."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from tests.oracles import end_process, java
from tests.oracles.kafka_server import answers

START_TIMEOUT_S = 60
_JVM = (
    *("-Xmx256m", "-Xshare:auto", "-Dorg.slf4j.simpleLogger.defaultLogLevel=info"),
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)


def run_kafka(main_class: str, *arguments: str) -> str:
    """What one of Kafka's own tools prints."""
    command = [*java_command(), main_class, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode != 0:
        raise RuntimeError(f"Kafka's {main_class} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return done.stdout


def java_command() -> list[str]:
    return java(*_JVM, logs=True)


class KafkaController:
    """One controller. `log_path` is what it has to say; its folder must be formatted before it is started."""

    def __init__(self, folder: Path, node_id: int, port: int, settings: Mapping[str, str]) -> None:
        self.folder = folder
        self.node_id = node_id
        self.port = port
        self.log_path = folder / "kafka.log"
        self.properties = folder / "controller.properties"
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        entries = {
            "process.roles": "controller",
            "node.id": str(node_id),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CONTROLLER://127.0.0.1:{port}",
            "log.dirs": str(folder / "data"),
        } | dict(settings)
        self.properties.write_text("".join(f"{name}={value}\n" for name, value in entries.items()))

    @property
    def metadata_log(self) -> Path:
        return self.folder / "data" / "__cluster_metadata-0"

    def format(self, cluster_id: str, *options: str) -> None:
        """With Kafka's own tool; which costs a JVM."""
        run_kafka("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(self.properties), *options)

    def start(self) -> None:
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*java_command(), "kafka.Kafka", str(self.properties)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
            )

    def wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not answers(f"127.0.0.1:{self.port}"):
            self.check_alive()
            if time.monotonic() > deadline:
                raise RuntimeError(f"the controller did not answer within {START_TIMEOUT_S} s:\n{self.log_tail()}")
            time.sleep(0.05)

    def check_alive(self) -> None:
        assert self._process is not None, "the controller was not started"
        if self._process.poll() is not None:
            raise RuntimeError(f"the controller ended with code {self._process.returncode}:\n{self.log_tail()}")

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, which: signal.Signals) -> None:
        assert self._process is not None, "the controller was not started"
        self._process.send_signal(which)

    def stop(self) -> None:
        """Stop cleanly; one that does not stop in time is killed."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def log_tail(self, size: int = 4000) -> str:
        return self.log_path.read_text(errors="replace")[-size:] if self.log_path.exists() else ""

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        end_process(process, how)
