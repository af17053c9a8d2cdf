"""`barnabas` as a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

READY = "ready: bootstrap "
TIMEOUT_S = 30


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "barnabas", *arguments]


def refused(*arguments: str, folder: Path) -> tuple[int, str]:
    """Exit code and standard error of a command that must end by itself, without a word on standard output."""
    done = subprocess.run(
        command(*arguments), capture_output=True, text=True, check=False, timeout=TIMEOUT_S, cwd=folder
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


@contextmanager
def running(*arguments: str, folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A node, and its address from the line that says that it is ready."""
    with (folder / "node.log").open("a") as log:
        process = subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, stderr=log, text=True, cwd=folder)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith(READY), (line, (folder / "node.log").read_text())
        yield process, line.removeprefix(READY).strip()
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(TIMEOUT_S)
        if process.stdout is not None:
            process.stdout.close()
