"""Our source and sink in Spark against Spark's own Kafka connector, and against Arrow sources that do nothing.

All on `local[2]` with the node on the same machine. `--quick` looks once, at fewer records. Rates are the best of the
rounds; before them each contestant has run once, so that workers and compilers are warm. The JVM connector takes part
if `make oracles` could fetch its jars.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import barnabas
from barnabas import Admin, NewTopic, Producer
from bench.measure import Result
from bench.node_brokers import Barnabas

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT: Final = Path(__file__).parents[1]
PARTITIONS: Final = 2
_FILL_ROWS: Final = 10_000
#: Of the best that Python and Arrow allow, and of the JVM connector.
SOURCE_TARGET: Final = 0.6
JVM_TARGET: Final = 1.0
#: Of a sink that discards, of rows of so many bytes.
WRITE_TARGETS: Final = {1024: 0.3}
#: Of writing at least once.
ONCE_TARGET: Final = 0.75


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is read and written, by size of value, and how often."""

    reads: tuple[tuple[int, int], ...] = ((100, 10_000_000), (1024, 2_000_000))
    writes: tuple[tuple[int, int], ...] = ((100, 4_000_000), (1024, 800_000))
    #: From topic to topic, in batches of a quarter of it.
    streams: tuple[tuple[int, int], ...] = ((100, 4_000_000),)
    rounds: int = 3


FULL: Final = Plan()
QUICK: Final = Plan(reads=((100, 1_000_000),), writes=((100, 500_000),), streams=((100, 500_000),), rounds=1)


def connector_jars() -> list[Path]:
    folder = ROOT / ".oracles" / "spark-connector"
    return sorted(folder.glob("*.jar")) if (folder / "complete").exists() else []


@contextmanager
def spark_session(folder: Path) -> Iterator[SparkSession]:
    from barnabas.spark.environment import check_java

    check_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # Workers must find the contestants and the package, wherever this was started.
    paths = [str(ROOT), str(Path(barnabas.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    from pyspark.sql import SparkSession

    from barnabas.spark import register
    from bench.spark_contestants import Discarding, InMemory

    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": str(folder / "scratch"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.jars": ",".join(map(str, connector_jars())),
    }
    builder = SparkSession.builder.master("local[2]").appName("barnabas-bench")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        register(spark)
        spark.dataSource.register(InMemory)
        spark.dataSource.register(Discarding)
        yield spark
    finally:
        spark.stop()


class Contest:
    """One node, one session, and contestants that take turns."""

    def __init__(self, spark: SparkSession, bootstrap: str, rounds: int) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._rounds = rounds
        self._numbers = count()

    def read(self, rows: int, size: int) -> dict[str, float]:
        """Rows per second, by contestant. All columns of all rows go through Spark, into nothing."""
        with self._topic() as topic:
            fill(self._bootstrap, topic, rows, size)
            frames: dict[str, Callable[[], DataFrame]] = {
                "in memory": lambda: (
                    self._spark.read.format("in-memory").option("rows", rows).option("size", size).load()
                ),
                "ours": lambda: self._load("barnabas", topic),
            }
            if connector_jars():
                frames["JVM"] = lambda: self._load("kafka", topic)
            for name, frame in frames.items():
                found = frame().selectExpr("count(*)", "sum(length(value))").head()
                assert tuple(found or ()) == (rows, rows * size), f"{name}: {found}"
            return self._rates(rows, {name: _discarding(frame) for name, frame in frames.items()})

    def write(self, rows: int, size: int) -> dict[str, float]:
        """The same of writing rows that cost Spark next to nothing to make."""
        made = self._spark.range(0, rows, 1, PARTITIONS).selectExpr(f"cast(repeat('x', {size}) as binary) as value")

        def write_to(kind: str) -> Callable[[], None]:
            def write() -> None:
                with self._topic() as topic:
                    options = {"kafka.bootstrap.servers": self._bootstrap, "topic": topic}
                    made.write.format(kind).mode("append").options(**options).save()

            return write

        sinks: dict[str, Callable[[], None]] = {
            "discarding": lambda: made.write.format("discarding").mode("append").save(),
            "ours": write_to("barnabas"),
        }
        if connector_jars():
            sinks["JVM"] = write_to("kafka")
        for sink in sinks.values():
            sink()
        return self._rates(rows, sinks)

    def stream(self, rows: int, size: int) -> dict[str, float]:
        """The same of a stream from topic to topic, read by our source, from its start to its end."""
        with self._topic() as source, tempfile.TemporaryDirectory() as folder:
            fill(self._bootstrap, source, rows, size)

            def stream_to(kind: str, **more: str) -> Callable[[], None]:
                return lambda: self._stream(source, rows, kind, Path(folder) / str(next(self._numbers)), more)

            sinks = {
                "at least once": stream_to("barnabas"),
                "ours": stream_to("barnabas", delivery="exactly-once"),
            }
            if connector_jars():
                sinks["JVM"] = stream_to("kafka")
            for sink in sinks.values():
                sink()
            return self._rates(rows, sinks)

    def _stream(self, source: str, rows: int, kind: str, checkpoint: Path, more: dict[str, str]) -> None:
        read = {"subscribe": source, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(rows // 4)}
        with self._topic() as topic:
            query = (
                self._spark.readStream.format("barnabas")
                .options(**{"kafka.bootstrap.servers": self._bootstrap, **read})
                .load()
                .select("value")
                .writeStream.format(kind)
                .options(**{"kafka.bootstrap.servers": self._bootstrap, "topic": topic, **more})
                .option("checkpointLocation", str(checkpoint))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()

    def _rates(self, rows: int, contestants: dict[str, Callable[[], None]]) -> dict[str, float]:
        best = dict.fromkeys(contestants, float("inf"))
        for _ in range(self._rounds):
            for name, run_once in contestants.items():
                os.sync()  # or the system writes down in one's turn what the other has left
                start = time.perf_counter()
                run_once()
                best[name] = min(best[name], time.perf_counter() - start)
        return {name: rows / seconds for name, seconds in best.items()}

    def _load(self, kind: str, topic: str) -> DataFrame:
        options = {"kafka.bootstrap.servers": self._bootstrap, "subscribe": topic}
        return self._spark.read.format(kind).options(**options).load()

    @contextmanager
    def _topic(self) -> Iterator[str]:
        """A topic that is gone afterwards: files that nobody reads any more push others out of memory."""
        topic = f"spark-{next(self._numbers)}"
        with Admin(bootstrap_servers=self._bootstrap) as admin:
            admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS)])
            yield topic
            admin.delete_topics([topic])


def fill(bootstrap: str, topic: str, rows: int, size: int) -> None:
    """Batched as a producer does that nobody has tuned."""
    import pyarrow as pa

    table = pa.table({"value": pa.repeat(pa.scalar(b"x" * size, pa.binary()), _FILL_ROWS)})
    with Producer(bootstrap_servers=bootstrap, linger_ms=5) as producer:
        sent = [
            producer.send_arrow(topic, table, partition=number % PARTITIONS) for number in range(rows // _FILL_ROWS)
        ]
        for each in sent:
            each.result()


def _discarding(load: Callable[[], DataFrame]) -> Callable[[], None]:
    return lambda: load().write.format("noop").mode("overwrite").save()


_Part: TypeAlias = Callable[[Contest, Plan], Iterator[Result]]


def compared(name: str, rates: dict[str, float], peer: str, target: float | None) -> Result:
    detail = f"{rates['ours'] / 1e3:,.0f}k / {peer} {rates[peer] / 1e3:,.0f}k rows per s"
    return Result(name, rates["ours"] / rates[peer], target, detail)


def reading(contest: Contest, plan: Plan) -> Iterator[Result]:
    for size, rows in plan.reads:
        rates = contest.read(rows, size)
        yield compared(f"read, {size} bytes", rates, "in memory", SOURCE_TARGET)
        if "JVM" in rates:
            yield compared("  against the JVM connector", rates, "JVM", JVM_TARGET)


def writing(contest: Contest, plan: Plan) -> Iterator[Result]:
    for size, rows in plan.writes:
        rates = contest.write(rows, size)
        yield compared(f"write, {size} bytes", rates, "discarding", WRITE_TARGETS.get(size))
        if "JVM" in rates:
            yield compared("  against the JVM connector", rates, "JVM", JVM_TARGET)


def streaming(contest: Contest, plan: Plan) -> Iterator[Result]:
    for size, rows in plan.streams:
        rates = contest.stream(rows, size)
        yield compared(f"topic to topic, exactly once, {size} bytes", rates, "at least once", ONCE_TARGET)
        if "JVM" in rates:
            yield compared("  against the JVM connector, at least once", rates, "JVM", None)
            both = {"ours": rates["at least once"], "JVM": rates["JVM"]}
            yield compared("  at least once, against the JVM connector", both, "JVM", None)


def run(plan: Plan = FULL, parts: Sequence[_Part] = (reading, writing, streaming)) -> list[Result]:
    folder = Path(tempfile.mkdtemp(prefix="barnabas-bench-"))
    node = Barnabas(folder / "barnabas", "log.segment.delete.delay.ms=0")
    try:
        node.prepare()
        node.start()
        with spark_session(folder) as spark:
            contest = Contest(spark, node.bootstrap, plan.rounds)
            return [result for part in parts for result in part(contest, plan)]
    finally:
        node.stop()
        shutil.rmtree(folder, ignore_errors=True)


def run_quickly() -> list[Result]:
    return run(QUICK)


def _section(part: _Part) -> Callable[[bool], list[Result]]:
    return lambda is_quick: run(QUICK if is_quick else FULL, [part])


SECTIONS: Final = {"read": _section(reading), "write": _section(writing), "stream": _section(streaming)}
