"""Drivers and executors that are killed (SIGKILL) after any step of the protocol, on a real cluster; Spark's part is
played, so that every step can be met.

python -m tests.spark.exactly_once.killed                               # our node, each step five times
python -m tests.spark.exactly_once.killed --cluster three --times 1     # our three nodes
python -m tests.spark.exactly_once.killed --cluster kafka --times 1     # Apache Kafka 4.3.1, or kafka-3.9, kafka-2.8
python -m tests.spark.exactly_once.killed --servers HOST:PORT           # any other

A batch has been written before; in the next one somebody is killed, and a new driver repeats it with other tasks, and
writes one more. After each, what readers of committed records see is made of whole tasks, and in the end it is every
row once; nothing is left open.
"""

from __future__ import annotations

import itertools
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import click

from barnabas import Admin, NewTopic
from barnabas.spark.core.exactly_once import Attempt, Written, abort, commit, finish
from barnabas.spark.sink.settings import needed_ms
from tests.oracles import CURRENT, OLDEST_VERSIONS, ROOT
from tests.spark.exactly_once.real_batches import RealBatches
from tests.spark.rig.processes import wait_until

#: What the driver does in `commit`, when the batch before was decided by the same run.
DRIVER_STEPS: Final = (
    *("PeekControl", "FenceDriver", "ReadControl", "ListOpen", "WriteControl", "Probe", "CommitControl"),
    *("CommitTask", "CommitTask"),
)
#: And in `abort`, after a `commit` that was broken off when the batch was decided.
ABORT_STEPS: Final = ("PeekControl", "FenceDriver", "ReadControl", "CommitTask", "CommitTask", "ListOpen")
#: In `abort`, after one that was broken off before. What is ended is the batch before.
UNDECIDED_ABORT_STEPS: Final = (
    *("PeekControl", "FenceDriver", "ReadControl", "CommitTask", "CommitTask", "ListOpen", "AbortTasks"),
)
#: In `commit` of a query's first batch, up to where it becomes as any other.
FIRST_STEPS: Final = ("PeekControl", "FenceDriver", "ReadControl", "HasCommitted", "ReadOthers")
#: In one that is refused, a transaction of a task being gone.
REFUSED_STEPS: Final = (*DRIVER_STEPS[: DRIVER_STEPS.index("Probe") + 1], "DropControl")
#: In `commit` of a batch that another run has decided. Receipts are read if EndTxn cannot tell what became of them.
REPEAT_STEPS: Final = (
    *("PeekControl", "FenceDriver", "ReadControl", "ListOpen", "CommitTask", "CommitTask", "WriteControl"),
    *("CommitControl", "AbortTasks", "ReadReceipt", "ReadReceipt"),
)
#: In `commit` of a batch that another run has written and not decided: nobody knows here that the batch before is done.
TAKING_OVER_STEPS: Final = (
    *(*DRIVER_STEPS[:3], "ReadOthers", "CommitTask", "CommitTask"),
    *(*DRIVER_STEPS[3:], "AbortTasks"),
)
#: In `finish`, after a decision, with a transaction beside it that is not in it.
FINISH_STEPS: Final = (
    *("FenceDriver", "ReadControl", "ListOpen", "CommitTask", "CommitTask", "WriteControl", "CommitControl"),
    "AbortTasks",
)
#: Calls of the producer in a task.
TASK_STEPS: Final = (
    *("init_transactions", "begin_transaction", "send_arrow", "flush", "send_offsets_to_transaction"),
    "transaction_handle",
)
_DECIDED: Final = DRIVER_STEPS.index("CommitControl") + 1
TASKS: Final = (("a",), ("b", "c"), ())
ROWS: Final = ["0", "1", "2", "a", "b", "c"]


# In the process that is killed.


def child() -> None:
    """Do what standard input says, and die on the way."""
    what, step, arguments = pickle.load(sys.stdin.buffer)
    _CHILDREN[what](step, *arguments)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _driver_dies(step: int, plan: Any, what: str, batch: int, written: Sequence[Written]) -> None:
    from barnabas.spark.sink import deciding

    taken = 0

    class Mortal(deciding.DecidingCluster):
        def take(self, each: Any) -> Any:
            nonlocal taken
            answer = super().take(each)
            taken += 1
            if taken == step:
                _die()
            return answer

    asked: Any
    if what.startswith("commit"):
        # A driver that has begun anew knows nothing of the batch before.
        newest_done = batch - 1 if what == "commit" else -1
        asked = commit(batch, written, needed_ms=needed_ms(plan.client), newest_done=newest_done)
    elif what == "abort":
        asked = abort(written)
    else:
        asked = finish(written[0].attempt.stream, f"finish{os.getpid()}")
    with Mortal(plan.client, plan.exactly_once.control_topic) as cluster:
        cluster.perform(asked)


def _task_dies(step: str, plan: Any, attempt: Attempt, rows: Sequence[str]) -> None:
    import pyarrow as pa

    from barnabas import Producer
    from barnabas.spark.sink.transactional import write_in_transaction

    real = getattr(Producer, step)

    def last(*arguments: Any, **keywords: Any) -> None:
        real(*arguments, **keywords)
        _die()

    setattr(Producer, step, last)
    write_in_transaction(plan, [pa.record_batch({"value": [row.encode() for row in rows]})], attempt)


_CHILDREN: Final[dict[str, Callable[..., None]]] = {"driver": _driver_dies, "task": _task_dies}


def _kill(what: str, step: int | str, *arguments: object) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from tests.spark.exactly_once.killed import child; child()"],
        input=pickle.dumps((what, step, arguments)),
        cwd=ROOT,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, f"{what} was not killed after {step}: {done.stderr.decode()[-2000:]}"


# What is played.


def killed_driver(batches: RealBatches, step: int) -> None:
    """Killed in `commit`, after so many steps."""
    _kill_driver(batches, step, "commit", batches.write(1, TASKS))


def killed_in_abort(batches: RealBatches, step: int) -> None:
    """`commit` ends with an error when the batch is decided, `abort` follows, and the driver is killed in that."""
    written = batches.write(1, TASKS)
    _kill_driver(batches, _DECIDED, "commit", written)
    _kill_driver(batches, step, "abort", written)


def killed_in_undecided_abort(batches: RealBatches, step: int) -> None:
    """The same, and the error comes before the decision."""
    written = batches.write(1, TASKS)
    _kill_driver(batches, _DECIDED - 1, "commit", written)
    _kill_driver(batches, step, "abort", written)


def killed_while_refusing(batches: RealBatches, step: int) -> None:
    """A transaction of a task is gone when the driver looks."""
    written = batches.write(1, TASKS)
    _fence(batches, written[:1])
    _kill_driver(batches, step, "commit", written)


def killed_in_repetition(batches: RealBatches, step: int) -> None:
    """A driver is killed when the batch is decided, and the next one while it repeats it."""
    _kill_driver(batches, _DECIDED, "commit", batches.write(1, TASKS))
    batches.restart()
    _kill_driver(batches, step, "commit", batches.write(1, TASKS))


def killed_with_receipts(batches: RealBatches, step: int) -> None:
    """The same, when the tasks are committed, and others have fenced their transactional ids."""
    written = batches.write(1, TASKS)
    _kill_driver(batches, len(DRIVER_STEPS), "commit", written)
    _fence(batches, written)
    batches.restart()
    _kill_driver(batches, step, "commit", batches.write(1, TASKS))


def killed_taking_over(batches: RealBatches, step: int) -> None:
    """A driver is killed before the batch is decided, and the next one in its own."""
    _kill_driver(batches, _DECIDED - 1, "commit", batches.write(1, TASKS))
    batches.restart()
    _kill_driver(batches, step, "commit anew", batches.write(1, TASKS))


def killed_finishing(batches: RealBatches, step: int) -> None:
    """A driver is killed when the batch is decided, and then `barnabas transactions --finish`."""
    written = batches.write(1, TASKS)
    batches.write_task(1, 1, TASKS[1], attempt=1)
    _kill_driver(batches, _DECIDED, "commit", written)
    _kill_driver(batches, step, "finish", written)


def _kill_driver(batches: RealBatches, step: int, what: str, written: Sequence[Written]) -> None:
    _kill("driver", step, batches.plan, what, 1, written)


def _fence(batches: RealBatches, written: Sequence[Written]) -> None:
    with Admin(bootstrap_servers=batches.servers) as admin:
        admin.fence_producers([each.handle.transactional_id for each in written if each.handle is not None])


def killed_task(batches: RealBatches, step: str) -> None:
    """An executor is killed; Spark runs the task again in another, and the driver commits."""
    others = [batches.write_task(1, task, rows) for task, rows in enumerate(TASKS) if task != 1]
    attempt = Attempt(batches.stream, batches.run, 1, 1, 0, next(batches.attempt_ids))
    _kill("task", step, batches.plan, attempt, TASKS[1])
    batches.commit(1, [*others, batches.write_task(1, 1, TASKS[1], attempt=1)])


def play(batches: RealBatches, killed: Any, step: int | str, *, is_old: bool = False) -> None:
    """`is_old`: the cluster does not list transactions, so that what dead tasks leave open ends with its time-out."""
    batches.commit(0, batches.write(0, [["0"], ["1"]]))
    killed(batches, step)
    seen = batches.rows()
    assert ("b" in seen) == ("c" in seen), f"part of a task is seen: {seen}"
    batches.restart()
    batches.commit(1, batches.write(1, [[], ["c"], ["b"], ["a"]]))
    if not is_old:
        assert sorted(batches.rows()) == [row for row in ROWS if row != "2"]
    batches.commit(2, batches.write(2, [["2"]]))
    if is_old:
        wait_until(lambda: len(batches.rows()) >= len(ROWS), "all rows can be read", timeout_s=60)
    assert sorted(batches.rows()) == ROWS
    if is_old:
        return
    with Admin(bootstrap_servers=batches.servers) as admin:
        listed = admin.list_transactions(states=["Ongoing"])
    left = [each.transactional_id for each in listed if each.transactional_id.startswith(batches.stream.name)]
    assert not left, f"left open: {left}"


def _stories(text: str, killed: Any, steps: Sequence[str], first: int = 1) -> list[tuple[Any, int | str, str]]:
    """From the first step on that other stories do not have."""
    return [(killed, number, f"{text} after {name}") for number, name in enumerate(steps, start=1) if number >= first]


STORIES: Final = (
    *_stories("driver", killed_driver, DRIVER_STEPS),
    *_stories("abort", killed_in_abort, ABORT_STEPS),
    *_stories("abort of what was not decided", killed_in_undecided_abort, UNDECIDED_ABORT_STEPS),
    *_stories("refusal", killed_while_refusing, REFUSED_STEPS, len(REFUSED_STEPS)),
    *_stories("repetition", killed_in_repetition, REPEAT_STEPS[:-2]),
    *_stories("repetition", killed_with_receipts, REPEAT_STEPS, len(REPEAT_STEPS) - 1),
    *_stories("taking over", killed_taking_over, TAKING_OVER_STEPS, len(TAKING_OVER_STEPS)),
    *_stories("finish", killed_finishing, FINISH_STEPS),
    *((killed_task, name, f"executor after {name}") for name in TASK_STEPS),
)


#: Clusters before 3.0 do not list transactions, so nobody finds what a dead run has left, to abort it.
NEEDS_LISTING: Final = ("taking over after AbortTasks", "finish after AbortTasks")

CLUSTERS: Final = ("node", "three", "kafka", "kafka-3.9", "kafka-2.8")


@contextmanager
def cluster(kind: str) -> Iterator[str]:
    if kind == "node":
        from barnabas.testing import EmbeddedBroker

        with EmbeddedBroker() as broker:
            yield broker.bootstrap_servers
    elif kind == "three":
        from barnabas.testing import EmbeddedCluster

        with EmbeddedCluster(3) as nodes:
            yield nodes.bootstrap_servers
    elif kind == "kafka-2.8":
        from tests.oracles.zookeeper_server import KafkaWithZooKeeper

        soon = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}
        with tempfile.TemporaryDirectory() as folder, KafkaWithZooKeeper(Path(folder), soon) as server:
            yield server.bootstrap
    else:
        from tests.oracles.kafka_server import FORMAT, KafkaServer

        # An older release does not know all features of the newest.
        release, options = (OLDEST_VERSIONS, ()) if kind == "kafka-3.9" else (CURRENT, FORMAT)
        with (
            tempfile.TemporaryDirectory() as folder,
            KafkaServer(Path(folder), format_options=options, release=release) as server,
        ):
            yield server.bootstrap


@click.command()
@click.option("--cluster", "kind", type=click.Choice(CLUSTERS), default="node", show_default=True)
@click.option("--servers", metavar="HOST:PORT", help="A cluster that is there; it gets topics and groups.")
@click.option("--times", default=5, show_default=True, help="How often each step is met.")
@click.option("--only", default="", help="Only steps whose names have this regular expression in them.")
def main(kind: str, servers: str | None, times: int, only: str) -> None:
    """Kill drivers and executors after every step; stops at the first that ends as none must."""
    with ExitStack() as open_clusters:
        address = servers or open_clusters.enter_context(cluster(kind))
        numbers = itertools.count()
        is_old = kind == "kafka-2.8"
        for killed, step, text in (each for each in STORIES if re.search(only, each[2])):
            if is_old and text in NEEDS_LISTING:
                click.echo(f"{text}: cannot be met, the cluster does not list transactions")
                continue
            for _ in range(times):
                topic = f"killed-{os.getpid()}-{next(numbers)}"
                with Admin(bootstrap_servers=address) as admin:
                    admin.create_topics([NewTopic(topic, 1)])
                play(RealBatches(address, topic, timeout_ms=12_000 if is_old else 60_000), killed, step, is_old=is_old)
            click.echo(f"{text}: every row once, {times} times")


if __name__ == "__main__":
    main()
