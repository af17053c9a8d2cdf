"""The two brokers that are compared, each in a process of its own, and what the system says of such a process."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Protocol

from tests.oracles import kafka_jars
from tests.oracles.kafka_server import KafkaServer

_START_TIMEOUT_S = 60
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_READY = "ready: bootstrap "

#: What Kafka's own start script passes: a server's heap, and all of its compiler.
_JVM = ("-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")


class Broker(Protocol):
    """What is measured: it can be started, and it has a process."""

    name: str

    @property
    def bootstrap(self) -> str: ...
    @property
    def pid(self) -> int: ...
    def prepare(self) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...


class Barnabas:
    """`barnabas up` with a directory on disk."""

    name = "barnabas"

    def __init__(self, folder: Path, *overrides: str, sources: str | None = None) -> None:
        """`overrides` are settings, as `name=value`; `sources` the `src` of another checkout."""
        self._folder = folder
        self._sources = sources
        self._overrides = overrides
        self._process: subprocess.Popen[str] | None = None
        self.bootstrap = ""

    @property
    def pid(self) -> int:
        assert self._process is not None, "the node was not started"
        return self._process.pid

    def prepare(self) -> None:
        """Run once elsewhere, so that its modules are compiled, as those of a package that was installed are."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._start("--ephemeral")
        self.stop()

    def start(self) -> None:
        """The directory is new: the node formats it."""
        self._start("--data-dir", "data", *(part for each in self._overrides for part in ("--override", each)))

    def _start(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "barnabas", "up", "--listen", "127.0.0.1:0", *arguments]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = str(self._folder / "compiled")
        if self._sources is not None:
            environment["PYTHONPATH"] = self._sources
        with (self._folder / "barnabas.log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self._folder,
                env=environment,
            )
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], _START_TIMEOUT_S)[0]:
            raise RuntimeError(f"the node did not start within {_START_TIMEOUT_S} s")
        line = self._process.stdout.readline()
        if not line.startswith(_READY):
            raise RuntimeError(f"the node did not start:\n{(self._folder / 'barnabas.log').read_text()[-4000:]}")
        self.bootstrap = line.removeprefix(_READY).strip()

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


class Kafka(KafkaServer):
    """Apache Kafka with the heap and the compilers that it has in production."""

    name = "Kafka"

    def prepare(self) -> None:
        """Format its directory, which is a program of its own, and have its jars in the page cache."""
        self.start()
        self.stop()

    def _java(self) -> list[str]:
        return ["java", *_JVM, "-cp", f"{kafka_jars()}/*"]


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far, of all its threads, its own and the system's on its behalf."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


def cpu_ns(pid: int) -> int:
    """The same to the nanosecond, without threads that have ended."""
    return sum(int(each.read_text().split()[0]) for each in Path(f"/proc/{pid}/task").glob("*/schedstat"))


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def idle_load(pids: list[int], seconds: float) -> list[float]:
    """The share of a core that each process takes while nobody asks anything of it."""
    before = [cpu_seconds(pid) for pid in pids]
    time.sleep(seconds)
    return [(cpu_seconds(pid) - first) / seconds for pid, first in zip(pids, before, strict=True)]
