"""Kafka's quickstart, word for word, with the settings that Kafka 4 ships."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.processes import READY, TIMEOUT_S

#: What `config/server.properties` of Kafka 4.3 sets; but the directory is here, and ports are left to the system.
SHIPPED = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:0,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
RUN = "import sys; from barnabas.cli.aliases import run; sys.exit(run(sys.argv[1:]))"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config").mkdir()
    (tmp_path / "config/server.properties").write_text(SHIPPED)
    return tmp_path


def script(words: str, *, cwd: Path, text: str = "") -> subprocess.CompletedProcess[str]:
    """One of Kafka's scripts, from where the quickstart has its reader stand."""
    command = [sys.executable, "-c", RUN, *words.split()]
    return subprocess.run(command, cwd=cwd, input=text, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)


def with_static_voters(folder: Path) -> None:
    path = folder / "config/server.properties"
    path.write_text(path.read_text().replace("bootstrap.servers=", "voters=1@"))


@pytest.mark.parametrize("option", ["", "--standalone "])
def test_the_quickstart_can_be_followed(folder: Path, option: str) -> None:
    if not option:
        with_static_voters(folder)
    cluster_id = script("bin/kafka-storage.sh random-uuid", cwd=folder).stdout.strip()
    told = script(f"bin/kafka-storage.sh format {option}-t {cluster_id} -c config/server.properties", cwd=folder)
    kind = "dynamic metadata voter" if option else "metadata"
    assert told.stdout == f"Formatting {kind} directory kraft-combined-logs with metadata.version 4.0-IV3.\n"
    node = subprocess.Popen(
        [sys.executable, "-c", RUN, "bin/kafka-server-start.sh", "config/server.properties"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert node.stdout is not None
        line = node.stdout.readline().strip()
        assert line.startswith(f"{READY}localhost:"), "the address that is advertised"
        at = f"--bootstrap-server {line.removeprefix(READY)}"
        told = script(f"bin/kafka-topics.sh --create --topic quickstart-events {at}", cwd=folder)
        assert told.stdout == "Created topic quickstart-events.\n"
        told = script(f"bin/kafka-topics.sh --describe --topic quickstart-events {at}", cwd=folder)
        assert "quickstart-events" in told.stdout
        events = "This is my first event\nThis is my second event\n"
        script(f"bin/kafka-console-producer.sh --topic quickstart-events {at}", cwd=folder, text=events)
        told = script(
            f"bin/kafka-console-consumer.sh --topic quickstart-events --from-beginning --max-messages 2 {at}",
            cwd=folder,
        )
        assert told.stdout == events
    finally:
        node.terminate()
        assert node.wait(TIMEOUT_S) == 0
        if node.stdout is not None:
            node.stdout.close()


def test_who_does_not_say_standalone_is_told_of_it(folder: Path) -> None:
    told = script("kafka-storage.sh format -t 4L6g3nShT-eMCtK--X86sw -c config/server.properties", cwd=folder)
    assert told.returncode == 1
    assert (
        "say who the first voters are: --standalone, --initial-controllers or --no-initial-controllers" in told.stderr
    )


@pytest.mark.parametrize("option", ["", "-daemon "])
def test_a_directory_must_be_formatted(folder: Path, option: str) -> None:
    with_static_voters(folder)
    told = script(f"kafka-server-start.sh {option}config/server.properties", cwd=folder)
    assert told.returncode == 1
    assert "kraft-combined-logs is not formatted" in told.stderr
