"""The replicated counter of docs/raft.md, as a reader would run it: three processes, and the leader killed."""

from __future__ import annotations

import queue
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.ports import free_ports
from tests.raft.test_stories import DOCUMENT

PATIENCE_S = 60


class Line(NamedTuple):
    node_id: int
    text: str


class Counters:
    """Processes of the program, and what they print."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._processes: dict[int, subprocess.Popen[str]] = {}
        self._lines: queue.Queue[Line] = queue.Queue()

    def start(self, node_id: int) -> None:
        command = [sys.executable, "counter.py", str(node_id)]
        process = subprocess.Popen(command, cwd=self._directory, stdout=subprocess.PIPE, text=True)
        self._processes[node_id] = process
        threading.Thread(target=self._read, args=(node_id, process), daemon=True).start()

    def _read(self, node_id: int, process: subprocess.Popen[str]) -> None:
        for line in process.stdout or ():
            self._lines.put(Line(node_id, line.strip()))

    def kill(self, node_id: int) -> None:
        process = self._processes.pop(node_id)
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def kill_all(self) -> None:
        for node_id in list(self._processes):
            self.kill(node_id)

    def next_count(self) -> tuple[int, int]:
        """Who leads, and the counter, as soon as somebody says so."""
        while True:
            line = self._lines.get(timeout=PATIENCE_S)
            if match := re.fullmatch(r"I lead, and the counter is (\d+)", line.text):
                return line.node_id, int(match[1])


@pytest.fixture
def counters(tmp_path: Path) -> Iterator[Counters]:
    program = DOCUMENT.read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    voters = ",".join(f"localhost:{port}:{node_id}" for node_id, port in enumerate(free_ports(3), 1))
    program, places = re.subn(r"localhost:16010:1,localhost:16020:2,localhost:16030:3", voters, program)
    assert places == 1
    (tmp_path / "counter.py").write_text(program, encoding="utf-8")
    found = Counters(tmp_path)
    yield found
    found.kill_all()


def test_the_counter_counts_on_when_its_leader_is_killed(counters: Counters) -> None:
    for node_id in (1, 2, 3):
        counters.start(node_id)
    leader, count = counters.next_count()
    assert count == 1
    counters.kill(leader)
    next_leader, next_count = counters.next_count()
    while next_leader == leader:  # it had counted on before it was killed
        count = next_count
        next_leader, next_count = counters.next_count()
    # What the first one had proposed last may be in, but nothing that it had printed is lost.
    assert count + 1 <= next_count <= count + 2
