"""Tests do not depend on who started them: from a shell that runs them in the background, Ctrl-C is ignored."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
INTERRUPTED = (
    "tests/client/test_loop_thread.py::test_an_interrupted_call_cancels_its_coroutine",
    "tests/test_ctrl_c_is_heard.py::test_a_process_that_a_test_starts_hears_it",
)


def test_a_process_that_a_test_starts_hears_it() -> None:
    code = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "True\n"


def test_where_interrupts_are_ignored_tests_hear_them_all_the_same() -> None:
    command = shlex.join([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *INTERRUPTED])
    with subprocess.Popen(
        ["sh", "-c", f"trap '' INT; exec {command}"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as tests:
        try:
            told, _ = tests.communicate(timeout=240)
        except BaseException:
            # With what they have started, which waits for an interrupt that does not come.
            os.killpg(tests.pid, signal.SIGKILL)
            raise
    assert tests.returncode == 0, told
