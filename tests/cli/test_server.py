"""A node from Kafka's own server.properties: formatted, started in the background, stopped."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.cli.processes import TIMEOUT_S, command, refused, running

PROPERTIES = """
# The basic settings of Kafka's own example, with ports left to the system
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:9093
listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
num.network.threads=3
num.io.threads=8
log.dirs=logs-a,logs-b
num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
"""
METRICS = ("--override", "metrics.listener=127.0.0.1:0")


def barnabas(*arguments: str, folder: Path) -> str:
    done = subprocess.run(
        command(*arguments), capture_output=True, text=True, check=False, timeout=TIMEOUT_S, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "server.properties").write_text(PROPERTIES)
    return tmp_path


def formatted(folder: Path) -> Path:
    cluster_id = barnabas("storage", "random-uuid", folder=folder)
    barnabas("storage", "format", "-t", cluster_id, "-c", "server.properties", folder=folder)
    return folder


def test_it_is_formatted_started_and_stopped_as_kafka_is(folder: Path) -> None:
    formatted(folder)
    ready = barnabas("server", "start", "server.properties", "--daemon", *METRICS, folder=folder)
    try:
        ready, metrics = ready.splitlines()
        assert ready.startswith("ready: bootstrap 127.0.0.1:")
        assert metrics.startswith("metrics: http://127.0.0.1:")
        bootstrap = ready.split()[2]
        assert AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=TIMEOUT_S).brokers
    finally:
        stopped = barnabas("server", "stop", "server.properties", folder=folder)
    assert stopped.startswith("stopped: process ")
    assert (folder / "logs-a/.kafka_cleanshutdown").exists()
    assert (folder / "logs-b/.kafka_cleanshutdown").exists()
    made = [folder / name for name in ("logs", "logs-a", "logs-b")]
    made += [each for directory in made for each in directory.rglob("*")]
    assert {folder / "logs/server.log", folder / "logs/server.out"} <= {*made}
    assert f"log in {folder / 'logs/server.log'})" in ready
    log = (folder / "logs/server.log").read_text()
    assert "INFO barnabas.broker: [node 1] Starting node 1" in log
    assert "INFO barnabas.cli: [node 1] Terminating process due to signal SIGTERM" in log
    assert log.endswith("INFO barnabas.broker: [node 1] Node 1: shut down completed\n")
    assert (folder / "logs/server.out").read_text().splitlines() == [f"ready: bootstrap {bootstrap}", metrics]
    assert (folder / "logs-a/__cluster_metadata-0/00000000000000000000.log") in made
    assert not [(each, oct(each.stat().st_mode)) for each in made if each.stat().st_mode & 0o077]


def test_its_log_is_as_the_settings_say(folder: Path) -> None:
    formatted(folder)
    with (folder / "server.properties").open("a") as properties:
        properties.write(
            "logging.file=node.log\nlogging.file.max.bytes=1024\nlogging.file.max.count=2\n"
            "logging.levels=kafka.request.logger=DEBUG,org.apache.kafka.raft=TRACE\n"
        )
    started = ("server", "start", "server.properties", "--daemon", "--log-format", "json")
    ready = barnabas(*started, folder=folder)
    try:
        bootstrap = ready.split()[2]
        loggers = ("configs", "--bootstrap-server", bootstrap, "--entity-type", "broker-loggers", "--entity-name", "1")
        told = barnabas(*loggers, "--describe", folder=folder)
        assert "kafka.request.logger=DEBUG " in told
        assert "barnabas.raft=TRACE " in told
        barnabas(*loggers, "--alter", "--add-config", "kafka.request.logger=INFO", folder=folder)
        assert "kafka.request.logger=INFO " in barnabas(*loggers, "--describe", folder=folder)
    finally:
        barnabas("server", "stop", "server.properties", folder=folder)
    names = {each.name for each in folder.glob("node.log*")}
    assert names == {"node.log", "node.log.1", "node.log.2"}
    lines = [json.loads(line) for name in sorted(names) for line in (folder / name).read_text().splitlines()]
    assert {each["who"] for each in lines} == {"node 1"}
    assert any(each["message"] == "Node 1: shut down completed" for each in lines)


def test_overrides_stand_over_the_file(folder: Path) -> None:
    formatted(folder)
    with running("server", "start", "server.properties", "--override", "broker.rack=attic", folder=folder) as (
        _,
        bootstrap,
    ):
        told = barnabas("broker-api-versions", "--bootstrap-server", bootstrap, folder=folder)
    assert "attic" in told


def test_directories_must_be_formatted(folder: Path) -> None:
    code, told = refused("server", "start", "server.properties", folder=folder)
    assert code == 1
    assert "barnabas storage format" in told


def test_a_failed_start_in_the_background_is_told(folder: Path) -> None:
    code, told = refused("server", "start", "server.properties", "--daemon", folder=folder)
    assert code == 1
    assert "is not formatted" in told
    assert told.count("barnabas: ") == 1
    last = (folder / "logs/server.log").read_text().splitlines()[-1]
    assert " CRITICAL barnabas.cli: Exiting: " in last
    assert "is not formatted" in last


def test_all_that_is_wrong_with_a_file_is_told_also_in_the_background(folder: Path) -> None:
    with (folder / "server.properties").open("a") as properties:
        properties.write("log.retention.minutes=x\nauto.create.topics.enable=y\n")
    code, told = refused("server", "start", "server.properties", "--daemon", folder=folder)
    assert code == 1
    assert told.startswith("barnabas: the node did not start (see ")
    assert "): 2 problems with settings:\n" in told
    assert "log.retention.minutes = 'x'" in told
    assert "auto.create.topics.enable = 'y'" in told


def test_two_nodes_do_not_share_a_log(folder: Path) -> None:
    formatted(folder)
    with running("server", "start", "server.properties", "--log-file", "logs/server.log", folder=folder):
        code, told = refused("server", "start", "server.properties", "--daemon", folder=folder)
    assert code == 1
    assert f"{folder / 'logs/server.log'} is the log of another node, which runs; give each its own" in told


def test_directories_of_two_clusters_are_refused(folder: Path) -> None:
    formatted(folder)
    meta = folder / "logs-b/meta.properties"
    lines = [
        line if not line.startswith("cluster.id") else "cluster.id=other" for line in meta.read_text().splitlines()
    ]
    meta.write_text("\n".join(lines))
    code, told = refused("server", "start", "server.properties", "-q", folder=folder)
    assert code == 1
    assert "belongs to cluster other" in told
    assert told.count("\n") == 1


def test_there_may_be_nothing_to_stop(folder: Path) -> None:
    code, told = refused("server", "stop", "server.properties", folder=folder)
    assert code == 1
    assert told.startswith("barnabas: no node")


def test_who_only_speaks_of_a_server_is_not_stopped(folder: Path) -> None:
    waits = "read line; : barnabas server start server.properties"
    speaker = subprocess.Popen(["sh", "-c", waits], cwd=folder, stdin=subprocess.PIPE)
    try:
        assert refused("server", "stop", "server.properties", folder=folder)[0] == 1
        assert speaker.poll() is None
    finally:
        speaker.communicate(timeout=TIMEOUT_S)
