"""The same comparisons with Apache Kafka as the broker, and those that need its transactions."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas import Admin, Consumer, NewTopic, Producer, TopicPartition
from tests.spark.jvm.cases import READS, Topics
from tests.spark.rig import checkpoints, queries
from tests.spark.rig.contents import number
from tests.spark.rig.queries import JVM, OURS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def topics(apache_kafka: str) -> Topics:
    return Topics(apache_kafka, "rows")


@pytest.mark.parametrize(
    "case", ["two topics, untidy", "headers", "the broker's timestamps", "times of partitions", "small tasks, and many"]
)
@pytest.mark.slow
def test_a_batch_read(case: str, spark: SparkSession, topics: Topics) -> None:
    options = topics.options(READS[case])
    theirs, ours = queries.read(spark, JVM, options), queries.read(spark, OURS, options)
    assert ours == theirs


def test_transactions(spark: SparkSession, apache_kafka: str, tmp_path: Path) -> None:
    """Aborted records, markers, and the records of a transaction that is still open."""
    topic = "transactions"
    with Admin(bootstrap_servers=apache_kafka) as admin:
        admin.create_topics([NewTopic(topic, num_partitions=2)])
    open_one = _transactions(apache_kafka, topic)
    options = {"kafka.bootstrap.servers": apache_kafka, "subscribe": topic, "startingOffsets": "earliest"}
    found = {}
    for level in ("read_committed", "read_uncommitted"):
        with_level = options | {"kafka.isolation.level": level, "maxRecordsPerPartition": "9"}
        theirs, ours = queries.read(spark, JVM, with_level), queries.read(spark, OURS, with_level)
        assert ours.rows == theirs.rows
        found[level] = {str(row[1]) for row in ours.rows}
        streamed = options | {"kafka.isolation.level": level, "maxOffsetsPerTrigger": "30"}
        for source in (JVM, OURS):
            queries.drain(queries.stream(spark, source, streamed), tmp_path / level / source)
        assert checkpoints.offsets(tmp_path / level / OURS) == checkpoints.offsets(tmp_path / level / JVM)
    assert found["read_uncommitted"] - found["read_committed"] == {"b'aborted'", "b'open'"}
    open_one.abort_transaction(30)


def _transactions(bootstrap: str, topic: str) -> Any:
    """Two rounds of a committed, an aborted and no transaction; then an open one, returned, and records behind it."""
    import confluent_kafka

    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": "t1"})
    still_open = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": "t2"})
    plain = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for each in (producer, still_open):
        each.init_transactions(30)
    for _ in range(2):
        for what, finish in (("committed", producer.commit_transaction), ("aborted", producer.abort_transaction)):
            producer.begin_transaction()
            _write(producer, topic, what, 12)
            finish(30)
        _write(plain, topic, "plain", 4)
    still_open.begin_transaction()
    _write(still_open, topic, "open", 6)
    _write(plain, topic, "plain", 4)
    return still_open


def _write(producer: Any, topic: str, value: str, count: int) -> None:
    for at in range(count):
        producer.produce(topic, value.encode(), key=str(at).encode(), partition=at % 2)
    assert producer.flush(30) == 0


def test_a_compacted_topic(spark: SparkSession, apache_kafka: str) -> None:
    """Most offsets of the first segment have no record any more, the last of it among them."""
    topic, at = "compacted", TopicPartition("compacted", 0)
    with Admin(bootstrap_servers=apache_kafka) as admin:
        settings = {"cleanup.policy": "compact", "segment.ms": 100, "min.cleanable.dirty.ratio": 0.01}
        admin.create_topics([NewTopic(topic, configs=settings)])
        _write_until_compacted(apache_kafka, at)
    options = {"kafka.bootstrap.servers": apache_kafka, "subscribe": topic, "includeHeaders": "true"}
    for more in (
        {},
        {"maxRecordsPerPartition": "13"},
        {"startingOffsets": '{"compacted":{"0":20}}', "endingOffsets": '{"compacted":{"0":30}}'},
    ):
        theirs, ours = queries.read(spark, JVM, options | more), queries.read(spark, OURS, options | more)
        assert ours == theirs


def _write_until_compacted(bootstrap: str, at: TopicPartition) -> None:
    """Updates of few keys, then one record after another, each of which closes a segment, until most are gone.

    Nothing is left then that could be compacted while readers are compared.
    """
    deadline = time.monotonic() + 60
    with (
        Producer(bootstrap_servers=bootstrap, linger_ms=0) as producer,
        Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer,
    ):
        for each in range(100):
            producer.send(at.topic, b"%d" % each, key=b"%d" % (each % 3)).result(10)
        consumer.assign([at])
        for each in itertools.takewhile(lambda _: time.monotonic() < deadline, itertools.count()):
            time.sleep(0.2)
            producer.send(at.topic, b"last", key=b"last-%d" % each).result(10)
            consumer.seek_to_beginning()
            if consumer.poll(10)[0].offset == 97:
                return
    pytest.fail("Kafka did not compact the topic within a minute")


@pytest.mark.slow
def test_a_stream_and_its_resumption(spark: SparkSession, apache_kafka: str, tmp_path: Path) -> None:
    topic, table = "stream", tmp_path / "table"
    with Admin(bootstrap_servers=apache_kafka) as admin:
        admin.create_topics([NewTopic(topic, num_partitions=2)])
    options = {"kafka.bootstrap.servers": apache_kafka, "subscribe": topic, "startingOffsets": "earliest"}
    for turn, source in enumerate((JVM, OURS, JVM)):
        number(apache_kafka, topic, range(turn * 20, turn * 20 + 20), 2)
        queries.drain(queries.stream(spark, source, options), tmp_path / "checkpoint", table)
        assert queries.values(spark, table) == sorted(map(str, range(turn * 20 + 20)))
