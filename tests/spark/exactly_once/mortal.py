"""A sink of which somebody dies on the way, in a program to be killed.

`python -m tests.spark.exactly_once.mortal JSON` with the fields of `Task`: streams from topic to topic, exactly once.
All wait for each other before the batch in which they are to die, and each again where it dies; then the driver is
killed with all its processes. So one Spark dies in as many places as it has streams.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from unittest.mock import patch

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from barnabas.spark.sink.messages import RowsWritten, TransactionWritten
from barnabas.spark.sink.writers import TopicStreamWriter, stream_writer
from barnabas.spark.sink.writing import WritePlan
from barnabas.spark.source import BarnabasDataSource
from tests.spark.exactly_once.quick_spark import java_options
from tests.spark.rig import processes, sessions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

_Messages = list[WriterCommitMessage | None]

#: What somebody does in a batch, and after how many steps of it he dies; or after which call of a task's producer.
Fate: TypeAlias = tuple[str, int | str]

#: How many offsets of the source make a batch.
BATCH_ROWS = 10
#: How long streams wait for each other, for a machine that does much else.
_MEETING_S = 300
#: Of streams that do not wait yet, so many at a time: Spark gives a Python ten seconds to start.
_STARTING = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    servers: str
    source: str
    folder: str
    #: The names of the streams, which are those of their sinks' topics, and who dies in them in which batch, after
    #: what: ("commit", 3) is the driver after so many steps of a commit, ("refused", 3) of one that finds a task's
    #: transaction gone, ("abort", 3) of an abort when the batch is decided, ("undecided", 3) before that,
    #: ("executor", "flush") the executor of the first task after a call of its producer.
    streams: dict[str, dict[str, Fate]]
    #: Which life of a driver this is.
    life: int
    master: str = "local[2,4]"
    timeout_ms: int = 60_000

    @property
    def meeting(self) -> Path:
        """Where they leave word that they have come."""
        return Path(self.folder) / f"life-{self.life}"

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))


def checkpoint_of(folder: str | Path, stream: str) -> Path:
    return Path(folder) / "checkpoints" / stream


class MortalSource(BarnabasDataSource):
    @classmethod
    def name(cls) -> str:
        return "mortal"

    def streamWriter(self, schema: StructType, overwrite: bool) -> TopicStreamWriter:  # noqa: N802
        plan = stream_writer(self._given, schema, overwrite).plan
        return MortalWriter(plan, self.options["mortal"], Task(**json.loads(self.options["fates"])), self.options)


class MortalWriter(TopicStreamWriter):
    def __init__(self, plan: WritePlan, stream: str, task: Task, options: Mapping[str, str]) -> None:
        super().__init__(plan)
        self.stream = stream
        self.task = task
        self.driver = int(options["driver"])

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        context = TaskContext.get()
        assert context is not None
        batch = context.getLocalProperty("streaming.sql.batchId")
        kind, step = self._fate(batch)
        if kind != "executor" or context.partitionId() or context.attemptNumber():
            return super().write(iterator)
        with _after_call(step, lambda: _kill_executor(self.task.meeting / f"killed-in-{batch}")):
            return super().write(iterator)

    def commit(self, messages: _Messages, batchId: int) -> None:  # noqa: N803
        kind, step = self._fate(batchId)
        if kind and kind != "executor":
            self._meet("ready")
        if kind == "refused":
            self._fence_first(messages)
        broken_off: AbstractContextManager[None] = nullcontext()
        if kind in ("commit", "refused", "settle"):
            broken_off = _after_steps(step, self._kill_driver, settles=kind == "settle")
        elif kind in ("abort", "undecided"):
            broken_off = _after_steps("CommitControl" if kind == "abort" else "Probe", _fail)
        with broken_off:
            super().commit(messages, batchId)

    def abort(self, messages: _Messages, batchId: int) -> None:  # noqa: N803
        kind, step = self._fate(batchId)
        with _after_steps(step, self._kill_driver) if kind in ("abort", "undecided") else nullcontext():
            super().abort(messages, batchId)

    def _fate(self, batch: object) -> tuple[str, Any]:
        kind, step = self.task.streams[self.stream].get(str(batch), ("", 0))
        return kind, step

    def _fence_first(self, messages: _Messages) -> None:
        from barnabas import Admin

        written = [each.written for each in messages if isinstance(each, TransactionWritten)]
        handles = [each.handle for each in written if each.handle is not None]
        with Admin(bootstrap_servers=self.task.servers) as admin:
            admin.fence_producers([handles[0].transactional_id])

    def _kill_driver(self) -> None:
        self._meet("there")
        own = os.getpid()
        processes.kill(self.driver, *(each for each in processes.descendants(self.driver) if each != own), own)

    def _meet(self, where: str) -> None:
        """Go on when all streams are as far."""
        (self.task.meeting / f"{where}-{self.stream}").touch()
        processes.wait_until(
            lambda: len([*self.task.meeting.glob(f"{where}-*")]) == len(self.task.streams),
            f"all streams are {where}",
            _MEETING_S,
        )


def _fail() -> None:
    raise OSError("this commit was to fail")


def _kill_executor(word: Path) -> None:
    """This worker and, where it is a process of its own, the executor that it belongs to."""
    word.touch()
    executor = processes.parent(os.getppid())
    if "CoarseGrainedExecutorBackend" in processes.command(executor):
        processes.kill(executor)
    processes.kill(os.getpid())


@contextmanager
def _after_steps(step: int | str, happens: Callable[[], None], *, settles: bool | None = None) -> Iterator[None]:
    """Something happens after so many steps, or after the one with this name. Whether a commit settles the batch before
    is up to chance: to Spark, which may have another process for each. So either only these steps count, or all others;
    or, where nothing is said, all."""
    from barnabas.spark.core.exactly_once.steps import CommitTask, ListOpen, PeekReceipt
    from barnabas.spark.sink.deciding import DecidingCluster

    taken, has_listed, real = 0, False, DecidingCluster.take

    def take(self: DecidingCluster, each: Any) -> Any:
        nonlocal taken, has_listed
        answer = real(self, each)
        has_listed = has_listed or isinstance(each, ListOpen)
        # Of a batch that was fenced meanwhile, receipts are looked at.
        is_settling = isinstance(each, PeekReceipt) or (isinstance(each, CommitTask) and not has_listed)
        if settles is not None and settles != is_settling:
            return answer
        taken += 1
        if step in (taken, type(each).__name__):
            happens()
        return answer

    with patch.object(DecidingCluster, "take", take):
        yield


@contextmanager
def _after_call(name: str, happens: Callable[[], None]) -> Iterator[None]:
    from barnabas import Producer

    real = getattr(Producer, name)

    def last(*arguments: Any, **keywords: Any) -> None:
        real(*arguments, **keywords)
        happens()

    with patch.object(Producer, name, last):
        yield


def main(task: Task) -> None:
    more = {
        # Executors are lost one after another, which Spark would give up over.
        "spark.deploy.maxExecutorRetries": "-1",
        "spark.executor.memory": "512m",
        "spark.jars": "",
        # To compile a query takes longer than to run it on a few rows.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        **java_options(Path(task.folder) / "spark"),
    }
    spark = sessions.start_session(Path(task.folder) / "spark", task.master, more)
    spark.dataSource.register(MortalSource)
    waiting, running = [*task.streams], dict[str, "StreamingQuery"]()
    while waiting or running:
        at_work = [stream for stream in running if not (task.meeting / f"ready-{stream}").exists()]
        if waiting and len(at_work) < _STARTING:
            stream = waiting.pop(0)
            running[stream] = _started(spark, task, stream)
        for stream, query in [*running.items()]:
            if query.isActive:
                continue
            del running[stream]
            error = query.exception()
            if error is not None and "Python worker failed to connect back" not in str(error):
                raise error
            if error is not None:
                waiting.append(stream)
        time.sleep(0.1)
    spark.stop()


def _started(spark: SparkSession, task: Task, stream: str) -> StreamingQuery:
    return (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", task.servers)
        .option("subscribe", task.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", BATCH_ROWS)
        .load()
        .selectExpr("concat(partition, ':', offset) AS value")
        .writeStream.format("mortal")
        .option("kafka.bootstrap.servers", task.servers)
        .option("kafka.transaction.timeout.ms", task.timeout_ms)
        .option("topic", stream)
        .option("delivery", "exactly-once")
        .option("mortal", stream)
        .option("fates", task.to_json())
        .option("driver", os.getpid())
        .option("checkpointLocation", str(checkpoint_of(task.folder, stream)))
        .trigger(availableNow=True)
        .start()
    )


if __name__ == "__main__":
    # As others import it: workers unpickle by the name of the module.
    from tests.spark.exactly_once import mortal

    mortal.main(mortal.Task(**json.loads(sys.argv[1])))
