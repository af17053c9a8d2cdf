"""Values decoded by the source itself, in a running Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas import Consumer, Producer
from barnabas.testing import EmbeddedBroker
from tests.spark.decoding.test_avro_values import field, logical, record, written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "id long NOT NULL, at timestamp, tags array<string>, who struct<name: string NOT NULL>, counts map<string,int>"
AT = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)
GOOD: dict[str, Any] = {"id": 7, "at": AT.isoformat(), "tags": ["a", None], "who": {"name": "n"}, "counts": {"x": 1}}


def _load(spark: SparkSession, broker: EmbeddedBroker, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("barnabas").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    return reader.options(subscribe=topic, **options).load()


def test_values_become_columns_and_bad_ones_go_where_they_should(
    spark: SparkSession, broker: EmbeddedBroker, new_topic: Callable[..., str]
) -> None:
    topic, dead = new_topic(), new_topic()
    values = [json.dumps(GOOD).encode(), b"broken", None, b'{"id": 9}']
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number, value in enumerate(values):
            producer.send(topic, value, key=b"k%d" % number, headers=[("trace", b"1")])
    decoding = {"valueFormat": "json", "valueSchema": SCHEMA}

    frame = _load(spark, broker, topic, badRecords="column", **decoding)
    assert frame.schema["value"].dataType.simpleString() == (
        "struct<id:bigint,at:timestamp,tags:array<string>,who:struct<name:string>,counts:map<string,int>>"
    )
    rows = (
        frame.selectExpr("offset", "value", "unix_micros(value.at) micros", "_bad_record bad").sort("offset").collect()
    )
    first = rows[0]["value"].asDict(recursive=True)
    assert rows[0]["micros"] == int(AT.timestamp() * 1_000_000)
    assert (first["id"], first["tags"], first["who"], first["counts"]) == (7, ["a", None], {"name": "n"}, {"x": 1})
    assert [row["value"] and row["value"]["id"] for row in rows] == [7, None, None, 9]
    assert [row["bad"] and bytes(row["bad"]["value"]) for row in rows] == [None, b"broken", None, None]

    kept = _load(spark, broker, topic, badRecords="topic", deadLetterTopic=dead, **decoding)
    assert [row["offset"] for row in kept.select("offset").sort("offset").collect()] == [0, 2, 3]
    with Consumer(dead, bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        letter = consumer.poll(10)[0]
    assert (letter.key, letter.value) == (f"{topic}-0-1".encode(), b"broken")
    assert dict(letter.headers)["barnabas.error.class"] == b"JSON_SYNTAX"

    with pytest.raises(Exception, match=f"offset 1 of {topic}-0 cannot be decoded as json"):
        _load(spark, broker, topic, **decoding).collect()


def test_a_stream_with_a_limit_leaves_no_letter_behind(
    spark: SparkSession, broker: EmbeddedBroker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic, dead = new_topic(), new_topic()
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(1000):
            producer.send(topic, b"broken" if number in (0, 500) else b'{"id": 1}')
    reader = spark.readStream.format("barnabas").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    # Letters that are not flushed would stay where they are until the worker is gone.
    reader = reader.option("kafka.linger.ms", "600000").option("startingOffsets", "earliest")
    decoding = {"valueFormat": "json", "valueSchema": "id long", "badRecords": "topic", "deadLetterTopic": dead}
    frame = reader.options(subscribe=topic, **decoding).load().limit(3)
    rows = frame.writeStream.format("memory").queryName("limited").trigger(availableNow=True)
    rows.option("checkpointLocation", str(tmp_path)).start().awaitTermination()
    assert spark.table("limited").count() == 3
    with Consumer(dead, bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        assert [letter.key for letter in consumer.poll(10)] == [f"{topic}-0-{row}".encode() for row in (0, 500)]


def test_framed_avro_becomes_columns(
    spark: SparkSession, broker: EmbeddedBroker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    old = record(field("id", "int"), field("at", logical("long", "timestamp-millis")))
    new = record(
        field("id", "long"), field("at", logical("long", "timestamp-micros")), field("name", "string", default="?")
    )
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(topic, written(old, {"id": 1, "at": AT}, 1))
        producer.send(topic, written(new, {"id": 2, "at": AT, "name": "n"}, 2))
    frame = _load(
        spark, broker, topic, valueFormat="avro", valueFraming="registry", valueSchema=json.dumps(new),
        schemas=json.dumps({"1": old, "2": new}),
    )  # fmt: skip
    rows = frame.selectExpr("value.id", "unix_micros(value.at) at", "value.name").sort("id").collect()
    micros = int(AT.timestamp() * 1_000_000)
    assert [tuple(row) for row in rows] == [(1, micros - 456, "?"), (2, micros, "n")]
