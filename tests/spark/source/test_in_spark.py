"""The source as Spark uses it: batch, stream, SQL, filters, and what people see when something is wrong."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from barnabas import Admin, Producer, TopicPartition
from barnabas.spark.schema import source_schema
from barnabas.testing import EmbeddedBroker
from tests.spark.source.support import NewTopic, send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Load = Callable[..., "DataFrame"]


@pytest.fixture
def load(spark: SparkSession, broker: EmbeddedBroker) -> Load:
    """A DataFrame of the source by its options."""

    def read(**options: object) -> DataFrame:
        reader = spark.read.format("barnabas").option("kafka.bootstrap.servers", broker.bootstrap_servers)
        return reader.options(**{name: str(value) for name, value in options.items()}).load()

    return read


def rows_read(frame: DataFrame) -> int:
    """How many rows the source handed to Spark for a DataFrame that was collected."""
    leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
    return sum(leaves.apply(at).metrics().apply("numOutputRows").value() for at in range(leaves.size()))


def test_filters_on_partition_and_time_leave_records_unread(
    load: Load, broker: EmbeddedBroker, new_topic: NewTopic
) -> None:
    topic, now_ms = new_topic(partitions=2), int(time.time() * 1000)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for second in range(50):
            for partition in (0, 1):
                producer.send(topic, b"", partition=partition, timestamp_ms=now_ms - 1000 * (50 - second))
    late = f"partition = 1 and timestamp >= timestamp_millis({now_ms - 10_000})"
    plain, narrow = load(subscribe=topic).where(late), load(subscribe=topic, pushFilters=True).where(late)
    assert sorted(row.offset for row in plain.collect()) == list(range(40, 50))
    assert sorted(row.offset for row in narrow.collect()) == list(range(40, 50))
    assert (rows_read(plain), rows_read(narrow)) == (100, 10)


def test_spark_still_mixes_up_the_filters_of_one_dataframe(
    load: Load, broker: EmbeddedBroker, new_topic: NewTopic
) -> None:
    """Why filters are pushed down only on request. When this fails, Spark has mended it, and they can be always."""
    topic = new_topic(partitions=2)
    for partition in (0, 1):
        send(broker, topic, 5, partition=partition)
    safe, hasty = load(subscribe=topic), load(subscribe=topic, pushFilters=True)
    assert (safe.where("partition = 0").count(), safe.count()) == (5, 10)
    assert (hasty.where("partition = 0").count(), hasty.count()) == (5, 5)


def test_wrong_options_and_topics_are_told_in_words(load: Load, new_topic: NewTopic) -> None:
    topic = new_topic()
    with pytest.raises(PySparkException, match="exactly one of subscribe, subscribePattern, assign"):
        load(subscribe=topic, assign="{}")
    with pytest.raises(PySparkException, match="There is no topic 'nowhere' at the brokers 127"):
        load(subscribe="nowhere").collect()
    for mistyped in ({"subscribe": topic, "startingOfsets": "earliest"}, {"subscibe": topic}):
        with pytest.raises(PySparkException, match=r"There is no option \w+; did you mean \w+\?") as refused:
            load(**mistyped)
        assert "Traceback" not in str(refused.value).partition("There is no option")[0]
    assert load(subscribe=topic, startingOfsets="earliest", strictOptions=False).count() == 0
    with pytest.raises(PySparkException, match=r"takes no schema of the user's\. .* given was struct<a:int>"):
        load(subscribe=topic).sparkSession.read.format("barnabas").schema("a int").option("subscribe", topic).option(
            "kafka.bootstrap.servers", "127.0.0.1:1"
        ).load().collect()


def test_a_view_in_sql_and_an_empty_topic(
    load: Load, spark: SparkSession, broker: EmbeddedBroker, new_topic: NewTopic
) -> None:
    topic = new_topic()
    assert load(subscribe=topic, includeHeaders=True).schema == source_schema(include_headers=True)
    assert load(subscribe=topic).collect() == []
    spark.sql(
        f"create or replace temporary view clicks using barnabas options "
        f"('kafka.bootstrap.servers' '{broker.bootstrap_servers}', subscribe '{topic}')"
    )
    send(broker, topic, 3)
    assert spark.sql("select count(*), max(offset) from clicks").collect() == [(3, 2)]


def test_a_stream_reads_on_shows_its_progress_and_tells_of_a_topic_that_went(
    spark: SparkSession, broker: EmbeddedBroker, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(partitions=2)
    group = f"group-of-{topic}"
    send(broker, topic, 7, partition=1)

    def run(*, now: bool) -> int:
        stream = (
            spark.readStream.format("barnabas")
            .option("kafka.bootstrap.servers", broker.bootstrap_servers)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", 4)
            .option("mirrorToGroup", group)
            .load()
        )
        writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
        query = writer.trigger(availableNow=True).start() if now else writer.start()
        if now:
            query.awaitTermination()
        else:
            send(broker, topic, 1)
            query.processAllAvailable()
        rows = sum(progress.numInputRows for progress in query.recentProgress)
        if not now:
            admin.delete_topics([topic])
            with pytest.raises(PySparkException, match=rf"KAFKA_DATA_LOSS.PARTITIONS_DELETED\].* {topic}-0: 2, "):
                query.awaitTermination(60)
        query.stop()
        return rows

    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert run(now=True) == 7
        assert admin.list_group_offsets(group)[TopicPartition(topic, 1)].offset == 7
        send(broker, topic, 1)
        assert run(now=False) == 2
