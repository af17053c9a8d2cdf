"""Nobody has to wait for a JVM that is not up yet, as while it downloads packages; and nothing of it is left behind."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest

from barnabas.spark.pipelines import processes, server
from barnabas.spark.pipelines.failures import PipelineError

pytest.importorskip("pyspark")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of Spark whose JVM takes ten minutes to start, as a child of the script that starts it."""
    script = tmp_path / "bin" / "spark-submit"
    script.parent.mkdir()
    script.write_text(
        f"#!/bin/sh\necho $$ > {tmp_path}/up.new; mv {tmp_path}/up.new {tmp_path}/up\nsleep 600\nexit 1\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    return tmp_path


class StopWhenUp(threading.Event):
    """Is set as soon as the script runs."""

    def __init__(self, home: Path) -> None:
        super().__init__()
        self.note = home / "up"

    def is_set(self) -> bool:
        return self.note.exists()


class InterruptedWhenUp(StopWhenUp):
    """A second Ctrl-C, which does not ask."""

    def is_set(self) -> bool:
        if super().is_set():
            raise KeyboardInterrupt
        return False


def left(home: Path) -> list[processes.RunningProcess]:
    """The script, if it runs, and what it has started."""
    pid = int((home / "up").read_text())
    return [each for each in processes.below(os.getpid()) if pid in (each.pid, each.parent)]


def test_a_stop_ends_a_jvm_that_is_not_up_yet(home: Path) -> None:
    with pytest.raises(server.StartStoppedError):
        server._launched(None, subprocess.DEVNULL, None, StopWhenUp(home))
    assert left(home) == []


def test_so_does_a_second_ctrl_c(home: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        server._launched(None, subprocess.DEVNULL, None, InterruptedWhenUp(home))
    assert left(home) == []


def test_a_jvm_that_ends_by_itself_is_a_failure(home: Path) -> None:
    (home / "bin" / "spark-submit").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(PipelineError, match="Spark does not start"):
        server._launched(None, subprocess.DEVNULL, None, threading.Event())
