"""Drivers and executors of a Spark that are killed (SIGKILL) after any step of the protocol, on a real cluster.

python -m tests.spark.exactly_once.killed_in_spark                             # our node, each step five times
python -m tests.spark.exactly_once.killed_in_spark --cluster three --times 1   # or kafka, kafka-3.9, kafka-2.8
python -m tests.spark.exactly_once.killed_in_spark --only "driver after Probe"
python -m tests.spark.exactly_once.killed_in_spark --ledger kills.jsonl --minutes 4    # again, until nothing is left
python -m tests.spark.exactly_once.killed_in_spark --ledger kills.jsonl --table        # what was seen so far
python -m tests.spark.exactly_once.killed_in_spark --quick /tmp/quick                  # with a Spark that starts faster

Streams go from topic to topic, one for each way to die. Again and again their driver dies in a batch, with all its
processes, when each of them is where it dies; the next driver repeats that batch, and dies in the one after it.
Executors die with a task each, and Spark runs it again. A reader of committed records runs meanwhile: it never sees
part of what a task wrote in a batch, and in the end every row once. Then a table tells how often each step was met.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import click

from barnabas import Admin, Consumer, NewTopic, TopicPartition
from barnabas.spark.core.exactly_once import Stream, steps
from barnabas.spark.core.options import ExactlyOnceOptions
from barnabas.spark.sink.deciding import DecidingCluster
from barnabas.spark.sink.settings import producer_settings
from tests.oracles import ROOT
from tests.spark.exactly_once import quick_spark
from tests.spark.exactly_once.deaths import DEATHS, Entry, Ledger, cannot_be_met
from tests.spark.exactly_once.killed import CLUSTERS, cluster
from tests.spark.exactly_once.mortal import BATCH_ROWS, Fate, Task, checkpoint_of
from tests.spark.rig import checkpoints, processes
from tests.spark.rig.contents import number
from tests.spark.rig.processes import wait_until
from tests.spark.rig.sessions import environment

_PARTITIONS: Final = 2
_LONGEST_S: Final = 540
#: Where what is dead ends with its time-out only, all wait for that.
_OLD_TIMEOUT_MS: Final = 90_000
#: Where a decision waits until the driver after the next ends it, that one must not come too late.
_OLD_LONG_TIMEOUT_MS: Final = 240_000
#: So many executors are killed in one Spark.
_EXECUTORS: Final = 6
_FILE: Final = click.Path(dir_okay=False, path_type=Path)
_FOLDER: Final = click.Path(file_okay=False, path_type=Path)


class Reader(threading.Thread):
    """Reads what is committed in all sinks, as long as it is there."""

    def __init__(self, servers: str, topics: Sequence[str]) -> None:
        super().__init__(daemon=True)
        self.rows: dict[str, list[str]] = {topic: [] for topic in topics}
        #: How many rows were seen after each look.
        self.looks: dict[str, set[int]] = {topic: {0} for topic in topics}
        self._servers, self._places = servers, [TopicPartition(topic, 0) for topic in topics]
        self._is_over = threading.Event()

    def run(self) -> None:
        settings = {
            "bootstrap.servers": self._servers,
            "isolation.level": "read_committed",
            "max.poll.records": "100000",
        }
        with Consumer(settings) as consumer:
            consumer.assign(self._places)
            consumer.seek_to_beginning(self._places)
            while not self._is_over.is_set():
                for record in consumer.poll(0.2):
                    self.rows[record.topic].append((record.value or b"").decode())
                for topic, rows in self.rows.items():
                    self.looks[topic].add(len(rows))

    def end(self) -> None:
        self._is_over.set()
        self.join(30)


class Story:
    """Streams, each of which knows one way to die, and what becomes of them."""

    def __init__(
        self,
        servers: str,
        folder: Path,
        deaths: Sequence[str],
        *,
        is_old: bool = False,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        name = f"killed-{os.getpid()}-{time.monotonic_ns()}"
        self.servers, self.folder = servers, folder
        self._deaths = {f"{name}-out-{index}": DEATHS[each] for index, each in enumerate(deaths)}
        self._source = f"{name}-in"
        self._timeout_ms = 600_000
        if is_old:
            is_left = any(death.before is not None and not death.is_fenced for death in self._deaths.values())
            self._timeout_ms = _OLD_LONG_TIMEOUT_MS if is_left else _OLD_TIMEOUT_MS
        topics = [NewTopic(self._source, _PARTITIONS), *(NewTopic(each, 1) for each in self._deaths)]
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics(topics)
        self._is_old = is_old
        self._variables = {**os.environ, **environment(folder), **(variables or {})}
        self._lives = 0
        self._written = 0
        self._reader = Reader(servers, [*self._deaths])

    def __enter__(self) -> Story:
        self._reader.start()
        self._write(BATCH_ROWS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.end()
        log = self.folder / "driver.log"
        if isinstance(error, AssertionError) and log.exists():
            error.add_note(f"The last words of the drivers:\n{log.read_text(errors='replace')[-6000:]}")

    def kill_drivers(self) -> None:
        """Each in the batch after the one that the driver before has left, and where that is needed again in it."""
        self._write(BATCH_ROWS)
        newest = {stream: max(self._planned(stream), default=0) for stream in self._deaths}
        batches = {stream: 0 if death.is_first else newest[stream] + 1 for stream, death in self._deaths.items()}
        before = {stream: death for stream, death in self._deaths.items() if death.before is not None}
        if before:
            self._kill({stream: (batches[stream], death.before) for stream, death in before.items() if death.before})
            for stream in (each for each, death in before.items() if death.is_fenced):
                self._fence_tasks(stream)
        self._kill({stream: (batches[stream], death.fate) for stream, death in self._deaths.items()})

    def kill_executors(self, fates: Sequence[Fate]) -> None:
        """One after the other, in batches of one driver."""
        (stream,) = self._deaths
        first = max(self._planned(stream), default=0) + 1
        self._write(BATCH_ROWS * (len(fates) + 1))
        named = {str(first + index): fate for index, fate in enumerate(fates)}
        task = self._task({stream: named}, "local-cluster[2,1,1024]")
        self.finish(task)
        met = {each.name for each in task.meeting.iterdir()}
        assert met == {f"killed-in-{batch}" for batch in named}, f"killed was only who is in {met}"

    def finish(self, task: Task | None = None) -> None:
        """A driver that nothing happens to; then all is there."""
        code = self._run(task or self._task({stream: {} for stream in self._deaths}))
        assert code == 0, f"the driver ended with code {code}"
        numbers = range(self._written // _PARTITIONS)
        offsets = {f"{part}:{offset}" for part in range(_PARTITIONS) for offset in numbers}
        for stream in self._deaths:
            rows = self._reader.rows[stream]
            wait_until(
                lambda rows=rows: len(rows) >= self._written,  # type: ignore[misc]
                f"all rows of {stream} can be read",
                timeout_s=self._timeout_ms / 1000 + 60 if self._is_old else 60,
            )
            assert set(rows) == offsets
            self._check_whole(stream)
        self._check_none_twice()
        if not self._is_old:
            self._check_none_open()

    def _planned(self, stream: str) -> list[int]:
        return checkpoints.planned(checkpoint_of(self.folder, stream))

    def _write(self, count: int) -> None:
        number(self.servers, self._source, range(self._written, self._written + count), _PARTITIONS)
        self._written += count

    def _kill(self, fates: Mapping[str, tuple[int, Fate]]) -> None:
        task = self._task({stream: {str(batch): fate} for stream, (batch, fate) in fates.items()})
        code = self._run(task)
        assert code == -signal.SIGKILL, f"the driver ended with code {code}"
        there = {each.name for each in task.meeting.glob("there-*")}
        assert there == {f"there-{stream}" for stream in fates}, f"only these came to where they die: {there}"
        self._check_none_twice()

    def _task(self, streams: dict[str, dict[str, Fate]], master: str = "local[2,4]") -> Task:
        self._lives += 1
        task = Task(
            servers=self.servers,
            source=self._source,
            folder=str(self.folder),
            streams=streams,
            life=self._lives,
            master=master,
            timeout_ms=self._timeout_ms,
        )
        task.meeting.mkdir()
        return task

    def _run(self, task: Task) -> int:
        paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        variables = self._variables | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
        with (self.folder / "driver.log").open("ab") as log:
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

    def _fence_tasks(self, stream: str) -> None:
        """Begin in the transactional ids of the newest decision, as a task would that has slept for long."""
        settings = producer_settings({"bootstrap.servers": self.servers}, is_exactly_once=True)
        named = Stream(checkpoints.query_id(checkpoint_of(self.folder, stream)), "sink")
        with DecidingCluster(settings, ExactlyOnceOptions().control_topic) as deciding:
            control = deciding.take(steps.PeekControl(named))
        with Admin(bootstrap_servers=self.servers) as admin:
            admin.fence_producers(sorted(control.decision.transactional_ids))

    def _check_none_twice(self) -> None:
        for stream, rows in self._reader.rows.items():
            twice = [row for row, count in Counter(rows).items() if count > 1]
            assert not twice, f"there are rows twice in {stream}: {twice}"

    def _check_whole(self, stream: str) -> None:
        """Nobody ever saw part of what a task wrote in a batch."""
        places = {row: index for index, row in enumerate(self._reader.rows[stream])}
        looks = self._reader.looks[stream]
        for rows in self._tasks(stream):
            seen = sorted(places[row] for row in rows)
            assert not looks & set(range(seen[0] + 1, seen[-1] + 1)), f"part of a task was seen: {rows}"

    def _tasks(self, stream: str) -> Iterator[list[str]]:
        """The rows of each task of each batch, as the checkpoint tells."""
        before: dict[str, int] = {}
        for _, end in sorted(checkpoints.offsets(checkpoint_of(self.folder, stream)).items()):
            for partition, offset in end[self._source].items():
                rows = [f"{partition}:{each}" for each in range(before.get(partition, 0), offset)]
                before[partition] = offset
                if rows:
                    yield rows

    def _check_none_open(self) -> None:
        with Admin(bootstrap_servers=self.servers) as admin:
            left = [each.transactional_id for each in admin.list_transactions(states=["Ongoing"])]
        assert not left, f"left open: {left}"


def play(
    servers: str,
    folder: Path,
    names: Sequence[str],
    times: int = 1,
    *,
    until_s: float = 0,
    is_old: bool = False,
    variables: Mapping[str, str] | None = None,
) -> dict[str, int]:
    """Let them die in turn, and check at the end; how often each died. `until_s`: no new turn after this time."""
    is_of_driver = DEATHS[names[0]].is_of_driver
    with Story(servers, folder, names if is_of_driver else names[:1], is_old=is_old, variables=variables) as story:
        if not is_of_driver:
            story.kill_executors([DEATHS[name].fate for name in names])
            return dict(Counter(names))
        turns = 0
        while not turns or (turns < times and (not until_s or time.monotonic() < until_s)):
            story.kill_drivers()
            turns += 1
        story.finish()
        return {name: turns * count for name, count in Counter(names).items()}


def stories(left: Mapping[str, int], together: int) -> Iterator[tuple[list[str], int]]:
    """Who dies in one story, and how often at most. A first batch is met once, so there is a stream for each time."""
    kinds: dict[tuple[bool, int, int], list[str]] = {}
    for name, count in left.items():
        death = DEATHS[name]
        if death.is_first or not death.is_of_driver:
            kinds.setdefault((death.is_of_driver, 0, 1), []).extend([name] * count)
        elif count:
            # Receipts are hidden by what is open, which on old clusters must not be so for long.
            kinds.setdefault((True, (death.before is not None) + death.is_fenced, count), []).append(name)
    for (is_of_driver, _, count), names in sorted(kinds.items(), reverse=True):
        size = together if is_of_driver else _EXECUTORS
        for begin in range(0, len(names), size):
            yield names[begin : begin + size], count


@click.command()
@click.option("--cluster", "kind", type=click.Choice(CLUSTERS), default="node", show_default=True)
@click.option("--times", default=5, show_default=True, help="How often each step is met.")
@click.option("--only", default="", help="Only steps whose names have this regular expression in them.")
@click.option("--together", default=8, show_default=True, help="So many streams die with one driver.")
@click.option("--ledger", type=_FILE, help="What was seen goes there, and is not played again.")
@click.option("--minutes", default=0.0, help="Begin nothing new after that; 0: all.")
@click.option("--table", "is_table", is_flag=True, help="Kill nobody, only show what is in the ledger.")
@click.option("--quick", type=_FOLDER, help="What lets Spark start in half the time; it is made there.")
def main(kind: str, times: int, only: str, is_table: bool, ledger: Path | None, **how: Any) -> None:
    """Kill drivers and executors after every step; stops at the first story that ends as none must."""
    seen = Ledger(ledger)
    done = seen.counts(kind)
    names = [name for name in DEATHS if re.search(only, name) and not cannot_be_met(name, kind)]
    left = {name: times - done[name] for name in names if times > done[name]}
    if left and not is_table:
        _play_all(seen, kind, left, **how)
    for line in seen.table(CLUSTERS if is_table else [kind]):
        click.echo(line)


def _play_all(
    seen: Ledger, kind: str, left: Mapping[str, int], together: int, minutes: float, quick: Path | None
) -> None:
    variables = quick_spark.prepare(quick.absolute()) if quick is not None else None
    until_s = time.monotonic() + minutes * 60 if minutes else 0
    with cluster(kind) as servers:
        for names, count in stories(left, together):
            if until_s and time.monotonic() > until_s:
                return
            begin_s, failure, killed = time.monotonic(), "", dict(Counter(names))
            folder = Path(tempfile.mkdtemp(prefix="killed-"))
            try:
                is_old = kind == "kafka-2.8"
                killed = play(servers, folder, names, count, until_s=until_s, is_old=is_old, variables=variables)
            except BaseException as error:
                failure = f"{type(error).__name__}: {error}"
                click.echo(f"what is left of it: {folder}", err=True)
                raise
            finally:
                seen.add(Entry(kind, killed, int(time.monotonic() - begin_s), failure))
            shutil.rmtree(folder, ignore_errors=True)
            click.echo(f"{', '.join(killed)}: every row once, and no part of a task was seen")


if __name__ == "__main__":
    main()
