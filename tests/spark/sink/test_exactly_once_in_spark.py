"""Streams that write exactly once, inside Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

import barnabas.spark
from barnabas import Admin, Consumer, Producer, TopicPartition
from barnabas.testing import EmbeddedBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_NewTopic = Callable[..., str]


def _values(broker: EmbeddedBroker, topic: str, partitions: int = 1) -> list[str]:
    """What a reader of committed records sees; sorted."""
    places = [TopicPartition(topic, number) for number in range(partitions)]
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        found = []
        while any(consumer.position(place) < ends[place] for place in places):
            found += [(each.value or b"").decode() for each in consumer.poll(10)]
    return sorted(found)


def _numbers(broker: EmbeddedBroker, topic: str, numbers: range, partitions: int) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for each in numbers:
            producer.send(topic, b"%03d" % each, partition=each % partitions)


def _source(spark: SparkSession, broker: EmbeddedBroker, topic: str) -> DataFrame:
    return (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 20)
        .load()
        .select("value")
    )


def _run(frame: DataFrame, broker: EmbeddedBroker, topic: str, checkpoint: Path, **options: Any) -> StreamingQuery:
    query = (
        frame.writeStream.format("barnabas")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("topic", topic)
        .option("delivery", "exactly-once")
        .option("checkpointLocation", str(checkpoint))
        .options(**options)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    return query


def test_a_stream_that_is_repeated_writes_every_row_once(
    spark: SparkSession, broker: EmbeddedBroker, new_topic: _NewTopic, tmp_path: Path
) -> None:
    source, sink = new_topic(2), new_topic(2)
    _numbers(broker, source, range(50), 2)
    frame, checkpoint = _source(spark, broker, source), tmp_path / "checkpoint"
    _run(frame, broker, sink, checkpoint)
    assert _values(broker, sink, 2) == [f"{each:03d}" for each in range(50)]
    # As if the driver had died before it noted that the last batch was done.
    (checkpoint / "commits" / "2").unlink()
    (checkpoint / "commits" / ".2.crc").unlink(missing_ok=True)
    _numbers(broker, source, range(50, 60), 2)
    _run(frame, broker, sink, checkpoint)
    assert _values(broker, sink, 2) == [f"{each:03d}" for each in range(60)]
    query = json.loads((checkpoint / "metadata").read_text())["id"]
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        mine = [each for each in admin.list_transactions() if query in each.transactional_id]
    assert mine
    assert {str(each.state) for each in mine} <= {"CompleteCommit", "CompleteAbort", "Empty"}


def test_a_rewound_checkpoint_is_refused(
    spark: SparkSession, broker: EmbeddedBroker, new_topic: _NewTopic, tmp_path: Path
) -> None:
    source, sink = new_topic(), new_topic()
    _numbers(broker, source, range(50), 1)
    frame, checkpoint = _source(spark, broker, source), tmp_path / "checkpoint"
    _run(frame, broker, sink, checkpoint)
    for each in ("commits", "offsets"):
        for batch in (1, 2):
            (checkpoint / each / str(batch)).unlink()
            (checkpoint / each / f".{batch}.crc").unlink(missing_ok=True)
    with pytest.raises(StreamingQueryException, match="the newest decision is that of batch 2"):
        _run(frame, broker, sink, checkpoint)
    assert _values(broker, sink) == [f"{each:03d}" for each in range(50)]


@pytest.mark.parametrize(
    ("option", "value"), [("acks", "1"), ("enable.idempotence", "false"), ("transactional.id", "mine")]
)
def test_options_that_contradict_it_are_refused_before_a_job_starts(
    option: str, value: str, spark: SparkSession, broker: EmbeddedBroker, new_topic: _NewTopic, tmp_path: Path
) -> None:
    source, sink = new_topic(), new_topic()
    _numbers(broker, source, range(5), 1)
    query = (
        _source(spark, broker, source)
        .writeStream.format("barnabas")
        .options(**{"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": sink, "delivery": "exactly-once"})
        .option(f"kafka.{option}", value)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(StreamingQueryException, match=f"kafka.{option}"):
        query.awaitTermination(120)
    # Jobs of a query are a group under the id of its run.
    assert not spark.sparkContext.statusTracker().getJobIdsForGroup(str(query.runId))


def test_updates_are_written_exactly_once_by_foreach_batch(
    spark: SparkSession, broker: EmbeddedBroker, new_topic: _NewTopic, tmp_path: Path
) -> None:
    source, sink = new_topic(), new_topic()
    _numbers(broker, source, range(40), 1)
    counts = (
        _source(spark, broker, source)
        .selectExpr("substr(cast(value AS string), 1, 2) AS tens")
        .groupBy("tens")
        .count()
        .selectExpr("concat(tens, '=', count) AS value")
    )
    write = barnabas.spark.topic_writer(
        {"kafka.bootstrap.servers": broker.bootstrap_servers}, topic=sink, delivery="exactly-once"
    )
    checkpoint = tmp_path / "checkpoint"
    for _ in range(2):
        query = (
            counts.writeStream.outputMode("update")
            .foreachBatch(write)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        assert _values(broker, sink) == ["00=10", "01=10", "02=10", "03=10"]
        (checkpoint / "commits" / "1").unlink()
        (checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
