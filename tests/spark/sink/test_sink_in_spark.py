"""The sink inside Spark: batch and streams, next to Spark's own Kafka sink where its jars are there."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, PySparkException

import barnabas.spark
from barnabas import Consumer, TopicPartition
from barnabas.testing import EmbeddedBroker
from tests.spark.rig import sessions
from tests.spark.sink.shapes import RIGHT, WRONG, Columns, schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

_NewTopic = Callable[..., str]
#: Partition, key, value and headers of a record.
_Record = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]

_needs_connector = pytest.mark.skipif(sessions.connector_missing() is not None, reason="needs Spark's Kafka connector")


def _writer(frame: DataFrame, kind: str, broker: EmbeddedBroker, **options: str) -> DataFrameWriter:
    return (
        frame.write.format(kind)
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .options(**options)
        .mode("append")
    )


def _records(broker: EmbeddedBroker, topic: str, partitions: int) -> list[_Record]:
    """By partition, in the order of each."""
    places = [TopicPartition(topic, number) for number in range(partitions)]
    with Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        found = []
        while any(consumer.position(place) < ends[place] for place in places):
            found += [(each.partition, each.key, each.value, tuple(each.headers)) for each in consumer.poll(10)]
    return sorted(found, key=lambda record: record[0])


@_needs_connector
def test_the_same_rows_become_the_same_records(
    spark: SparkSession, broker: EmbeddedBroker, new_topic: _NewTopic
) -> None:
    rows = spark.range(2000).coalesce(1)
    frame = rows.selectExpr(
        "id AS extra",
        "if(id % 4 = 3, null, concat('käy-', id % 97)) AS key",
        "if(id % 11 = 10, null, cast(concat('value-', id) AS binary)) AS value",
        "if(id % 4 = 3 OR id % 5 = 0, cast(id % 3 AS int), null) AS partition",
        "CASE id % 3 WHEN 0 THEN null WHEN 1 THEN array() ELSE array("
        "named_struct('key', 'h', 'value', cast(cast(id AS string) AS binary)), named_struct('key', 'ß', 'value', null)"
        ") END AS headers",
        "concat('TOPIC-', id % 2) AS topic",
    )
    by_kind = {}
    for kind in ("kafka", "barnabas"):
        by_option, odd, even = new_topic(3), new_topic(3), new_topic(3)
        _writer(frame, kind, broker, topic=f" {by_option} ", includeHeaders="false").save()
        named = frame.selectExpr(
            "key", "value", "partition", "headers", f"if(extra % 2 = 0, '{even}', '{odd}') AS topic"
        )
        _writer(named, kind, broker).save()
        by_kind[kind] = [_records(broker, topic, 3) for topic in (by_option, odd, even)]
    assert by_kind["barnabas"] == by_kind["kafka"]
    assert [len(records) for records in by_kind["kafka"]] == [2000, 1000, 1000]


@_needs_connector
def test_the_jvm_sink_refuses_and_takes_the_same_columns(
    spark: SparkSession, broker: EmbeddedBroker, new_topic: _NewTopic
) -> None:
    """Ours is held to the same table without Spark; here are a few of them end to end."""
    topic = new_topic()

    def write(kind: str, columns: Columns, has_topic: bool) -> None:
        options = {"topic": topic} if has_topic else {}
        _writer(spark.createDataFrame([], schema(*columns)), kind, broker, **options).save()

    for columns, has_topic, said in WRONG:
        with pytest.raises(AnalysisException) as refused:
            write("kafka", columns, has_topic)
        assert "attribute" in str(refused.value), (columns, said)
    for columns, has_topic in RIGHT:
        write("kafka", columns, has_topic)
    for columns, has_topic, said in WRONG[:1] + WRONG[-1:]:
        with pytest.raises(AnalysisException) as refused:
            write("barnabas", columns, has_topic)
        assert said in str(refused.value)
    write("barnabas", *RIGHT[-1])


def test_modes_and_failures_are_told_in_words(
    spark: SparkSession, broker: EmbeddedBroker, new_topic: _NewTopic
) -> None:
    frame = spark.range(10).selectExpr("cast(id AS string) AS value")
    writer = _writer(frame, "barnabas", broker, topic=new_topic())
    with pytest.raises(AnalysisException, match="A topic cannot be overwritten"):
        writer.mode("overwrite").save()
    for mode in ("error", "ignore"):
        with pytest.raises(AnalysisException) as refused:
            writer.mode(mode).save()
        assert refused.value.getCondition() == "UNSUPPORTED_DATA_SOURCE_SAVE_MODE"
    with pytest.raises(AnalysisException, match="which is for streams"):
        _writer(frame, "barnabas", broker, topic="t", delivery="exactly-once").save()
    with pytest.raises(PySparkException, match=r"topic 'bad name!' could not be written to the brokers at 127"):
        _writer(frame, "barnabas", broker, topic="bad name!").save()
    with pytest.raises(PySparkException, match=r"\[KAFKA_NULL_TOPIC_IN_DATA\]"):
        _writer(frame.selectExpr("value", "cast(null AS string) AS topic"), "barnabas", broker).save()


def test_streams_append_complete_and_update(
    spark: SparkSession, broker: EmbeddedBroker, new_topic: _NewTopic, tmp_path: Path
) -> None:
    source = tmp_path / "in"
    source.mkdir()
    words = spark.readStream.text(str(source))
    counts = words.groupBy("value").count().selectExpr("value AS key", "cast(count AS string) AS value")
    appended, completed, updated = new_topic(), new_topic(), new_topic()
    servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    update = pickle.loads(pickle.dumps(barnabas.spark.topic_writer(servers, topic=updated)))

    def run() -> None:
        for name, frame, topic in (("append", words, appended), ("complete", counts, completed)):
            (
                frame.writeStream.format("barnabas")
                .outputMode(name)
                .options(**servers, topic=topic, checkpointLocation=str(tmp_path / name))
                .trigger(availableNow=True)
                .start()
                .awaitTermination()
            )
        (
            counts.writeStream.outputMode("update")
            .foreachBatch(update)
            .option("checkpointLocation", str(tmp_path / "update"))
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )

    (source / "1.txt").write_text("a\nb\na\n")
    run()
    (source / "2.txt").write_text("b\n")
    run()
    read = {
        topic: [(key, value) for _, key, value, _ in _records(broker, topic, 1)]
        for topic in (appended, completed, updated)
    }
    assert read[appended] == [(None, b"a"), (None, b"b"), (None, b"a"), (None, b"b")]
    assert sorted(read[completed]) == [(b"a", b"2"), (b"a", b"2"), (b"b", b"1"), (b"b", b"2")]
    assert sorted(read[updated]) == [(b"a", b"2"), (b"b", b"1"), (b"b", b"2")]


def test_a_stream_into_a_missing_topic_ends_with_the_reason(
    spark: SparkSession, tmp_path: Path, broker: EmbeddedBroker
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.txt").write_text("a\n")
    query = (
        spark.readStream.text(str(tmp_path / "in"))
        .writeStream.format("barnabas")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("topic", "bad name!")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(PySparkException, match="topic 'bad name!' could not be written"):
        query.awaitTermination()
    assert json.loads((tmp_path / "checkpoint" / "metadata").read_text())
