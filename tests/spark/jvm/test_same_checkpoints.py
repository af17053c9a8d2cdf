"""Streams: the same batches in the checkpoint, and a checkpoint of the one goes on with the other."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.testing import EmbeddedBroker
from tests.spark.rig import checkpoints, queries
from tests.spark.rig.contents import fill, grow, number
from tests.spark.rig.queries import JVM, OURS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NewTopic = Callable[..., str]


@pytest.mark.parametrize(
    "start", ["earliest", pytest.param('{{"{0}":{{"0":3,"1":-2,"2":-1}}}}', marks=pytest.mark.slow)]
)
def test_batches_are_cut_at_the_same_offsets(
    start: str, spark: SparkSession, broker: EmbeddedBroker, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(3, retention_ms=-1)
    options = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "subscribe": topic,
        "startingOffsets": start.format(topic),
        "maxOffsetsPerTrigger": "23",
    }
    # The third partition is so much smaller that its share is below one, and the second run finds it grown alone.
    for sizes in ((50, 20, 1), (0, 0, 9)):
        fill(broker.bootstrap_servers, topic, sizes, first=100)
        for source in (JVM, OURS):
            queries.drain(queries.stream(spark, source, options), tmp_path / source)
        theirs, ours = (checkpoints.offsets(tmp_path / source) for source in (JVM, OURS))
        assert ours == theirs
        assert checkpoints.commits(tmp_path / OURS) == checkpoints.commits(tmp_path / JVM)
    assert len(ours) > 3
    assert ours[max(ours)] == {topic: {"0": 50, "1": 20, "2": 10}}


@pytest.mark.parametrize("first", [JVM, pytest.param(OURS, marks=pytest.mark.slow)])
def test_each_goes_on_where_the_other_stopped(
    first: str, spark: SparkSession, broker: EmbeddedBroker, new_topic: NewTopic, tmp_path: Path
) -> None:
    """Over new records and new partitions, back and forth, and with batches that were planned and never finished."""
    topic, table, checkpoint = new_topic(2), tmp_path / "table", tmp_path / "checkpoint"
    bootstrap = broker.bootstrap_servers
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    options["maxOffsetsPerTrigger"] = "40"
    second = OURS if first == JVM else JVM
    partitions, written = 2, 0
    for source, wanted, count, is_unfinished in (
        (first, 2, 30, True),  # one batch, the first
        (second, 2, 20, False),
        (first, 3, 50, True),
        (second, 4, 50, True),
        (first, 4, 0, False),
    ):
        if wanted > partitions:
            grow(bootstrap, topic, wanted)
            partitions = wanted
        number(bootstrap, topic, range(written, written + count), partitions)
        written += count
        queries.drain(queries.stream(spark, source, options), checkpoint, table)
        assert queries.values(spark, table) == sorted(map(str, range(written)))
        if is_unfinished:
            _undo_last_batch(checkpoint, table)


@pytest.fixture
def named_sources(spark: SparkSession) -> Iterator[None]:
    """Offsets in the second version of Spark's log, a map by the names of sources."""
    confs = {
        "spark.sql.streaming.offsetLog.formatVersion": "2",
        "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    }
    for name, value in confs.items():
        spark.conf.set(name, value)
    yield
    for name in confs:
        spark.conf.unset(name)


@pytest.mark.slow
@pytest.mark.parametrize("first", [JVM, OURS])
def test_each_goes_on_where_the_other_stopped_with_named_sources(
    first: str, named_sources: None, spark: SparkSession, broker: EmbeddedBroker, new_topic: NewTopic, tmp_path: Path
) -> None:
    """The topic is written exactly once, so that a batch which is repeated shows that it has the same rows."""
    topic, copy, checkpoint = new_topic(2), new_topic(1), tmp_path / "checkpoint"
    bootstrap = broker.bootstrap_servers
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    options["maxOffsetsPerTrigger"] = "40"
    second, written = OURS if first == JVM else JVM, 0
    for source, count, is_unfinished in ((first, 30, True), (first, 0, False), (second, 60, True), (first, 30, False)):
        number(bootstrap, topic, range(written, written + count), 2)
        written += count
        query = (
            queries.stream(spark, source, options, "numbers")
            .select("value")
            .writeStream.format(OURS)
            .options(**{"kafka.bootstrap.servers": bootstrap, "topic": copy, "delivery": "exactly-once"})
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert checkpoints.version(checkpoint) == "v2"
        committed = {"kafka.isolation.level": "read_committed", "subscribe": copy, "kafka.bootstrap.servers": bootstrap}
        rows: list[tuple[Any, ...]] = queries.read(spark, OURS, committed).rows
        assert sorted(int(bytes(row[1])) for row in rows) == list(range(written))
        if is_unfinished:
            _undo_last_batch(checkpoint, None)


def test_a_first_batch_of_the_jvm_connector_whose_start_is_lost_is_refused(
    spark: SparkSession, broker: EmbeddedBroker, new_topic: NewTopic, tmp_path: Path
) -> None:
    """Its checkpoint has the batch's end alone, and a timestamp may give another start than it gave then."""
    topic, checkpoint = new_topic(), tmp_path / "checkpoint"
    fill(broker.bootstrap_servers, topic, [10], first=1_000_000)
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, "startingTimestamp": "1"}
    queries.drain(queries.stream(spark, JVM, options), checkpoint)
    _undo_last_batch(checkpoint, None)
    with pytest.raises(Exception, match="startingOffsets") as refused:
        queries.drain(queries.stream(spark, OURS, options), checkpoint)
    assert "SparkConnectorError: " in str(refused.value)
    assert checkpoints.commits(checkpoint) == {}
    queries.drain(queries.stream(spark, JVM, options), checkpoint)
    fill(broker.bootstrap_servers, topic, [5], first=1_000_010)
    queries.drain(queries.stream(spark, OURS, options), checkpoint)
    assert checkpoints.offsets(checkpoint)[1] == {topic: {"0": 15}}


def _undo_last_batch(checkpoint: Path, table: Path | None) -> None:
    """As a crash between a batch's plan and its end leaves it: the table's files are there, and nothing counts them."""
    last = max(checkpoints.commits(checkpoint))
    for folder in (checkpoint / "commits", *([table / "_spark_metadata"] if table else [])):
        for left in (folder / str(last), folder / f".{last}.crc"):
            left.unlink(missing_ok=True)
    if table is not None and last == 0:
        shutil.rmtree(table)
