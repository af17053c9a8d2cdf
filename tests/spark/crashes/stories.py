"""What happens to the driver, and what must be true in the end."""

from __future__ import annotations

import dataclasses
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final

from barnabas import Consumer, TopicPartition
from barnabas.testing import EmbeddedBroker
from tests.oracles import ROOT
from tests.spark.crashes.driver import NEWS, TABLE, TOPIC, Task
from tests.spark.rig import checkpoints, processes
from tests.spark.rig.contents import number
from tests.spark.rig.processes import wait_until
from tests.spark.rig.sessions import environment, not_activated

_PARTITIONS: Final = 3
_OLD_NEWS: Final = 10
#: A finishing run that takes longer hangs.
_LONGEST_S: Final = 180


class Driver:
    """The program in a process of its own, with all that it starts."""

    def __init__(self, task: Task, variables: Mapping[str, str] | None = None) -> None:
        self._task = task
        self._log = (task.root / "driver.log").open("ab")
        self._variables = dict(os.environ) | environment(task.root) if variables is None else dict(variables)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Driver:
        self._task.ready.unlink(missing_ok=True)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.crashes.driver", self._task.to_json()],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            cwd=ROOT,
            env=self._variables,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._log.close()
        if isinstance(error, AssertionError):
            error.add_note(f"The driver's last words:\n{self.last_words()}")

    def last_words(self, size: int = 6000) -> str:
        return (self._task.root / "driver.log").read_text(errors="replace")[-size:]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wait_until(self, is_so: Callable[[], object], what: str) -> None:
        wait_until(is_so, what, is_alive=self.is_alive)

    def wait_until_ready(self) -> None:
        self.wait_until(self._task.ready.exists, "the streams run")

    def kill(self) -> None:
        """The Python and the Java of the driver at once, and the workers that they leave behind."""
        if self._process is not None and self._process.poll() is None:
            processes.kill(self._process.pid, *processes.descendants(self._process.pid))
            self._process.wait()

    def finish(self) -> None:
        """Wait for the end of a run that ends by itself."""
        assert self._process is not None
        try:
            code = self._process.wait(_LONGEST_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the driver did not end within {_LONGEST_S} s") from None
        assert code == 0, f"the driver ended with code {code}"


class World:
    """A broker, the topics, and how much was written to them."""

    def __init__(self, folder: Path, broker: EmbeddedBroker, name: str, **task: object) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.task = dataclasses.replace(
            Task(
                bootstrap=broker.bootstrap_servers,
                numbers=f"{name}-numbers",
                copies=f"{name}-copies",
                news=f"{name}-news",
                folder=str(folder),
            ),
            **task,  # type: ignore[arg-type]  # the names are checked when it is made
        )
        for topic in (self.task.numbers, self.task.copies, self.task.news):
            broker.create_topic(topic, _PARTITIONS)
        self.written = 0
        self.news_written = 0

    def write(self, count: int) -> None:
        number(self.task.bootstrap, self.task.numbers, range(self.written, self.written + count), _PARTITIONS)
        self.written += count

    def write_news(self, count: int) -> None:
        number(self.task.bootstrap, self.task.news, range(self.news_written, self.news_written + count), _PARTITIONS)
        self.news_written += count

    def hold(self) -> None:
        """From now on, tasks of streams into tables wait before their end."""
        shutil.rmtree(self.task.held, ignore_errors=True)
        self.task.held.mkdir()
        self.task.hold.touch()

    def held(self, driver: int) -> list[int]:
        """The workers of a driver that wait with a task."""
        alive = processes.descendants(driver)
        return sorted(int(path.name) for path in self.task.held.iterdir() if int(path.name) in alive)

    def release(self) -> None:
        self.task.hold.unlink()

    def planned(self, stream: str) -> int:
        """How many batches of a stream were planned."""
        return len(checkpoints.planned(self.task.checkpoint(stream)))

    def check(self, first_news: int = 0) -> None:
        """Tables exact, the topic complete: no number missing anywhere, and none twice in a table."""
        assert _table(self.task.table(TABLE)) == list(range(self.written))
        if NEWS in self.task.streams:
            assert _table(self.task.table(NEWS)) == list(range(first_news, self.news_written))
        assert set(_topic(self.task.bootstrap, self.task.copies)) == set(range(self.written))


def killed_drivers(folder: Path, broker: EmbeddedBroker, *, seed: int, kills: int, connector: str = "barnabas") -> None:
    """The driver dies again and again at random; the first time with the first batch of the news in the middle."""
    chance = random.Random(seed)
    world = World(folder, broker, f"killed-{seed}", connector=connector)
    world.write(60)
    world.write_news(_OLD_NEWS)
    for turn in range(kills):
        (_kill_at_random if turn else _kill_in_the_first_batch)(world, chance)
    world.write(20)
    world.write_news(20)
    _finish(world)
    world.check(first_news=_OLD_NEWS)


def _kill_at_random(world: World, chance: random.Random) -> None:
    watched = chance.choice(world.task.streams)
    before = world.planned(watched)
    world.write(chance.randrange(30, 120))
    world.write_news(chance.randrange(1, 30))
    with Driver(world.task) as driver:
        driver.wait_until(lambda: world.planned(watched) > before, f"a batch of {watched} is planned")
        world.write(chance.randrange(1, 60))
        time.sleep(chance.uniform(0, 1.0))
        driver.kill()


def _kill_in_the_first_batch(world: World, chance: random.Random) -> None:
    """The first batch of the news is planned and not done, when the driver dies and more news come in.

    Where `latest` is now, is not where it was: a restart that asks again would lose records, or be stuck.
    """
    world.hold()
    with Driver(world.task) as driver:
        driver.wait_until_ready()
        world.write_news(chance.randrange(5, 30))
        driver.wait_until(lambda: world.planned(NEWS), "the first batch of the news is planned")
        time.sleep(chance.uniform(0, 1.0))
        driver.kill()
    assert not checkpoints.commits(world.task.checkpoint(NEWS))
    world.release()
    world.write_news(15)


def _finish(world: World) -> None:
    with Driver(dataclasses.replace(world.task, is_last=True)) as driver:
        driver.finish()


def killed_executors(
    folder: Path, broker: EmbeddedBroker, *, seed: int, kills: int, connector: str = "barnabas"
) -> None:
    """A Spark of several processes: executors and Python workers die in turn, each with a task in its hands.

    The driver runs as from a virtual environment that nobody activated: no variable names the interpreter, and the PATH
    leads to another one.
    """
    chance = random.Random(seed)
    world = World(
        folder,
        broker,
        f"executors-{seed}",
        connector=connector,
        streams=(TABLE, TOPIC),
        master="local-cluster[2,1,1024]",
        is_last=True,
    )
    world.write(150 + 80 * kills)
    with Driver(world.task, not_activated()) as driver:
        driver.wait_until(lambda: len(_executors(driver.pid)) == 2, "there are two executors")
        for turn in range(kills):
            _kill_with_a_task(world, driver, chance, is_executor=turn % 2 == 0)
        driver.finish()
    world.check()


def _kill_with_a_task(world: World, driver: Driver, chance: random.Random, *, is_executor: bool) -> None:
    """Let tasks wait, and kill a Python worker that has one, or the executor that it belongs to."""
    before = world.planned(TABLE)
    driver.wait_until(lambda: world.planned(TABLE) > before, "batches go on")
    world.hold()
    driver.wait_until(lambda: world.held(driver.pid), "a task waits")
    worker = chance.choice(world.held(driver.pid))
    # Written anew all the time, and empty for a moment.
    driver.wait_until(lambda: (world.task.held / str(worker)).read_text() == sys.executable, "the interpreter is ours")
    executor = next(pid for pid in _executors(driver.pid) if worker in processes.descendants(pid))
    processes.kill(executor if is_executor else worker)
    world.release()


def _executors(driver: int) -> list[int]:
    return [pid for pid in processes.descendants(driver) if "CoarseGrainedExecutorBackend" in processes.command(pid)]


def _table(folder: Path) -> list[int]:
    """The numbers in a table that a stream wrote, as its own log of files tells: sorted, twice what is there twice."""
    import pyarrow.parquet as pq

    found: list[int] = []
    for path in checkpoints.files_of_table(folder):
        found.extend(int(value) for value in pq.read_table(path, columns=["value"])["value"].to_pylist())
    return sorted(found)


def _topic(bootstrap: str, topic: str) -> list[int]:
    """The numbers in a topic."""
    places = [TopicPartition(topic, partition) for partition in range(_PARTITIONS)]
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        found: list[int] = []
        while any(consumer.position(place) < ends[place] for place in places):
            found.extend(int(record.value) for record in consumer.poll(10))
    return found
