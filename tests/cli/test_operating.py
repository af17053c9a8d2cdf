"""docs/operating.md and deploy/: the commands are there, a backup is one, the unit and the container start a node."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import click
import pytest

from barnabas import Admin, ConfigResource, ConfigResourceType, Consumer, NewTopic, Producer
from barnabas.base.properties import load_properties_file
from barnabas.broker.settings import BrokerSettings
from barnabas.cli.main import TOOLS, tools
from tests.cli.processes import TIMEOUT_S, command, running

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs/operating.md").read_text()
DEPLOY = ROOT / "deploy"
RECORDS = [f"value {number}".encode() for number in range(500)]


def blocks() -> list[str]:
    return [line.strip() for line in PAGE.splitlines() if line.startswith("    ")]


def calls() -> list[list[str]]:
    """What follows `barnabas` in the commands of the page and of the files."""
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "barnabas.service")
    texts = [*blocks(), unit["Service"]["ExecStart"], *container_command().split("&&")]
    found = [re.search(r"(?:^|\s|/)barnabas ((?:storage|server) .*)", text) for text in texts]
    return [shlex.split(match[1]) for match in found if match]


def container_command() -> str:
    (line,) = [line for line in (DEPLOY / "Containerfile").read_text().splitlines() if line.startswith("CMD ")]
    shell, option, text = json.loads(line.removeprefix("CMD "))
    assert (shell, option) == ("sh", "-c")
    return str(text)


def test_commands_that_are_named_can_be_called() -> None:
    found = calls()
    assert len(found) >= 8
    for tool, action, *arguments in found:
        assert tool in TOOLS
        group = tools.get_command(click.Context(tools), tool)
        assert isinstance(group, click.Group)
        known = {option for each in group.commands[action].params for option in each.opts}
        assert {each.partition("=")[0] for each in arguments if each.startswith("-")} <= known, (tool, action)


def test_links_and_files_are_there() -> None:
    links = re.findall(r"\]\(([^)]+)\)", PAGE)
    assert {"../deploy/barnabas.service", "../deploy/server.properties", "../deploy/Containerfile"} <= {*links}
    assert all((ROOT / "docs" / link.partition("#")[0]).exists() for link in links)
    copied = re.findall(r"^COPY (?:--\S+ )*(\S+) ", (DEPLOY / "Containerfile").read_text(), re.MULTILINE)
    assert copied == ["dist/*.whl", "deploy/server.properties"]


def test_the_settings_of_the_example_are_right() -> None:
    settings = BrokerSettings.load(load_properties_file(str(DEPLOY / "server.properties")))
    assert settings.data_dirs == ("/var/lib/barnabas/data",)
    assert settings.advertised_endpoints[0].port == 9092


def local_properties(folder: Path, data: Path) -> Path:
    """The example with other places and ports."""
    text = (DEPLOY / "server.properties").read_text()
    text = text.replace("/var/lib/barnabas/data", str(data)).replace("PLAINTEXT://:9092", "PLAINTEXT://127.0.0.1:0")
    text = text.replace("advertised.listeners=", "#").replace("CONTROLLER://localhost:9093", "CONTROLLER://127.0.0.1:0")
    path = folder / "server.properties"
    path.write_text(text)
    return path


def run(*arguments: str) -> str:
    done = subprocess.run(command(*arguments), capture_output=True, text=True, check=True, timeout=TIMEOUT_S)
    return done.stdout.strip()


def test_a_cold_copy_is_a_backup(tmp_path: Path) -> None:
    data, copy = tmp_path / "data", tmp_path / "elsewhere"
    properties = local_properties(tmp_path, data)
    run("storage", "format", "-t", run("storage", "random-uuid"), "-c", str(properties))
    with running("server", "start", str(properties), folder=tmp_path) as (_, bootstrap):
        with Producer(bootstrap_servers=bootstrap) as producer:
            for value in RECORDS:
                producer.send("t", value)
        with Consumer("t", bootstrap_servers=bootstrap, group_id="g", auto_offset_reset="earliest") as consumer:
            assert consumer.poll(timeout=TIMEOUT_S)
            consumer.commit()
    subprocess.run(["cp", "-a", str(data), str(copy)], check=True)
    properties = local_properties(tmp_path, copy)
    with running("server", "start", str(properties), folder=tmp_path) as (_, bootstrap):
        values: list[bytes | None] = []
        with Consumer("t", bootstrap_servers=bootstrap, group_id="h", auto_offset_reset="earliest") as consumer:
            while len(values) < len(RECORDS) and (records := consumer.poll(timeout=TIMEOUT_S)):
                values += [record.value for record in records]
        assert sorted(value or b"" for value in values) == sorted(RECORDS)
        with Admin(bootstrap_servers=bootstrap) as admin:
            assert "g" in {group.group_id for group in admin.list_groups()}
    assert "since clean shutdown file was found" in (tmp_path / "node.log").read_text()


def test_the_command_of_the_container_formats_once_and_starts(tmp_path: Path) -> None:
    properties = local_properties(tmp_path, tmp_path / "data")
    (tmp_path / "bin").mkdir()
    shim = tmp_path / "bin/barnabas"
    shim.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m barnabas "$@"\n')
    shim.chmod(0o755)
    text = container_command().replace("/etc/barnabas/server.properties", str(properties))
    environment = os.environ | {
        "PATH": f"{shim.parent}:{os.environ['PATH']}",
        "CLUSTER_ID": run("storage", "random-uuid"),
        "ADVERTISED": "localhost:9092",
    }
    for _ in range(2):
        with subprocess.Popen(["sh", "-c", text], env=environment, stdout=subprocess.PIPE, text=True) as node:
            assert node.stdout is not None
            assert any(line.startswith("ready: bootstrap ") for line in node.stdout)
            node.terminate()
            assert node.wait(TIMEOUT_S) == 0


@pytest.mark.parametrize("name", ["plain", "@abstract"])
def test_systemd_is_told_when_the_node_answers_and_that_it_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    address = f"@{tmp_path}/notify" if name.startswith("@") else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(address.replace("@", "\0"))
        heard.settimeout(TIMEOUT_S)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        with running("up", "--ephemeral", "--listen", "127.0.0.1:0", folder=tmp_path):
            assert heard.recv(100) == b"READY=1"
        assert heard.recv(100) == b"STOPPING=1"


def test_the_unit_says_what_the_program_does() -> None:
    unit = (DEPLOY / "barnabas.service").read_text().splitlines()
    wanted = {"Type=notify", "KillSignal=SIGTERM", "KillMode=mixed", "User=barnabas", "StateDirectory=barnabas"}
    assert wanted <= {*unit}


def metadata_chapter() -> list[list[str]]:
    """The commands by which controllers get the metadata back, as words."""
    chapter = PAGE.partition("### When the controllers are lost\n")[2].partition("\n## ")[0]
    return [shlex.split(line) for line in chapter.splitlines() if line.startswith("    ")]


@pytest.mark.slow
def test_controllers_that_were_lost_get_the_metadata_from_a_broker(tmp_path: Path) -> None:
    apart = ("up", "--controllers", "1", "--brokers", "1", "--listen", "127.0.0.1:0", "--data-dir", "cluster")
    with running(*apart, folder=tmp_path) as (process, bootstrap):
        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topics([NewTopic("t", 3, 1, configs={"retention.ms": "123456789"})])
        with Producer(bootstrap_servers=bootstrap) as producer:
            for value in RECORDS:
                producer.send("t", value)
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_S) == 0
    controller, broker = tmp_path / "cluster/node-1", tmp_path / "cluster/node-2"
    shutil.rmtree(controller)
    cluster_id = load_properties_file(str(broker / "meta.properties"))["cluster.id"]
    places = {
        "CLUSTER_ID": str(cluster_id),
        "controller.properties": str(tmp_path / "cluster/node-1.properties"),
        "/var/lib/broker/__cluster_metadata-0": str(broker / "__cluster_metadata-0"),
        "/var/lib/controller": str(controller),
        "/var/lib/controller/__cluster_metadata-0/quorum-state": str(controller / "__cluster_metadata-0/quorum-state"),
    }
    done = 0
    for tool, *words in metadata_chapter():
        given = [places.get(each, each) for each in words]
        if tool == "barnabas" and given[0] == "storage":
            run(*given)
            done += 1
        elif tool in ("cp", "rm"):
            subprocess.run([tool, *given], check=True)
            done += 1
    assert done == 3
    with running(*apart, folder=tmp_path) as (_, bootstrap):
        with Admin(bootstrap_servers=bootstrap) as admin:
            resource = ConfigResource(ConfigResourceType.TOPIC, "t")
            assert admin.describe_configs([resource])[resource]["retention.ms"].value == "123456789"
        values: list[bytes | None] = []
        with Consumer("t", bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
            while len(values) < len(RECORDS) and (records := consumer.poll(timeout=TIMEOUT_S)):
                values += [record.value for record in records]
        assert sorted(value or b"" for value in values) == sorted(RECORDS)
