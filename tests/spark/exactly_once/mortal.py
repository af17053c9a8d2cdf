"""A sink of which somebody dies on the way, in a program to be killed.

`python -m tests.spark.exactly_once.mortal JSON` with the fields of `Task`: a stream from topic to topic, exactly once.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql.datasource import WriterCommitMessage

from barnabas.spark.sink.messages import RowsWritten
from barnabas.spark.sink.writers import TopicStreamWriter, stream_writer
from barnabas.spark.sink.writing import WritePlan
from barnabas.spark.source import BarnabasDataSource
from tests.spark.rig import processes, sessions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

_Messages = list[WriterCommitMessage | None]

#: How many offsets of the source make a batch.
BATCH_ROWS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    servers: str
    source: str
    sink: str
    folder: str
    #: Who dies in which batch, after what: ("commit", 3) is the driver after so many steps of a commit, ("abort", 3)
    #: that of an abort, ("executor", "flush") the one of the first task after a call of its producer.
    fates: dict[str, tuple[str, int | str]] = dataclasses.field(default_factory=dict)
    master: str = "local[2,4]"
    timeout_ms: int = 60_000

    @property
    def checkpoint(self) -> Path:
        return Path(self.folder) / "checkpoint"

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))


class MortalSource(BarnabasDataSource):
    @classmethod
    def name(cls) -> str:
        return "mortal"

    def streamWriter(self, schema: StructType, overwrite: bool) -> TopicStreamWriter:  # noqa: N802
        plan = stream_writer(self._given, schema, overwrite).plan
        return MortalWriter(plan, json.loads(self.options["fates"]), int(self.options["driver"]))


class MortalWriter(TopicStreamWriter):
    def __init__(self, plan: WritePlan, fates: dict[str, Any], driver: int) -> None:
        super().__init__(plan)
        self.fates = fates
        self.driver = driver

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        context = TaskContext.get()
        assert context is not None
        kind, step = self._fate(context.getLocalProperty("streaming.sql.batchId"))
        if kind != "executor" or context.partitionId() or context.attemptNumber():
            return super().write(iterator)
        with _after_call(step, _kill_executor):
            return super().write(iterator)

    def commit(self, messages: _Messages, batchId: int) -> None:  # noqa: N803
        kind, step = self._fate(batchId)
        if kind == "commit":
            with _after_steps(step, self._kill_driver):
                super().commit(messages, batchId)
        elif kind == "abort":
            with _after_steps("CommitControl", _fail):
                super().commit(messages, batchId)
        else:
            super().commit(messages, batchId)

    def abort(self, messages: _Messages, batchId: int) -> None:  # noqa: N803
        kind, step = self._fate(batchId)
        with _after_steps(step if kind == "abort" else -1, self._kill_driver):
            super().abort(messages, batchId)

    def _fate(self, batch: object) -> tuple[str, Any]:
        kind, step = self.fates.get(str(batch), ("", 0))
        return kind, step

    def _kill_driver(self) -> None:
        own = os.getpid()
        processes.kill(self.driver, *(each for each in processes.descendants(self.driver) if each != own), own)


def _fail() -> None:
    raise OSError("this commit was to fail")


def _kill_executor() -> None:
    """This worker and, where it is a process of its own, the executor that it belongs to."""
    executor = processes.parent(os.getppid())
    if "CoarseGrainedExecutorBackend" in processes.command(executor):
        processes.kill(executor)
    processes.kill(os.getpid())


@contextmanager
def _after_steps(step: int | str, happens: Callable[[], None]) -> Iterator[None]:
    """Something happens after so many steps, or after the one with this name."""
    from barnabas.spark.sink.deciding import DecidingCluster

    taken, real = 0, DecidingCluster.take

    def take(self: DecidingCluster, each: Any) -> Any:
        nonlocal taken
        answer = real(self, each)
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
    }
    spark = sessions.start_session(Path(task.folder) / "spark", task.master, more)
    spark.dataSource.register(MortalSource)
    while True:
        query = _started(spark, task)
        try:
            query.awaitTermination()
            break
        except StreamingQueryException as error:
            # Spark gives a Python ten seconds to start, which on a busy machine may be too little.
            if "Python worker failed to connect back" not in str(error):
                raise
    spark.stop()


def _started(spark: SparkSession, task: Task) -> StreamingQuery:
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
        .option("topic", task.sink)
        .option("delivery", "exactly-once")
        .option("fates", json.dumps(task.fates))
        .option("driver", os.getpid())
        .option("checkpointLocation", str(task.checkpoint))
        .trigger(availableNow=True)
        .start()
    )


if __name__ == "__main__":
    # As others import it: workers unpickle by the name of the module.
    from tests.spark.exactly_once import mortal

    mortal.main(mortal.Task(**json.loads(sys.argv[1])))
