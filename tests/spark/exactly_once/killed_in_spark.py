"""Drivers and executors of a Spark that are killed (SIGKILL) after any step of the protocol, on a real cluster.

python -m tests.spark.exactly_once.killed_in_spark                             # our node, each step five times
python -m tests.spark.exactly_once.killed_in_spark --cluster three --times 1   # or kafka, kafka-3.9, kafka-2.8
python -m tests.spark.exactly_once.killed_in_spark --only "driver after Probe"

A stream goes from topic to topic. Again and again its driver dies in a batch, with all its processes; the next driver
repeats that batch, and dies in the one after it. Executors die with a task each, and Spark runs it again. A reader of
committed records runs meanwhile: it never sees part of what a task wrote in a batch, and in the end every row once.
"""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

import click

from barnabas import Admin, Consumer, NewTopic, TopicPartition
from tests.oracles import ROOT
from tests.spark.exactly_once.killed import ABORT_STEPS, CLUSTERS, DRIVER_STEPS, TASK_STEPS, cluster
from tests.spark.exactly_once.mortal import BATCH_ROWS, Task
from tests.spark.rig import checkpoints, processes
from tests.spark.rig.contents import number
from tests.spark.rig.processes import wait_until
from tests.spark.rig.sessions import environment

_PARTITIONS: Final = 2
_LONGEST_S: Final = 240

#: How somebody dies, by what is said of it.
FATES: Final[dict[str, tuple[str, int | str]]] = {
    **{f"driver after {name} ({step})": ("commit", step) for step, name in enumerate(DRIVER_STEPS, start=1)},
    **{f"abort after {name} ({step})": ("abort", step) for step, name in enumerate(ABORT_STEPS, start=1)},
    **{f"executor after {name}": ("executor", name) for name in TASK_STEPS},
}


class Reader(threading.Thread):
    """Reads what is committed in the sink, as long as it is there."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.rows: list[str] = []
        #: How many rows were seen after each look.
        self.looks = [0]
        self._servers, self._place = servers, TopicPartition(topic, 0)
        self._is_over = threading.Event()

    def run(self) -> None:
        settings = {
            "bootstrap.servers": self._servers,
            "isolation.level": "read_committed",
            "max.poll.records": "100000",
        }
        with Consumer(settings) as consumer:
            consumer.assign([self._place])
            consumer.seek_to_beginning([self._place])
            while not self._is_over.is_set():
                found = consumer.poll(0.2)
                self.rows += [(record.value or b"").decode() for record in found]
                self.looks.append(len(self.rows))

    def end(self) -> None:
        self._is_over.set()
        self.join(30)


class Story:
    """A stream, and what becomes of it."""

    def __init__(self, servers: str, folder: Path, *, is_old: bool = False) -> None:
        name = f"killed-{os.getpid()}-{time.monotonic_ns()}"
        self.task = Task(
            servers=servers,
            source=f"{name}-in",
            sink=f"{name}-out",
            folder=str(folder),
            timeout_ms=30_000 if is_old else 600_000,
        )
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics([NewTopic(self.task.source, _PARTITIONS), NewTopic(self.task.sink, 1)])
        self._is_old = is_old
        self._written = 0
        self._reader = Reader(servers, self.task.sink)

    def __enter__(self) -> Story:
        self._reader.start()
        self._write(BATCH_ROWS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.end()
        log = Path(self.task.folder) / "driver.log"
        if isinstance(error, AssertionError) and log.exists():
            error.add_note(f"The last words of the drivers:\n{log.read_text(errors='replace')[-6000:]}")

    def kill_driver(self, fate: tuple[str, int | str]) -> None:
        """In the batch after the one that the driver before has left."""
        self._write(BATCH_ROWS)
        batch = max(checkpoints.planned(self.task.checkpoint), default=0) + 1
        code = self._run(dataclasses.replace(self.task, fates={str(batch): fate}))
        assert code == -signal.SIGKILL, f"the driver ended with code {code}"
        self._check_none_twice()

    def kill_executors(self, fates: Sequence[tuple[str, int | str]]) -> None:
        """One after the other, in batches of one driver."""
        first = max(checkpoints.planned(self.task.checkpoint), default=0) + 1
        self._write(BATCH_ROWS * (len(fates) + 1))
        named = {str(first + index): fate for index, fate in enumerate(fates)}
        self.finish(dataclasses.replace(self.task, fates=named, master="local-cluster[2,1,1024]"))

    def finish(self, task: Task | None = None) -> None:
        """A driver that nothing happens to; then all is there."""
        code = self._run(task or self.task)
        assert code == 0, f"the driver ended with code {code}"
        wait_until(lambda: len(self._reader.rows) >= self._written, "all rows can be read", timeout_s=90)
        self._check_none_twice()
        offsets = {f"{part}:{offset}" for part in range(_PARTITIONS) for offset in range(self._written // _PARTITIONS)}
        assert set(self._reader.rows) == offsets
        self._check_whole()
        if not self._is_old:
            self._check_none_open()

    def _write(self, count: int) -> None:
        number(self.task.servers, self.task.source, range(self._written, self._written + count), _PARTITIONS)
        self._written += count

    def _run(self, task: Task) -> int:
        root = Path(task.folder)
        paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        variables = dict(os.environ) | environment(root) | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
        with (root / "driver.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.exactly_once.mortal", task.to_json()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env=variables,
            )
        try:
            return process.wait(_LONGEST_S)
        finally:
            processes.kill(process.pid, *processes.descendants(process.pid))
            process.wait()

    def _check_none_twice(self) -> None:
        twice = [row for row, count in Counter(self._reader.rows).items() if count > 1]
        assert not twice, f"there are rows twice: {twice}"

    def _check_whole(self) -> None:
        """Nobody ever saw part of what a task wrote in a batch."""
        places = {row: index for index, row in enumerate(self._reader.rows)}
        looks = set(self._reader.looks)
        for rows in self._tasks():
            seen = sorted(places[row] for row in rows)
            assert not looks & set(range(seen[0] + 1, seen[-1] + 1)), f"part of a task was seen: {rows}"

    def _tasks(self) -> Iterator[list[str]]:
        """The rows of each task of each batch, as the checkpoint tells."""
        before: dict[str, int] = {}
        for _, end in sorted(checkpoints.offsets(self.task.checkpoint).items()):
            for partition, offset in end[self.task.source].items():
                rows = [f"{partition}:{each}" for each in range(before.get(partition, 0), offset)]
                before[partition] = offset
                if rows:
                    yield rows

    def _check_none_open(self) -> None:
        with Admin(bootstrap_servers=self.task.servers) as admin:
            left = [each.transactional_id for each in admin.list_transactions(states=["Ongoing"])]
        assert not left, f"left open: {left}"


def play(story: Story, names: Sequence[str], times: int = 1) -> Iterator[str]:
    """Let them die in turn; tells of each when it is over, and checks at the end."""
    drivers = [name for name in names if FATES[name][0] != "executor"]
    for name in drivers:
        for _ in range(times):
            story.kill_driver(FATES[name])
        yield f"{name}: killed {times} times"
    executors = [name for name in names if name not in drivers]
    if executors:
        story.kill_executors([FATES[name] for name in executors for _ in range(times)])
        yield f"{', '.join(executors)}: killed {times} times each"
    else:
        story.finish()
    yield "every row once, and no part of a task was seen"


@click.command()
@click.option("--cluster", "kind", type=click.Choice(CLUSTERS), default="node", show_default=True)
@click.option("--times", default=5, show_default=True, help="How often each step is met.")
@click.option("--only", default="", help="Only steps whose names have this regular expression in them.")
def main(kind: str, times: int, only: str) -> None:
    """Kill drivers and executors after every step; stops at the first that ends as none must."""
    names = [name for name in FATES if re.search(only, name)]
    with (
        cluster(kind) as servers,
        tempfile.TemporaryDirectory() as folder,
        Story(servers, Path(folder), is_old=kind == "kafka-2.8") as story,
    ):
        for told in play(story, names, times):
            click.echo(told)


if __name__ == "__main__":
    main()
