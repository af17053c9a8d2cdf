"""What the JVM has started ends with it, even what does not notice that it is gone."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.spark.pipelines import processes

#: A child that waits for its own child, which does not care for polite requests.
_STUBBORN = (
    "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)
_PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {_STUBBORN!r}])"


def test_grandchildren_are_found_and_ended_after_their_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE) as parent:
        try:
            assert parent.stdout is not None
            assert parent.stdout.readline() == b"up\n"
            (child,) = processes.below(parent.pid)
            watched = os.pidfd_open(child.pid)
            assert child in processes.below(os.getpid())
        finally:
            parent.kill()
        parent.wait()
        processes.end([child], 0.1)
        # The pipe ends a moment before the last who holds it is gone.
        assert parent.stdout.read() == b""
        select.select([watched], [], [])
        os.close(watched)
    assert processes._living([child]) == []


def test_a_number_that_was_given_to_another_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    signalled: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: signalled.append(pid))
    mine = next(each for each in processes._all() if each.pid == os.getpid())
    processes.end([processes.RunningProcess(mine.pid, mine.parent, "long ago")], 0.0)
    assert signalled == []
    processes.end([mine], 0.0)
    assert signalled == [mine.pid] * 2, "as it is, it would have been asked, and then not asked any more"


@pytest.mark.skipif(not Path("/bin/ps").exists(), reason="there is no ps")
def test_without_proc_ps_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(processes, "_PROC", tmp_path)
    assert {each.pid: each.parent for each in processes._all()}[os.getpid()] == os.getppid()
