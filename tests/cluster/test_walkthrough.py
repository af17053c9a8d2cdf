"""docs/cluster.md, line by line, on one machine: hosts are folders, and ports are others."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from barnabas import Admin
from barnabas.base.properties import format_properties, load_properties_file
from tests.cluster.asking import quorum, until
from tests.cluster.nodes import Cluster

_DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "cluster.md"
_PROMPT: Final = re.compile(r"    (bigdata0[1-3]|active|leader|other)\$ (.*)")
_ID: Final = "MkU3OEVBNTcwNTJENDM2Qg"
_TIMEOUT_S: Final = 120


class Line(NamedTuple):
    host: str
    command: str
    expected: list[str]


def lines() -> Iterator[Line]:
    current: Line | None = None
    for text in _DOCUMENT.read_text().splitlines():
        if found := _PROMPT.fullmatch(text):
            if current is not None:
                yield current
            current = Line(found[1], found[2], [])
        elif current is not None and text.startswith("    "):
            current.expected.append(text.strip())
        elif current is not None:
            yield current
            current = None


def _property(line: str) -> tuple[str, str]:
    name, _, text = line.partition("=")
    return name, text


class Machines:
    """Three folders that stand for machines, with the ports of a `Cluster` that nobody starts."""

    def __init__(self, folder: Path) -> None:
        self.cluster = Cluster(folder)
        self.pids: dict[str, int] = {}
        self._background: list[subprocess.Popen[bytes]] = []
        self.id = _ID
        self.active = self.leader = ""
        tools = folder / "bin"
        tools.mkdir()
        (tools / "barnabas").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m barnabas "$@"\n')
        (tools / "barnabas").chmod(0o755)
        self._environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
        subprocess.run([str(tools / "barnabas"), "server", "init", str(folder)], check=True, capture_output=True)
        shipped = load_properties_file(str(folder / "config" / "kraft" / "server.properties"))
        lines = _DOCUMENT.read_text().partition("```properties\n")[2].partition("```")[0].splitlines()
        for host in ("bigdata01", "bigdata02", "bigdata03"):
            edited = {
                name: self.here(text.replace("://bigdata01", f"://{host}")) for name, text in map(_property, lines)
            }
            # Who has the voters in the settings names no bootstrap servers.
            kept = {name: str(text) for name, text in shipped.items() if name != "controller.quorum.bootstrap.servers"}
            file = self.folder(host) / "config" / "kraft" / "server.properties"
            file.parent.mkdir(parents=True)
            file.write_text(format_properties({**kept, **edited, "node.id": host[-1]}))

    def folder(self, host: str) -> Path:
        return self.cluster.folder / host

    def here(self, text: str) -> str:
        for number, node in self.cluster.nodes.items():
            text = text.replace(f"bigdata0{number}:9092", node.bootstrap)
            text = text.replace(f"bigdata0{number}:9093", node.controller)
        return text.replace(_ID, self.id)

    def run(self, line: Line) -> str:
        host = self.host(line.host)
        command = self.here(line.command).replace("PID", str(self.pids.get(host, -1)))
        if command.endswith(" &"):
            return self._run_in_background(host, command.removesuffix(" &"), self.here(line.expected[0]))
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder(host),
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
        )
        if started := re.search(r"\(process (\d+),", done.stdout):
            self.pids[host] = int(started[1])
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        if "server stop" in command or "kill -9" in command:
            self.pids.pop(host)
        return done.stdout

    def _run_in_background(self, host: str, command: str, expected: str) -> str:
        log = self.folder(host) / "said"
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"], cwd=self.folder(host), env=self._environment, stderr=output
            )
        self._background.append(process)
        self.pids[host] = process.pid
        until("it says for whom it waits", lambda: expected in log.read_text())
        return expected

    def host(self, name: str) -> str:
        """Who `active` and `leader` are, is asked when they are first named; `other` is one that runs."""
        if name == "active" and not self.active:
            self.active = f"bigdata0{self._leader()}"
        if name == "leader" and not self.leader:
            self.leader = f"bigdata0{self._leader_of_kafka_test()}"
        other = next(iter(sorted(self.pids)), "")
        return {"active": self.active, "leader": self.leader, "other": other}.get(name, name)

    def _leader(self) -> int:
        return until("one leads", lambda: found.leader_id if (found := quorum(self.cluster[1].bootstrap)) else None)

    def _leader_of_kafka_test(self) -> int:
        with Admin(self.cluster.bootstrap) as admin:
            found = admin.describe_topics(["kafka_test"])["kafka_test"].partitions[0].leader
        assert found is not None
        return found.node_id

    def end(self) -> None:
        for pid in self.pids.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._background:
            process.wait()


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    made = Machines(tmp_path)
    try:
        yield made
    finally:
        made.end()


def test_the_walk_through(machines: Machines) -> None:
    steps = list(lines())
    assert len(steps) > 15
    for line in steps:
        said = [each.strip() for each in machines.run(line).splitlines()]
        for _ in range(20):
            # A person types more slowly than a cluster elects.
            if " why " not in line.command or not said[0].startswith("Nobody leads"):
                break
            said = [each.strip() for each in machines.run(line).splitlines()]
        if "random-uuid" in line.command:
            machines.id = said[0]
            assert len(machines.id) == len(_ID)
            continue
        expected = [machines.here(each) for each in line.expected]
        assert len(said) == len(expected), (line, said)
        for told, wanted in zip(said, expected, strict=True):
            # What varies, a number of a process say, stands at the end.
            assert told.startswith(wanted), (line, said)
