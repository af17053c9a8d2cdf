"""Three nodes that show each other who they are: brokers by SCRAM or PLAIN, controllers too, from the first vote on."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from barnabas import Admin, Producer
from barnabas.client.admin import NewTopic
from barnabas.errors import BarnabasError
from tests.ports import free_ports

NODES = (1, 2, 3)
CLUSTER_ID = "sasl-cluster-id-000001"
PASSWORD = "node-pw-7Qx~"
_MODULES = {"PLAIN": "plain.PlainLoginModule", "SCRAM-SHA-256": "scram.ScramLoginModule"}
_PATIENCE_S = 40


class SaslNodes:
    """Processes of `barnabas server start`, whose listeners all ask for SASL."""

    def __init__(self, folder: Path, mechanism: str) -> None:
        self._folder = folder
        self._mechanism = mechanism
        self._ports = dict(zip(NODES, free_ports(3), strict=True))
        self._controllers = dict(zip(NODES, free_ports(3), strict=True))
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def client(self) -> dict[str, Any]:
        return {
            "bootstrap_servers": ",".join(f"127.0.0.1:{port}" for port in self._ports.values()),
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": self._mechanism,
            "sasl_plain_username": "node",
            "sasl_plain_password": PASSWORD,
        }

    def properties(self, node: int, password: str = PASSWORD) -> Path:
        name = self._mechanism.lower()
        jaas = (
            f"org.apache.kafka.common.security.{_MODULES[self._mechanism]} required "
            f'username="node" password="{password}" user_node="{PASSWORD}";'
        )
        voters = ",".join(f"{each}@127.0.0.1:{port}" for each, port in self._controllers.items())
        own, controller = self._ports[node], self._controllers[node]
        given = {
            "process.roles": "broker,controller",
            "node.id": node,
            "listeners": f"CLIENTS://127.0.0.1:{own},CONTROLLERS://127.0.0.1:{controller}",
            "inter.broker.listener.name": "CLIENTS",
            "controller.listener.names": "CONTROLLERS",
            "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,CONTROLLERS:SASL_PLAINTEXT",
            "controller.quorum.voters": voters,
            "sasl.enabled.mechanisms": self._mechanism,
            "sasl.mechanism.inter.broker.protocol": self._mechanism,
            "sasl.mechanism.controller.protocol": self._mechanism,
            f"listener.name.clients.{name}.sasl.jaas.config": jaas,
            f"listener.name.controllers.{name}.sasl.jaas.config": jaas,
            "connections.max.reauth.ms": 2000,
            "log.dirs": self._folder / f"data-{node}",
            "default.replication.factor": 3,
            "min.insync.replicas": 2,
            "broker.session.timeout.ms": 3000,
            "broker.heartbeat.interval.ms": 500,
            "controller.quorum.election.timeout.ms": 500,
        }
        path = self._folder / f"node-{node}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
        return path

    def format(self, node: int) -> None:
        _barnabas(
            *("storage", "format", "-t", CLUSTER_ID, "-c", str(self.properties(node))),
            *("--add-scram", f"SCRAM-SHA-256=[name=node,password={PASSWORD}]"),
        )

    def start(self, node: int) -> None:
        with (self._folder / f"node-{node}.log").open("ab") as log:
            self._processes[node] = subprocess.Popen(
                [sys.executable, "-m", "barnabas", "server", "start", str(self._folder / f"node-{node}.properties")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def kill(self, node: int) -> None:
        process = self._processes.pop(node)
        process.kill()
        process.wait()

    def stop(self) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def log(self) -> str:
        return "".join(path.read_text(errors="replace") for path in self._folder.glob("*.log"))


def _barnabas(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "barnabas", *words], check=True, capture_output=True, timeout=30)


@contextmanager
def started(folder: Path, mechanism: str) -> Iterator[SaslNodes]:
    nodes = SaslNodes(folder, mechanism)
    with ExitStack() as stack:
        stack.callback(nodes.stop)
        for each in NODES:
            nodes.format(each)
            nodes.start(each)
        try:
            yield nodes
        except BaseException:
            print(nodes.log()[-6000:])  # noqa: T201
            raise


def _until_led(admin: Admin, brokers: int) -> int:
    """Who leads the quorum, once so many brokers are there."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            if len(admin.describe_cluster(timeout=5).nodes) >= brokers:
                return admin.describe_metadata_quorum(timeout=5).leader_id
        except BarnabasError:
            if time.monotonic() > deadline_s:
                raise
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", pytest.param("PLAIN", marks=pytest.mark.slow)])
def test_nodes_show_each_other_who_they_are(tmp_path: Path, mechanism: str) -> None:
    with started(tmp_path, mechanism) as nodes, Admin(**nodes.client) as admin:
        leader = _until_led(admin, 3)
        admin.create_topics([NewTopic("t", num_partitions=3, replication_factor=3)])
        with Producer(acks="all", **nodes.client) as producer:
            for number in range(30):
                producer.send("t", b"%d" % number, partition=number % 3).result(20)
            nodes.kill(leader)
            for number in range(30):
                producer.send("t", b"%d" % number, partition=number % 3).result(30)
        assert _until_led(admin, 2) != leader
        time.sleep(2.5)  # longer than a session: whoever does not show itself again is sent away
        with Producer(acks="all", **nodes.client) as producer:
            producer.send("t", b"last", partition=0).result(20)
        log = nodes.log()
        assert PASSWORD not in log
        assert "its session has ended" not in log


@pytest.mark.slow
def test_a_node_with_a_wrong_password_stays_outside(tmp_path: Path) -> None:
    with started(tmp_path, "SCRAM-SHA-256") as nodes, Admin(**nodes.client) as admin:
        _until_led(admin, 3)
        nodes.kill(3)
        nodes.properties(3, "wrong-7Qx~")
        nodes.start(3)
        deadline_s = time.monotonic() + _PATIENCE_S
        while "Failed authentication" not in nodes.log():
            assert time.monotonic() < deadline_s
            time.sleep(0.1)
        time.sleep(3.5)
        assert len(admin.describe_cluster().nodes) == 2
        assert "7Qx~" not in nodes.log()
