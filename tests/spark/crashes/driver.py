"""A program with three streams, to be killed.

A topic goes into a table, and into another topic; a third topic goes into a table too, but only what is new in it since
the program first ran.

`python -m tests.spark.crashes.driver JSON` with the fields of `Task`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark.rig import sessions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

#: The streams, by the names of their checkpoints.
TABLE, TOPIC, NEWS = "table", "topic", "news"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What to do: between which topics, where, and whether to go on for ever or until all is done that is there now."""

    bootstrap: str
    numbers: str
    copies: str
    news: str
    folder: str
    streams: tuple[str, ...] = (TABLE, TOPIC, NEWS)
    #: The format of source and sink; `kafka` tells whether a story is fair.
    connector: str = "barnabas"
    master: str = "local[2]"
    is_last: bool = False
    max_offsets_per_trigger: int = 40

    @property
    def root(self) -> Path:
        return Path(self.folder)

    def checkpoint(self, stream: str) -> Path:
        return self.root / "checkpoints" / stream

    def table(self, stream: str) -> Path:
        return self.root / "tables" / stream

    @property
    def hold(self) -> Path:
        """While this file exists, no task of a stream into a table comes to its end: it waits."""
        return self.root / "hold"

    @property
    def held(self) -> Path:
        """A folder: in it, workers that wait leave a file named by their process, with their interpreter."""
        return self.root / "held"

    @property
    def ready(self) -> Path:
        """Written once every stream knows where it starts."""
        return self.root / "ready"

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Task:
        fields: dict[str, Any] = json.loads(text)
        return cls(**fields | {"streams": tuple(fields["streams"])})


def main(task: Task) -> None:
    spark = sessions.start_session(
        task.root / "spark",
        task.master,
        {"spark.driver.memory": "512m", "spark.executor.memory": "512m", "spark.sql.streaming.pollingDelay": "50ms"},
    )
    # All at once, since queries over one source must not disturb each other.
    queries = {stream: _start(spark, task, stream) for stream in task.streams}
    for stream in task.streams:
        while not _has_started(queries[stream]):
            queries[stream] = _start(spark, task, stream)
    task.ready.touch()
    for query in queries.values():
        query.awaitTermination()
    spark.stop()


def _start(spark: SparkSession, task: Task, stream: str) -> StreamingQuery:
    is_news = stream == NEWS
    frame = (
        spark.readStream.format(task.connector)
        .option("kafka.bootstrap.servers", task.bootstrap)
        .option("subscribe", task.news if is_news else task.numbers)
        .option("startingOffsets", "latest" if is_news else "earliest")
        .option("maxOffsetsPerTrigger", task.max_offsets_per_trigger)
        .load()
    )
    writer = (_to_topic if stream == TOPIC else _to_table)(frame, task, stream)
    writer = writer.option("checkpointLocation", str(task.checkpoint(stream))).queryName(stream)
    return (writer.trigger(availableNow=True) if task.is_last else writer).start()


def _to_topic(frame: DataFrame, task: Task, stream: str) -> DataStreamWriter:
    options = {"kafka.bootstrap.servers": task.bootstrap, "topic": task.copies}
    return frame.select("key", "value").writeStream.format(task.connector).options(**options)


def _to_table(frame: DataFrame, task: Task, stream: str) -> DataStreamWriter:
    held = frame.select("partition", "offset", "value")
    return (
        held.mapInArrow(_holding(str(task.hold), str(task.held)), held.schema)
        .writeStream.format("parquet")
        .option("path", str(task.table(stream)))
    )


def _holding(hold: str, held: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Passes rows on, and waits before the end of the task while the file exists."""

    def pass_on(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        while Path(hold).exists():
            Path(held, str(os.getpid())).write_text(sys.executable)
            time.sleep(0.02)

    return pass_on


def _has_started(query: StreamingQuery) -> bool:
    """Waits until the query has asked for its first offsets: it has a batch in hand, or waits for records.

    Spark gives the Python of a stream ten seconds to start. On a busy machine that may be too little for several at
    once: a query that came to nothing by this alone can be started again.
    """
    while query.isActive and not (query.status["isDataAvailable"] or "Waiting" in query.status["message"]):
        time.sleep(0.05)
    return "Python worker failed to connect back" not in str(query.exception())


if __name__ == "__main__":
    main(Task.from_json(sys.argv[1]))
