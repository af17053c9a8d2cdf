"""A DataFrame that is used again after its topic has changed shows what the JVM connector's shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas import Admin, Producer, TopicPartition
from barnabas.testing import EmbeddedBroker
from tests.spark.rig import queries
from tests.spark.rig.queries import JVM, OURS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def send(broker: EmbeddedBroker, topic: str, *values: str, partition: int = 0) -> None:
    """Records whose key is the first letter of the value."""
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for value in values:
            producer.send(topic, value.encode(), key=value[:1].encode(), partition=partition)


@pytest.mark.parametrize("source", [pytest.param(JVM, marks=pytest.mark.slow), OURS])
def test_a_table_that_a_stream_is_joined_with_grows(
    source: str, spark: SparkSession, broker: EmbeddedBroker, new_topic: Any
) -> None:
    users, clicks = new_topic(), new_topic()
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "startingOffsets": "earliest"}
    names = spark.read.format(source).options(subscribe=users, **options).load()
    stream = queries.stream(spark, source, {"subscribe": clicks, **options})
    joined = stream.selectExpr("key", "string(value) as click").join(
        names.selectExpr("key", "string(value) as name"), "key", "left"
    )
    table = f"joined_{source}"
    query = joined.writeStream.format("memory").queryName(table).start()
    try:
        for user, click in (("Anna", "A1"), ("Bert", "B2")):
            send(broker, users, user)
            send(broker, clicks, click)
            query.processAllAvailable()
    finally:
        query.stop()
    rows = spark.table(table).orderBy("click").select("click", "name").collect()
    assert [tuple(row) for row in rows] == [("A1", "Anna"), ("B2", "Bert")]


SPLIT_AND_HALF_OPEN = {"minPartitions": "4", "endingOffsets": '{{"{topic}":{{"0":-1,"1":8}}}}'}


@pytest.mark.parametrize("limits", [{}, pytest.param(SPLIT_AND_HALF_OPEN, marks=pytest.mark.slow)])
def test_a_view_shows_what_is_there_now(
    limits: dict[str, str], spark: SparkSession, broker: EmbeddedBroker, new_topic: Any
) -> None:
    topic = new_topic(partitions=2)
    for partition in (0, 1):
        send(broker, topic, *["old"] * 10, partition=partition)
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}
    options |= {name: text.format(topic=topic) for name, text in limits.items()}
    for source in (JVM, OURS):
        spark.read.format(source).options(**options).load().createOrReplaceTempView(f"seen_by_{source}")

    def seen(source: str) -> list[tuple[int, int]]:
        rows = spark.table(f"seen_by_{source}").select("partition", "offset").collect()
        return sorted((row["partition"], row["offset"]) for row in rows)

    assert seen(OURS) == seen(JVM)
    for partition in (0, 1):
        send(broker, topic, *["new"] * 10, partition=partition)
    assert seen(OURS) == (now := seen(JVM))
    assert (0, 19) in now
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_records({TopicPartition(topic, 0): 3})
    assert seen(OURS) == (now := seen(JVM))
    assert now[0] == (0, 3)
