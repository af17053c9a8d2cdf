"""Running our tools as people do, in this process, and Kafka's tools as processes."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import pytest

from barnabas.cli.main import main
from tests.oracles import java
from tests.secret_scan import FOUND


class Told(NamedTuple):
    """How a tool ended and what it printed."""

    code: int
    out: str
    err: str


class Tools:
    """Runs `barnabas` commands; with `at`, one that needs a cluster."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture

    def __call__(self, *arguments: str) -> Told:
        self._capture.readouterr()
        code = main(arguments)
        printed = self._capture.readouterr()
        tool = arguments[0] if arguments else "barnabas"
        FOUND.look_at(printed.out, f"output of {tool}")
        FOUND.look_at(printed.err, f"errors of {tool}")
        return Told(code, printed.out, printed.err)

    def at(self, bootstrap: str, call: str) -> Told:
        tool, *arguments = shlex.split(call)
        return self(tool, "--bootstrap-server", bootstrap, *arguments)

    def json_at(self, bootstrap: str, call: str) -> Any:
        told = self.at(bootstrap, f"{call} --json")
        assert (told.code, told.out.count("\n")) == (0, 1), told
        return json.loads(told.out)


def run_kafka(main_class: str, arguments: Sequence[str], timeout_s: float = 120) -> Told:
    command = [*java(), main_class, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_s)
    # Its logger has no backend here, and says so each time.
    err = "".join(line for line in done.stderr.splitlines(keepends=True) if not line.startswith("SLF4J"))
    return Told(done.returncode, done.stdout, err)


def run_kafkas_shell(arguments: Sequence[str], is_whole: Callable[[list[str]], bool]) -> Told:
    """Kafka's shell does not always wait until it has loaded the file, and now and then it waits for ever."""
    told = None
    for _ in range(5):
        with suppress(subprocess.TimeoutExpired):
            told = run_kafka("org.apache.kafka.shell.MetadataShell", arguments, timeout_s=10)
            if is_whole(told.out.split()):
                return told
    raise AssertionError((arguments, told))
