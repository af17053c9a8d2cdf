"""Processes that the JVM has started: they must not outlive it, and by themselves some do for a minute.

A reader of a topic that waits for a broker does not notice that the JVM is gone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_LOOK_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """One process. Its number may be given to another one later; when it began tells the two apart."""

    pid: int
    parent: int
    began: str


def below(pid: int) -> list[RunningProcess]:
    """All that were started by a process, by those that it started, and so on."""
    by_parent: dict[int, list[RunningProcess]] = {}
    for process in _all():
        by_parent.setdefault(process.parent, []).append(process)
    found: list[RunningProcess] = []
    left = [pid]
    while left:
        children = by_parent.get(left.pop(), [])
        found.extend(children)
        left.extend(child.pid for child in children)
    return found


def end(processes: list[RunningProcess], patience_s: float) -> None:
    """End those that still run: they are asked, and after a while not asked any more."""
    _signalled(processes, signal.SIGTERM)
    give_up_at_s = time.monotonic() + patience_s
    while (left := _living(processes)) and time.monotonic() < give_up_at_s:
        time.sleep(_LOOK_S)
    _signalled(left, signal.SIGKILL)


def _signalled(processes: list[RunningProcess], number: signal.Signals) -> None:
    for process in _living(processes):
        with contextlib.suppress(OSError):
            os.kill(process.pid, number)


def _living(processes: list[RunningProcess]) -> list[RunningProcess]:
    if not processes:
        return []
    began = {each.pid: each.began for each in _all()}
    return [each for each in processes if began.get(each.pid) == each.began]


def _all() -> list[RunningProcess]:
    return _of_proc() if (_PROC / "self" / "stat").exists() else _of_ps()


def _of_proc() -> list[RunningProcess]:
    found = []
    for folder in _PROC.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            # The name of a process may have blanks and brackets in it; after it come fields that have none.
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            found.append(RunningProcess(int(folder.name), int(fields[1]), fields[19]))
    return found


def _of_ps() -> list[RunningProcess]:
    try:
        told = subprocess.run(
            ["ps", "-A", "-o", "pid=,ppid=,lstart="], capture_output=True, text=True, check=False
        ).stdout
    except OSError:
        return []
    lines = (line.split(maxsplit=2) for line in told.splitlines())
    return [RunningProcess(int(fields[0]), int(fields[1]), fields[2]) for fields in lines if len(fields) == 3]
