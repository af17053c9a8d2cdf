"""`server init`: files of settings that one edits, for our nodes and for Kafka's."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.base.properties import load_properties_file
from barnabas.broker.settings import BrokerSettings
from barnabas.broker.single_node import replication_for
from barnabas.cli.server import _start_daemon
from tests.cli.tools import Tools
from tests.oracles import needs_kafka, run_java

#: What the file that Kafka ships for a node with both roles says, beside who and where the node is.
SHIPPED = {
    "inter.broker.listener.name": "PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,"
    "SASL_SSL:SASL_SSL",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
}


def settings_in(folder: Path, name: str) -> dict[str, str]:
    return dict(load_properties_file(folder / "config/kraft" / f"{name}.properties"))


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "config/kraft").iterdir())


def test_files_for_each_role(barnabas: Tools, tmp_path: Path) -> None:
    told = barnabas("server", "init", str(tmp_path))
    assert told.code == 0
    assert f"Wrote {tmp_path}/config/kraft/server.properties: node 1, broker and controller.\n" in told.out
    assert f"    barnabas server start {tmp_path}/config/kraft/server.properties\n" in told.out
    assert names_in(tmp_path) == ["broker.properties", "controller.properties", "server.properties"]
    assert settings_in(tmp_path, "server") == SHIPPED | {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": "1@localhost:9093",
        "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        "advertised.listeners": "PLAINTEXT://localhost:9092",
        "log.dirs": f"{tmp_path}/data",
    }
    for name, roles, node_id in (("broker", "broker", "2"), ("controller", "controller", "1")):
        settings = settings_in(tmp_path, name)
        assert (settings["process.roles"], settings["node.id"]) == (roles, node_id)
        assert settings["controller.quorum.voters"] == "1@localhost:9093"
        assert settings["log.dirs"] == f"{tmp_path}/{name}-data"


def test_nothing_in_them_is_unknown_or_without_use_to_us(barnabas: Tools, tmp_path: Path) -> None:
    barnabas("server", "init", str(tmp_path))
    barnabas("server", "init", str(tmp_path), "--nodes", "3")
    for path in (tmp_path / "config/kraft").iterdir():
        assert BrokerSettings.load(load_properties_file(path)).warnings == ()


def test_nodes_of_one_host_have_ports_of_their_own(barnabas: Tools, tmp_path: Path) -> None:
    assert barnabas("server", "init", str(tmp_path), "--nodes", "3").code == 0
    assert names_in(tmp_path) == ["server-1.properties", "server-2.properties", "server-3.properties"]
    voters = "1@localhost:9093,2@localhost:9095,3@localhost:9097"
    assert [settings_in(tmp_path, f"server-{each}") for each in (1, 3)] == [
        SHIPPED
        | replication_for(3)
        | {
            "process.roles": "broker,controller",
            "node.id": str(number),
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://localhost:{port},CONTROLLER://localhost:{port + 1}",
            "advertised.listeners": f"PLAINTEXT://localhost:{port}",
            "log.dirs": f"{tmp_path}/data-{number}",
        }
        for number, port in ((1, 9092), (3, 9096))
    ]


def test_nodes_on_a_host_each(barnabas: Tools, tmp_path: Path) -> None:
    hosts = ("--host", "a", "--host", "b", "--host", "::1")
    assert barnabas("server", "init", str(tmp_path), *hosts).code == 0
    settings = settings_in(tmp_path, "server-3")
    assert settings["controller.quorum.voters"] == "1@a:9093,2@b:9093,3@[::1]:9093"
    assert settings["listeners"] == "PLAINTEXT://[::1]:9092,CONTROLLER://[::1]:9093"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--nodes", "3", "--host", "a", "--host", "b"), "--nodes 3 needs one --host for all, or 3; 2 are given"),
        (("--nodes", "0"), "--nodes"),
        (("--host", "0.0.0.0"), "clients cannot connect to 0.0.0.0"),
        (("--host", "not a host"), "does not look like"),
    ],
)
def test_what_cannot_be_is_refused(barnabas: Tools, tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    told = barnabas("server", "init", str(tmp_path), *arguments)
    assert told.code != 0
    assert said in told.err
    assert not list(tmp_path.iterdir())


def test_what_was_edited_is_not_written_over(barnabas: Tools, tmp_path: Path) -> None:
    barnabas("server", "init", str(tmp_path))
    for each in ("server", "controller"):
        (tmp_path / "config/kraft" / f"{each}.properties").unlink()
    told = barnabas("server", "init", str(tmp_path))
    assert told.code == 1
    assert "config/kraft/broker.properties is there already, and nothing was written" in told.err
    assert names_in(tmp_path) == ["broker.properties"]


def test_a_folder_of_any_name(barnabas: Tools, tmp_path: Path) -> None:
    odd = tmp_path / "Köln \\ #1"
    assert barnabas("server", "init", str(odd)).code == 0
    assert settings_in(odd, "server")["log.dirs"] == f"{odd}/data"
    told = barnabas("server", "init", str(tmp_path / "a,b"))
    assert told.code == 1
    assert "has a comma in it, which separates paths in log.dirs" in told.err


@needs_kafka()
def test_kafka_takes_them_too(barnabas: Tools, tmp_path: Path) -> None:
    barnabas("server", "init", str(tmp_path))
    barnabas("server", "init", str(tmp_path), "--nodes", "2")
    written = [dict(load_properties_file(path)) for path in sorted((tmp_path / "config/kraft").iterdir())]
    problems = run_java("NodeSettings.java", "".join(f"{json.dumps(each)}\n" for each in written))
    assert problems == "\n" * 5


def test_in_the_background_a_node_that_waits_for_others_is_left_to_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Node 1 of three is started first, and alone it cannot be ready."""
    node = tmp_path / "node"
    node.write_text("#!/bin/sh\necho 'waiting: no controller leads; of the voters 2, 3'\nexec cat fifo\n")
    node.chmod(node.stat().st_mode | stat.S_IXUSR)
    subprocess.run(["mkfifo", tmp_path / "fifo"], check=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(node))
    _start_daemon("server.properties", (), None)
    told = capsys.readouterr().out
    assert told.startswith("waiting: no controller leads; of the voters 2, 3 (process ")
    # It runs on, and ends when somebody writes.
    (tmp_path / "fifo").write_text("")
