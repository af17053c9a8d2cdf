"""Child processes and what they start in turn, found and killed by their ids. Linux only: it reads /proc."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """The processes below one, parents before children."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                children.setdefault(parent(int(folder.name)), []).append(int(folder.name))
    found = list(children.get(pid, []))
    for each in found:
        found.extend(children.get(each, []))
    return found


def parent(pid: int) -> int:
    # The name, in brackets, may hold blanks; the parent is the second field behind it.
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def command(pid: int) -> str:
    """The command line of a process; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def kill(*pids: int) -> None:
    """As a crash would: without a last word."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def wait_until(
    is_so: Callable[[], object], what: str, timeout_s: float = 120, is_alive: Callable[[], object] = bool
) -> None:
    """Return once something holds that other processes bring about; fail if it takes too long, or nobody is left to."""
    deadline = time.monotonic() + timeout_s
    while not is_so():
        if is_alive is not bool and not is_alive():
            raise AssertionError(f"the process ended before this: {what}")
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {what}")
        time.sleep(0.02)
