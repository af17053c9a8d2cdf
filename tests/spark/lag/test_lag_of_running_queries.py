"""The lag of queries that Spark runs: by listener, by query, by checkpoint; and the numbers of the JVM connector."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

import pytest

import barnabas.spark
from barnabas.spark.lag import QueryLag, lag, summary
from barnabas.testing import EmbeddedBroker
from tests.spark.rig import contents, sessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KINDS = [
    "barnabas",
    pytest.param(
        "kafka",
        marks=pytest.mark.skipif(sessions.connector_missing() is not None, reason="needs Spark's Kafka connector"),
    ),
]


@pytest.mark.parametrize("kind", _KINDS)
def test_a_query_that_is_behind(
    kind: str, spark: SparkSession, broker: EmbeddedBroker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(2, retention_ms=-1)
    contents.fill(broker.bootstrap_servers, topic, [60, 20])
    told: SimpleQueue[QueryLag] = SimpleQueue()
    listener = barnabas.spark.watch_lag(spark, told.put, bootstrap_servers=broker.bootstrap_servers)
    query = (
        spark.readStream.format(kind)
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "40")
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path))
        # One batch now, the next long after this test.
        .trigger(processingTime="1 hour")
        .start()
    )
    try:
        first = told.get(timeout=180)
        assert (first.query_id, first.batch_id) == (str(query.id), 0)
        assert [(each.topic, each.partition, each.position, each.end) for each in first.partitions] == [
            (topic, 0, 30, 60),
            (topic, 1, 10, 20),
        ]
        assert all(each.seconds is not None and each.seconds > 0 for each in first.partitions)
        # What the progress knows by itself.
        progress = query.lastProgress
        assert progress is not None
        known = summary(lag(query))
        assert known is not None
        assert (known.min_offsets_behind, known.max_offsets_behind, known.avg_offsets_behind) == (10, 30, 20.0)
        if kind == "kafka":
            metrics = progress["sources"][0]["metrics"]
            assert known.metrics() == {name: metrics[name] for name in known.metrics()}
        assert lag(progress.json) == lag(query)
        contents.fill(broker.bootstrap_servers, topic, [5, 0], first=60)
        assert [each.records for each in lag(query, bootstrap_servers=broker.bootstrap_servers)] == [35, 10]
    finally:
        query.stop()
        spark.streams.removeListener(listener)
        listener.close()
    stopped = lag(tmp_path, bootstrap_servers=broker.bootstrap_servers)
    assert [(each.position, each.records) for each in stopped] == [(30, 35), (10, 10)]
