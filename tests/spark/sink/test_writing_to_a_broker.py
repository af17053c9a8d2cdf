"""A task of the sink against a broker: all rows are acknowledged, or one error says what happened."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping

import pyarrow as pa
import pytest

from barnabas import Admin, Consumer, ConsumerRecord, Producer, TopicPartition
from barnabas.base.error_codes import ErrorCode
from barnabas.spark.core.errors import SparkConnectorError
from barnabas.spark.pool import ClientPool
from barnabas.spark.sink.columns import SinkColumns
from barnabas.spark.sink.messages import PartitionRows, RowsWritten
from barnabas.spark.sink.writing import WriteError, WritePlan, write_rows
from barnabas.testing import EmbeddedBroker
from barnabas.wire import ApiKey

_VALUE = SinkColumns(value=0)


@pytest.fixture
def pool() -> Iterator[ClientPool[Producer]]:
    pool = ClientPool(Producer)
    yield pool
    pool.close()


@pytest.fixture
def own_broker() -> Iterator[EmbeddedBroker]:
    """One that a test may harm."""
    with EmbeddedBroker(auto_create_topics_enable=False) as running:
        running.create_topic("t", 2)
        yield running


def _plan(broker: EmbeddedBroker, topic: str | None, columns: SinkColumns = _VALUE, **settings: str) -> WritePlan:
    client = {name.replace("_", "."): value for name, value in settings.items()}
    return WritePlan(columns, {"bootstrap.servers": broker.bootstrap_servers, **client}, topic)


def _values(first: int, count: int, size: int = 0) -> pa.RecordBatch:
    return pa.record_batch({"value": [b"%d" % number + b"." * size for number in range(first, first + count)]})


def _read(broker: EmbeddedBroker, topic: str, partitions: int = 1) -> list[list[bytes | None]]:
    """The values in each partition."""
    places = [TopicPartition(topic, number) for number in range(partitions)]
    with Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        found: list[list[bytes | None]] = [[] for _ in places]
        while any(consumer.position(place) < ends[place] for place in places):
            for record in consumer.poll(10):
                found[record.partition].append(record.value)
        return found


def test_all_rows_are_there_when_it_returns_and_the_message_says_where(
    broker: EmbeddedBroker, new_topic: Callable[..., str], pool: ClientPool[Producer]
) -> None:
    topic = new_topic()
    batches = [_values(0, 1000), _values(1000, 0), _values(1000, 1500)]
    written = write_rows(_plan(broker, topic), batches, pool)
    assert written == RowsWritten((PartitionRows(topic, 0, 0, 2499, 2500),))
    assert str(written) == f"2,500 rows ({topic}-0: 2,500 rows at offsets 0 to 2499)"
    assert _read(broker, topic) == [[b"%d" % number for number in range(2500)]]


def test_no_rows_need_no_producer() -> None:
    def refuse(settings: Mapping[str, str]) -> None:
        raise AssertionError("nothing is to be written")

    nothing = pa.record_batch({"value": pa.array([], pa.string())})
    written = write_rows(WritePlan(_VALUE, {}, "t"), [nothing], ClientPool(refuse))  # type: ignore[arg-type]
    assert (written.row_count, str(written)) == (0, "no rows")


def test_rows_find_topic_partition_headers_and_time(
    broker: EmbeddedBroker, new_topic: Callable[..., str], pool: ClientPool[Producer]
) -> None:
    one, other = new_topic(3), new_topic(3)
    item = pa.struct([("key", pa.string()), ("value", pa.binary())])
    batch = pa.record_batch(
        {
            "key": pa.array([b"a", None, b"a", b"c"]),
            "value": pa.array(["1", "2", None, "4"]),
            "topic": pa.array([one, other, one, other]),
            "partition": pa.array([None, 2, 0, None], pa.int32()),
            "headers": pa.array([[("h", b"1")], None, [("h", None), ("h", b"")], []], pa.list_(item)),
            "timestamp": pa.array([1_000_000, 2_000_000, 3_000_999, 4_000_000], pa.timestamp("us", tz="UTC")),
        }
    )
    columns = SinkColumns(value=1, key=0, headers=4, partition=3, timestamp=5, topic=2)
    written = write_rows(_plan(broker, None, columns), [batch], pool)
    assert written.row_count == 4
    with Consumer(one, other, bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        records: dict[int, ConsumerRecord] = {}
        while len(records) < 4:
            for record in consumer.poll(10):
                records[record.timestamp_ms] = record
    assert [(records[ms].topic, records[ms].value, records[ms].headers) for ms in (1000, 2000, 3000, 4000)] == [
        (one, b"1", (("h", b"1"),)),
        (other, b"2", ()),
        (one, None, (("h", None), ("h", b""))),
        (other, b"4", ()),
    ]
    assert (records[2000].partition, records[3000].partition) == (2, 0)


def test_rows_for_many_topics_keep_their_order_though_batches_are_gathered(
    broker: EmbeddedBroker, pool: ClientPool[Producer]
) -> None:
    topics = [f"one-of-many-{number}" for number in range(40)]
    names = pa.array([topics[number % 40] for number in range(2000)])
    batches = [
        pa.record_batch({"value": _values(first, 2000).column(0), "topic": names}) for first in range(0, 30_000, 2000)
    ]
    written = write_rows(_plan(broker, None, SinkColumns(value=0, topic=1)), batches, pool)
    assert (written.row_count, len(written.partitions)) == (30_000, 40)
    assert str(written).endswith("and 28 more partitions)")
    assert _read(broker, topics[7]) == [[b"%d" % number for number in range(7, 30_000, 40)]]


def test_a_null_topic_fails_the_task(
    broker: EmbeddedBroker, new_topic: Callable[..., str], pool: ClientPool[Producer]
) -> None:
    batch = pa.record_batch({"value": ["1", "2"], "topic": [new_topic(), None]})
    with pytest.raises(SparkConnectorError, match=r"\[KAFKA_NULL_TOPIC_IN_DATA\]"):
        write_rows(_plan(broker, None, SinkColumns(value=0, topic=1)), [batch], pool)
    assert pool.idle_count == 0


def test_a_producer_is_used_again_by_the_next_task(
    broker: EmbeddedBroker, new_topic: Callable[..., str], pool: ClientPool[Producer]
) -> None:
    topic = new_topic()
    for task in range(3):
        write_rows(_plan(broker, topic), [_values(task, 1)], pool)
        assert pool.idle_count == 1
    assert _read(broker, topic) == [[b"0", b"1", b"2"]]


def test_a_batch_that_is_too_large_for_the_topic_is_split(
    broker: EmbeddedBroker, new_topic: Callable[..., str], pool: ClientPool[Producer]
) -> None:
    topic = new_topic(max_message_bytes=20_000)
    assert write_rows(_plan(broker, topic), [_values(0, 1000, 100)], pool).row_count == 1000


def _failure(plan: WritePlan, batches: Iterable[pa.RecordBatch], pool: ClientPool[Producer]) -> str:
    with pytest.raises(WriteError) as failed:
        write_rows(plan, batches, pool)
    assert pool.idle_count == 0, "a producer that failed is not used again"
    return str(failed.value)


def test_a_topic_that_does_not_exist(own_broker: EmbeddedBroker, pool: ClientPool[Producer]) -> None:
    said = _failure(_plan(own_broker, "nowhere", max_block_ms="300"), [_values(0, 10)], pool)
    servers = own_broker.bootstrap_servers
    assert said.startswith(f"rows for topic 'nowhere' could not be written to the brokers at {servers}: ")
    assert "UNKNOWN_TOPIC_OR_PARTITION" in said
    assert said.endswith("No row of this task had been acknowledged.")


def test_a_row_that_is_too_large(own_broker: EmbeddedBroker, pool: ClientPool[Producer]) -> None:
    assert "max.request.size allows 1048576" in _failure(_plan(own_broker, "t"), [_values(0, 1, 2_000_000)], pool)
    own_broker.create_topic("small", 1, None, max_message_bytes=20_000)
    said = _failure(_plan(own_broker, "small", linger_ms="0"), [_values(0, 10), _values(0, 1, 30_000)], pool)
    assert "MESSAGE_TOO_LARGE" in said
    assert "small-0: a batch of" in said
    assert "This task has written 10 rows (small-0: 10 rows at offsets 0 to 9); if Spark runs it again" in said


def test_a_partition_that_does_not_exist(own_broker: EmbeddedBroker, pool: ClientPool[Producer]) -> None:
    batch = pa.record_batch({"value": ["1", "2"], "partition": pa.array([0, 2], pa.int32())})
    said = _failure(_plan(own_broker, "t", SinkColumns(value=0, partition=1)), [batch], pool)
    assert "topic 't': row 1 names partition 2, and the topic has partitions 0 to 1" in said


def test_a_partition_that_was_just_added(own_broker: EmbeddedBroker, pool: ClientPool[Producer]) -> None:
    """The producer is one that has known the topic for a while."""
    plan = _plan(own_broker, "t", SinkColumns(value=0, partition=1))
    write_rows(plan, [pa.record_batch({"value": ["1"], "partition": pa.array([1], pa.int32())})], pool)
    with Admin(bootstrap_servers=own_broker.bootstrap_servers) as admin:
        admin.create_partitions({"t": 4})
    write_rows(plan, [pa.record_batch({"value": ["2"], "partition": pa.array([3], pa.int32())})], pool)
    assert _read(own_broker, "t", 4) == [[], [b"1"], [], [b"2"]]


def test_a_topic_without_a_name(own_broker: EmbeddedBroker, pool: ClientPool[Producer]) -> None:
    batch = pa.record_batch({"value": ["1", "2"], "topic": ["t", ""]})
    said = _failure(_plan(own_broker, None, SinkColumns(value=0, topic=1)), [batch], pool)
    assert "rows for topic '' could not be written" in said
    assert "a topic must have a name" in said


def test_a_disk_that_fails_for_a_while_costs_time_only(own_broker: EmbeddedBroker, pool: ClientPool[Producer]) -> None:
    own_broker.faults.fail_next(ApiKey.PRODUCE, error=ErrorCode.KAFKA_STORAGE_ERROR, times=3)
    assert write_rows(_plan(own_broker, "t"), [_values(0, 100)], pool).row_count == 100
    assert sum(map(len, _read(own_broker, "t", 2))) == 100


def test_a_disk_that_stays_full_fails_the_task_with_the_reason(
    own_broker: EmbeddedBroker, pool: ClientPool[Producer]
) -> None:
    own_broker.faults.fail_next(ApiKey.PRODUCE, error=ErrorCode.KAFKA_STORAGE_ERROR, times=10_000)
    plan = _plan(own_broker, "t", delivery_timeout_ms="600", request_timeout_ms="300")
    said = _failure(plan, [_values(0, 100)], pool)
    assert "delivery.timeout.ms is 600" in said
    assert "KAFKA_STORAGE_ERROR" in said


def test_a_broker_that_restarts_in_the_middle_loses_and_repeats_nothing(
    own_broker: EmbeddedBroker, pool: ClientPool[Producer]
) -> None:
    restart = threading.Thread(target=own_broker.restart)

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(60):
            if number == 20:
                restart.start()
            if number == 40:
                restart.join()
            yield _values(number * 100, 100)

    written = write_rows(_plan(own_broker, "t", linger_ms="0", batch_size="2000"), batches(), pool)
    assert written.row_count == 6000
    found = _read(own_broker, "t", 2)
    assert sorted(int(value or b"") for values in found for value in values) == list(range(6000))
    assert all(values == sorted(values, key=lambda value: int(value or b"")) for values in found)


def test_a_broker_that_is_gone_for_good_is_one_error_that_names_it(
    own_broker: EmbeddedBroker, pool: ClientPool[Producer]
) -> None:
    servers = own_broker.bootstrap_servers

    def batches() -> Iterator[pa.RecordBatch]:
        yield _values(0, 100)
        own_broker.stop()
        yield _values(100, 100)

    plan = _plan(own_broker, "t", delivery_timeout_ms="600", request_timeout_ms="300", max_block_ms="300")
    assert f"to the brokers at {servers}: " in _failure(plan, batches(), pool)
    own_broker.start()
    own_broker.stop()
    assert "none of the bootstrap servers answered" in _failure(plan, [_values(0, 1)], pool)
    own_broker.start()


def test_an_error_of_the_rows_themselves_drops_what_has_not_left(
    own_broker: EmbeddedBroker, pool: ClientPool[Producer]
) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield _values(0, 10)
        raise RuntimeError("a UDF failed")

    with pytest.raises(RuntimeError, match="a UDF failed"):
        write_rows(_plan(own_broker, "t", linger_ms="600000", delivery_timeout_ms="900000"), batches(), pool)
    assert pool.idle_count == 0
    assert _read(own_broker, "t", 2) == [[], []]
