"""Tests do not depend on who started them: from a shell that runs them in the background, Ctrl-C is ignored."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
#: One that interrupts itself, and one that interrupts a process that it has started.
INTERRUPTED = (
    "tests/client/test_loop_thread.py::test_an_interrupted_call_cancels_its_coroutine",
    "tests/cli/test_up.py",
)


def test_where_interrupts_are_ignored_tests_hear_them_all_the_same() -> None:
    command = shlex.join([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *INTERRUPTED])
    done = subprocess.run(
        ["sh", "-c", f"trap '' INT; exec {command}"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
