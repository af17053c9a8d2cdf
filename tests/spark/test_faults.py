"""What people meet when something goes wrong around a query: no row is lost or doubled, and one sentence says why."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from barnabas import Admin, AlterConfig, ConfigResource, ConfigResourceType, NewPartitions, Producer, TopicPartition
from barnabas.testing import EmbeddedBroker
from tests.spark.rig.queries import drain, values

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

NewTopic = Callable[..., str]
JSON = {"valueFormat": "json", "valueSchema": "id long"}


def send(broker: EmbeddedBroker, topic: str, texts: Iterable[object], partition: int | None = None) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for text in texts:
            producer.send(topic, str(text).encode(), partition=partition)


def batch(spark: SparkSession, broker: EmbeddedBroker, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("barnabas").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    return reader.options(subscribe=topic, **options).load()


def stream(spark: SparkSession, broker: EmbeddedBroker, topic: str, **options: str) -> DataFrame:
    reader = spark.readStream.format("barnabas").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    return reader.options(subscribe=topic, startingOffsets="earliest", **options).load()


def write(frame: DataFrame, broker: EmbeddedBroker, topic: str, **options: str) -> None:
    writer = frame.write.format("barnabas").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    writer.options(topic=topic, **options).mode("append").save()


def texts(frame: DataFrame) -> list[str]:
    return sorted(bytes(row["value"]).decode() for row in frame.select("value").collect())


def test_reading_a_topic_that_is_missing_does_not_create_it(spark: SparkSession, broker: EmbeddedBroker) -> None:
    with pytest.raises(PySparkException, match=r"There is no topic 'never-made' at the brokers .* Create it, or"):
        batch(spark, broker, "never-made").count()
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert "never-made" not in admin.list_topics()


def test_records_that_expired_between_two_runs_of_a_stream(
    spark: SparkSession, broker: EmbeddedBroker, new_topic: NewTopic, tmp_path: Path
) -> None:
    """The strict query fails and skips nothing; told to go on, it takes what is left."""
    topic, checkpoint, table = new_topic(), tmp_path / "checkpoint", tmp_path / "table"
    send(broker, topic, range(3))
    drain(stream(spark, broker, topic), checkpoint, table)
    send(broker, topic, range(3, 9))
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_records({TopicPartition(topic, 0): 6})
        admin.create_partitions({topic: NewPartitions(2)})
    send(broker, topic, ["new"], partition=1)
    with pytest.raises(PySparkException, match=rf"The offsets 3 to 5 of {topic}-0 cannot be read: .* begins at offs"):
        drain(stream(spark, broker, topic), checkpoint, table)
    assert values(spark, table) == ["0", "1", "2"]
    drain(stream(spark, broker, topic, failOnDataLoss="false"), checkpoint, table)
    assert values(spark, table) == ["0", "1", "2", "6", "7", "8", "new"]


def test_a_topic_that_was_created_again_is_a_loss_also_for_the_next_run_of_a_query(
    spark: SparkSession, broker: EmbeddedBroker, new_topic: NewTopic, tmp_path: Path
) -> None:
    """A strict query that fails over it has planned its batch. Run again, it must not go on in the middle of the new
    topic, which has records at the offsets where the old one was left."""
    topic, seen = new_topic(), list[str]()
    send(broker, topic, range(3))

    def take(rows: DataFrame, number: int) -> None:
        seen.extend(texts(rows))
        if number == 0:
            # Here, so that the query does not look while there is no topic.
            with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
                admin.delete_topics([topic])
            broker.create_topic(topic)
            send(broker, topic, (f"new {number}" for number in range(5)))

    def run(fail_on_data_loss: str, *, is_last: bool) -> None:
        frame = stream(spark, broker, topic, failOnDataLoss=fail_on_data_loss)
        writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path))
        query = (writer.trigger(availableNow=True) if is_last else writer).start()
        try:
            assert query.awaitTermination(60)
        finally:
            query.stop()

    for is_last in (False, True):
        with pytest.raises(PySparkException, match=rf"KAFKA_DATA_LOSS.*'{topic}' was deleted and created again"):
            run("true", is_last=is_last)
    assert seen == ["0", "1", "2"]
    run("false", is_last=True)
    assert seen == ["0", "1", "2", *(f"new {number}" for number in range(5))]


def test_a_broker_that_restarts_under_a_read_and_a_write(spark: SparkSession, tmp_path: Path) -> None:
    """Every row arrives once: the producer of a task is idempotent across the restart."""
    rows = 10_000
    restarted = tmp_path / "restarted"
    numbers = spark.range(0, rows, 1, 2).selectExpr("cast(id as string) value")
    with EmbeddedBroker() as broker:
        for topic in ("numbers", "copies"):
            broker.create_topic(topic, 2)
        write(numbers, broker, "numbers")
        copied = batch(spark, broker, "numbers", maxRecordsPerPartition="2500").select("value")
        waiting = copied.mapInArrow(_waiting_for(restarted), "value binary")
        with _Restarting(broker, restarted):
            write(waiting, broker, "copies")
        counts = Counter(texts(batch(spark, broker, "copies")))
    assert len(counts) == rows
    assert set(counts.values()) == {1}


class _Restarting:
    """Restarts a broker once a task has begun, beside what the block does, and lets the task go on after that."""

    def __init__(self, broker: EmbeddedBroker, done: Path) -> None:
        self._broker, self._done = broker, done
        self._begun = Path(f"{done}-begun")
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._begun.exists():
            time.sleep(0.02)
        self._broker.restart()
        self._done.touch()

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._thread.join(30)


def _waiting_for(done: Path) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    begun, end = f"{done}-begun", str(done)

    def pass_on(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in batches:
            # In halves, so that rows are on their way to the sink before the broker goes.
            yield rows.slice(0, rows.num_rows // 2)
            with open(begun, "w"):
                pass
            while not os.path.exists(end):
                time.sleep(0.02)
            yield rows.slice(rows.num_rows // 2)

    return pass_on


def test_poison_goes_to_the_column_of_bad_records_and_nothing_else_suffers(
    spark: SparkSession, broker: EmbeddedBroker, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(max_message_bytes=8_000_000)
    poison = [
        b"{bad",
        b"\xff\xfe",
        b"",
        b'{"id":"x"}',
        b'{"id":99999999999999999999}',
        b"[" * 100_000,
        b"x" * 5_000_000,
    ]
    with Producer(bootstrap_servers=broker.bootstrap_servers, max_request_size=8_000_000) as producer:
        for number, value in enumerate(poison):
            producer.send(topic, value)
            producer.send(topic, b'{"id":%d}' % number)
    frame = stream(spark, broker, topic, badRecords="column", **JSON)
    drain(frame, tmp_path / "checkpoint", tmp_path / "table")
    found = spark.read.parquet(str(tmp_path / "table")).sort("offset")
    rows = found.selectExpr("value.id", "_bad_record.value bad", "_bad_record.error error").collect()
    assert [row["id"] for row in rows[1::2]] == list(range(len(poison)))
    assert [bytes(row["bad"]) for row in rows[::2]] == poison
    assert all(row["error"] for row in rows[::2])


def test_a_dead_letter_topic_that_takes_nothing_fails_the_query_until_it_does(
    spark: SparkSession, broker: EmbeddedBroker, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic, dead = new_topic(), new_topic(max_message_bytes=1000)
    noise = os.urandom(20_000)  # which no compression makes fit
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(topic, noise)
        producer.send(topic, b'{"id":1}')
    frame = stream(spark, broker, topic, badRecords="topic", deadLetterTopic=dead, **JSON).selectExpr(
        "cast(cast(value.id as string) as binary) value"
    )
    with pytest.raises(PySparkException, match=rf"dead-letter topic '{dead}': .*1000"):
        drain(frame, tmp_path / "checkpoint", tmp_path / "table")
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.alter_configs(
            {ConfigResource(ConfigResourceType.TOPIC, dead): [AlterConfig("max.message.bytes", 1_000_000)]}
        )
    drain(frame, tmp_path / "checkpoint", tmp_path / "table")
    assert values(spark, tmp_path / "table") == ["1"]
    assert [bytes(row["value"]) for row in batch(spark, broker, dead).select("value").collect()] == [noise]


def test_records_that_are_too_large_are_refused_by_us_and_by_the_broker(
    spark: SparkSession, broker: EmbeddedBroker, new_topic: NewTopic
) -> None:
    topic = new_topic(max_message_bytes=1000)
    with pytest.raises(
        PySparkException, match=rf"topic '{topic}' could not be written .* max.request.size allows 1048"
    ):
        write(spark.range(1).selectExpr("repeat('x', 2000000) value"), broker, topic)
    with pytest.raises(
        PySparkException, match=rf"{topic}-0: a batch of \d+ bytes exceeds the topic's max.message.bytes"
    ):
        write(spark.range(1).selectExpr("repeat('x', 20000) value"), broker, topic)
    assert batch(spark, broker, topic).count() == 0
