"""docs/security.md, "From nothing to a cluster in ten commands", as it stands there, on other ports."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.ports import free_ports

_DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "security.md"
_FILE: Final = re.compile(r"```properties\n# (\S+)\n(.*?)```", re.DOTALL)
_COMMANDS: Final = re.compile(r"```sh\n(.*?)```", re.DOTALL)
_PORTS: Final = [str(port) for port in range(9092, 9098)]
_TIMEOUT_S: Final = 120


class Shell:
    """A folder in which the commands of the chapter are typed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "new"
        self._folder.mkdir()
        self._ports = dict(zip(_PORTS, map(str, free_ports(len(_PORTS))), strict=True))
        self._pids: list[int] = []
        tools = folder / "bin"
        tools.mkdir()
        (tools / "barnabas").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m barnabas "$@"\n')
        (tools / "barnabas").chmod(0o755)
        self._environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}

    def write(self, name: str, text: str) -> None:
        (self._folder / name).write_text(text)

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        for shown, port in self._ports.items():
            command = command.replace(f"localhost:{shown}", f"localhost:{port}")
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
        )
        self._pids += map(int, re.findall(r"\(process (\d+),", done.stdout))
        if "server init" in command:
            for file in (self._folder / "config" / "kraft").iterdir():
                file.write_text(re.sub(r"(?<=localhost:)\d+", lambda found: self._ports[found[0]], file.read_text()))
        return done

    def end(self) -> None:
        for pid in self._pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    try:
        yield made
    finally:
        made.end()


def test_ten_commands(shell: Shell) -> None:
    chapter = _DOCUMENT.read_text().partition("\n## Who is there")[0]
    for name, text in _FILE.findall(chapter):
        shell.write(name, text)
    making, looking = (block.splitlines() for block in _COMMANDS.findall(chapter))
    assert len(making) == 10
    for command in making:
        done = shell.run(command)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
    read, explained = map(shell.run, looking)
    assert (read.stdout, read.returncode) == ("hello\n", 0), read.stderr
    assert explained.stdout.startswith("User:ann may not DELETE topic clicks"), explained

    ann = "--bootstrap-server localhost:9096 --command-config ann.properties"
    denied = shell.run(f"barnabas topics {ann} --delete --topic clicks")
    assert denied.returncode != 0
    assert "TOPIC_AUTHORIZATION_FAILED" in denied.stdout + denied.stderr
    # It tries until its time is up, since nobody tells it why it is sent away.
    trust = "security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=certs/ca.pem\n"
    shell.write("stranger.properties", f"{trust}default.api.timeout.ms=3000\nrequest.timeout.ms=3000\n")
    stranger = shell.run(
        "barnabas topics --bootstrap-server localhost:9092 --command-config stranger.properties --list"
    )
    assert stranger.returncode != 0
    assert "clicks" not in stranger.stdout + stranger.stderr
    said = "".join(f"{each.stdout}{each.stderr}" for each in (read, explained, denied, stranger))
    assert "ann-secret" not in said
