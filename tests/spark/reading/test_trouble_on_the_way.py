"""What becomes of a range when records, topics or brokers go away while it is read."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pyarrow as pa
import pytest

from barnabas import Admin, Producer, TopicPartition
from barnabas.client.consumer.sync_consumer import Consumer
from barnabas.client.errors import ClientClosedError
from barnabas.client.network_client import NetworkClient
from barnabas.spark import reading
from barnabas.spark.core.admission_limits import EARLIEST, LATEST
from barnabas.spark.core.errors import DataLossError, SparkConnectorError
from barnabas.spark.reading import RangePartition, RangeReading, ReadPlan, consumer_settings, read_range
from barnabas.testing import EmbeddedBroker
from barnabas.wire import ApiKey
from barnabas.wire.message import Request
from barnabas.wire.messages.fetch import FetchRequest

TOPIC = "clicks"
COUNT = 400
VALUE = b"x" * 100


@pytest.fixture(autouse=True)
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small batches, so that there is a middle of a range, and no long waits for what is gone."""
    monkeypatch.setattr(reading, "_BATCH_ROWS", 10)
    monkeypatch.setattr(reading, "_LOOK_AFTER_S", 0.1)
    monkeypatch.setattr(reading, "_GONE_AFTER_S", 0.3)


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        running.create_topic(TOPIC)
        fill(running, COUNT)
        yield running


def fill(broker: EmbeddedBroker, count: int) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, batch_size=1000) as producer:
        for _ in range(count):
            producer.send(TOPIC, VALUE, partition=0)


def plan(broker: EmbeddedBroker, **given: Any) -> ReadPlan:
    client = {
        "bootstrap.servers": broker.bootstrap_servers,
        "max.partition.fetch.bytes": "1000",
        "fetch.max.wait.ms": "50",
        "reconnect.backoff.max.ms": "50",
        "retry.backoff.max.ms": "50",
        **given.pop("client", {}),
    }
    return ReadPlan(client, **{"poll_timeout_ms": 10_000, **given})


def offsets(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def collect(batches: Iterator[pa.RecordBatch], column: str, into: list[Any]) -> None:
    """As far as it goes: what came before an error is kept."""
    for batch in batches:
        into += batch.column(column).to_pylist()


def whole(topic_id: str | None = None, until_offset: int = COUNT) -> RangePartition:
    return RangePartition(TOPIC, 0, 0, until_offset, topic_id)


def topic_id(broker: EmbeddedBroker) -> str:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        return str(admin.describe_topics([TOPIC])[TOPIC].topic_id)


def delete_before(broker: EmbeddedBroker, offset: int) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_records({TopicPartition(TOPIC, 0): offset})


def delete_topic(broker: EmbeddedBroker) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_topics([TOPIC])


def test_an_empty_range_asks_nobody() -> None:
    nobody = ReadPlan({"bootstrap.servers": "127.0.0.1:1"})
    assert list(read_range(nobody, RangePartition(TOPIC, 0, 7, 7))) == []


def test_one_consumer_serves_one_range_after_the_other(broker: EmbeddedBroker) -> None:
    shared = plan(broker)
    assert offsets(read_range(shared, whole())) == [*range(COUNT)]
    before = broker.faults.seen[ApiKey.API_VERSIONS]
    assert offsets(read_range(shared, RangePartition(TOPIC, 0, 100, 250))) == [*range(100, 250)]
    half_read = read_range(shared, whole())
    next(half_read)
    half_read.close()  # type: ignore[attr-defined]
    assert offsets(read_range(shared, RangePartition(TOPIC, 0, 3, 5))) == [3, 4]
    assert broker.faults.seen[ApiKey.API_VERSIONS] == before, "nobody had to connect again"


def test_little_is_fetched_beyond_the_end(broker: EmbeddedBroker) -> None:
    fill(broker, 20_000)
    settings = {"max.partition.fetch.bytes": str(1 << 20)}
    assert len(offsets(read_range(plan(broker, client=settings), whole(until_offset=100)))) == 100
    assert broker.faults.seen[ApiKey.FETCH] <= 2


def test_a_record_that_is_larger_than_a_fetch_is_read(broker: EmbeddedBroker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(TOPIC, b"y" * 500_000, partition=0)
    batches = [*read_range(plan(broker), RangePartition(TOPIC, 0, COUNT - 1, COUNT + 1))]
    assert [len(value) for batch in batches for value in batch.column("value").to_pylist()] == [100, 500_000]


def test_a_broker_that_restarts_is_waited_for(broker: EmbeddedBroker) -> None:
    batches = read_range(plan(broker), whole())
    seen = next(batches).column("offset").to_pylist()
    broker.restart()
    assert seen + offsets(batches) == [*range(COUNT)]


def test_a_broker_that_is_gone_is_named_when_the_time_is_over(broker: EmbeddedBroker) -> None:
    batches = read_range(plan(broker, poll_timeout_ms=500), whole())
    next(batches)
    broker.stop()
    with pytest.raises(SparkConnectorError, match=r"of clicks-0 .*within 500 ms.*kafkaConsumer.pollTimeoutMs"):
        list(batches)


def test_the_time_that_spark_takes_does_not_count(broker: EmbeddedBroker) -> None:
    batches = read_range(plan(broker, poll_timeout_ms=100), whole())
    seen = []
    for batch in batches:
        seen += batch.column("offset").to_pylist()
        if len(seen) == 10:
            threading.Event().wait(0.3)
    assert seen == [*range(COUNT)]


def test_records_that_expire_in_mid_range_are_lost_data(broker: EmbeddedBroker) -> None:
    batches = read_range(plan(broker), whole())
    seen = next(batches).column("offset").to_pylist()
    delete_before(broker, 300)
    with pytest.raises(DataLossError, match=r"The offsets \d+ to 299 of clicks-0 .* begins at offset 300") as caught:
        collect(batches, "offset", seen)
    assert caught.value.error_class == "KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE"
    assert seen == [*range(len(seen))]
    assert len(seen) < 300
    assert f"offsets {len(seen)} to 299" in str(caught.value), "what was read is not lost"


def test_or_they_are_passed_over_with_a_warning(broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture) -> None:
    batches = read_range(plan(broker, fail_on_data_loss=False), whole())
    seen = next(batches).column("offset").to_pylist()
    delete_before(broker, 300)
    with caplog.at_level(logging.WARNING, "barnabas.spark"):
        seen += offsets(batches)
    first = next(offset for number, offset in enumerate(seen) if offset != number)
    assert first == 300
    assert seen[-100:] == [*range(300, COUNT)]
    assert f"offsets {len(seen) - 100} to 299 of clicks-0" in caplog.text


@pytest.mark.parametrize("is_fatal", [True, False])
def test_a_range_that_has_expired_as_a_whole(is_fatal: bool, broker: EmbeddedBroker) -> None:
    delete_before(broker, 300)
    batches = read_range(plan(broker, fail_on_data_loss=is_fatal), RangePartition(TOPIC, 0, 50, 200))
    if is_fatal:
        with pytest.raises(DataLossError, match="The offsets 50 to 199 of clicks-0"):
            list(batches)
    else:
        assert list(batches) == []


@pytest.mark.parametrize("first", [COUNT, COUNT + 50])
def test_a_range_beyond_the_end_is_lost_data(
    first: int, broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_ANSWER_WITHIN_S", 10.0)  # on a busy machine a broker may take a second to tell it
    with pytest.raises(DataLossError, match=rf"offsets {first} to {first + 9} .* ends at offset {COUNT}"):
        list(read_range(plan(broker, poll_timeout_ms=500), RangePartition(TOPIC, 0, first, first + 10)))


@pytest.mark.parametrize(("is_fatal", "is_open"), [(True, False), (False, False), (True, True)])
def test_a_leader_that_does_not_show_all_yet_is_waited_for(
    is_fatal: bool, is_open: bool, broker: EmbeddedBroker
) -> None:
    """As after an election: what the driver was told of is there, but the new leader does not know that it counts."""
    patient = plan(broker, fail_on_data_loss=is_fatal, poll_timeout_ms=120_000)
    clock = itertools.count()

    def now_s() -> float:
        seconds = next(clock)
        if seconds == 30:
            fill(broker, 20)
        return float(seconds)

    with Consumer(consumer_settings(patient.client)) as consumer:
        first, until = (COUNT + 10, LATEST) if is_open else (0, COUNT + 20)
        batches = RangeReading(patient, RangePartition(TOPIC, 0, first, until), consumer, now_s).batches()
        assert offsets(batches) == [*range(first, COUNT + 20)]


def open_range(first: int = EARLIEST, until: int = LATEST) -> RangePartition:
    return RangePartition(TOPIC, 0, first, until)


def test_open_ends_are_those_of_the_moment(broker: EmbeddedBroker) -> None:
    shared = plan(broker)
    assert offsets(read_range(shared, open_range())) == [*range(COUNT)]
    fill(broker, 20)
    delete_before(broker, 300)
    assert offsets(read_range(shared, open_range())) == [*range(300, COUNT + 20)]
    assert offsets(read_range(shared, open_range(first=410))) == [*range(410, COUNT + 20)]
    assert offsets(read_range(shared, open_range(until=310))) == [*range(300, 310)]
    assert offsets(read_range(shared, open_range(until=200))) == [], "all before that has expired"
    assert offsets(read_range(shared, open_range(first=COUNT + 20))) == []


@pytest.mark.parametrize("is_fatal", [True, False])
def test_a_topic_that_was_deleted_before_its_ends_were_asked_for(is_fatal: bool, broker: EmbeddedBroker) -> None:
    delete_topic(broker)
    batches = read_range(plan(broker, fail_on_data_loss=is_fatal), open_range())
    if is_fatal:
        with pytest.raises(DataLossError, match=r"These partitions were deleted: clicks-0"):
            list(batches)
    else:
        assert list(batches) == []


def test_ends_that_nobody_tells_are_no_empty_range(broker: EmbeddedBroker) -> None:
    broker.stop()
    with pytest.raises(SparkConnectorError, match=r"^Nobody told where clicks-0 begins and ends within 500 ms: "):
        list(read_range(plan(broker, poll_timeout_ms=500), open_range()))


def test_a_reader_that_cannot_be_put_away_is_not_kept(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = read_range(plan(broker), whole())
    next(batches)
    lent: list[Consumer] = []

    def fail(reading: RangeReading) -> None:
        lent.append(reading._reader._consumer)
        raise ClientClosedError("the loop is gone")

    monkeypatch.setattr(RangeReading, "end", fail)
    before = reading._consumers.idle_count
    with pytest.raises(ClientClosedError, match="the loop is gone"):
        batches.close()  # type: ignore[attr-defined]
    assert reading._consumers.idle_count == before
    with pytest.raises(ClientClosedError):
        lent[0].assignment()


@pytest.mark.parametrize("is_fatal", [True, False])
def test_a_topic_that_is_deleted_in_mid_range(is_fatal: bool, broker: EmbeddedBroker) -> None:
    batches = read_range(plan(broker, fail_on_data_loss=is_fatal), whole(topic_id(broker)))
    seen = next(batches).column("offset").to_pylist()
    delete_topic(broker)
    if is_fatal:
        with pytest.raises(DataLossError, match="These partitions were deleted: clicks-0") as caught:
            offsets(batches)
        assert caught.value.error_class == "KAFKA_DATA_LOSS.PARTITIONS_DELETED"
    else:
        seen += offsets(batches)
        assert seen == [*range(len(seen))]
        assert len(seen) < COUNT
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert TOPIC not in admin.list_topics(), "a reader does not bring it back"


@pytest.mark.parametrize("is_fatal", [True, False])
def test_records_of_a_topic_that_was_created_again_are_not_mixed_in(is_fatal: bool, broker: EmbeddedBroker) -> None:
    batches = read_range(plan(broker, fail_on_data_loss=is_fatal), whole(topic_id(broker)))
    values = next(batches).column("value").to_pylist()
    story: AbstractContextManager[object] = nullcontext()
    if is_fatal:
        story = pytest.raises(DataLossError, match="deleted and created again")
    delete_topic(broker)
    broker.create_topic(TOPIC)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for _ in range(COUNT):
            producer.send(TOPIC, b"another", partition=0)
    with story:
        collect(batches, "value", values)
    assert set(values) == {VALUE}
    assert len(values) < COUNT


def test_a_plan_for_a_topic_that_is_another_one_by_now_reads_nothing(broker: EmbeddedBroker) -> None:
    planned = topic_id(broker)
    delete_topic(broker)
    broker.create_topic(TOPIC)
    fill(broker, COUNT)
    with pytest.raises(DataLossError, match=r"offsets 0 to 399 of clicks-0 .*deleted and created again"):
        list(read_range(plan(broker), whole(planned)))


# A consumer from the pool may know the cluster as it was minutes ago.


def create_again(broker: EmbeddedBroker, count: int, partitions: int = 1) -> None:
    delete_topic(broker)
    broker.create_topic(TOPIC, partitions=partitions)
    fill(broker, count)


def fetch_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of brokers before Kafka 3.1."""
    version_of = NetworkClient.version_of

    def older(network: NetworkClient, node_id: int, request: type[Request]) -> int | None:
        version = version_of(network, node_id, request)
        return version if version is None or request is not FetchRequest else min(version, 12)

    monkeypatch.setattr(NetworkClient, "version_of", older)


@pytest.mark.parametrize("is_by_name", [False, True])
@pytest.mark.parametrize("is_fatal", [True, False])
def test_a_plan_for_the_new_topic_is_read_by_one_who_knew_the_old_one(
    is_fatal: bool, is_by_name: bool, broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_by_name:
        fetch_by_name(monkeypatch)
    shared = plan(broker, fail_on_data_loss=is_fatal)
    assert offsets(read_range(shared, whole(topic_id(broker)))) == [*range(COUNT)]
    create_again(broker, 20)
    new = whole(topic_id(broker), until_offset=20)
    broker.faults.fail_next(ApiKey.METADATA, delay_ms=500)
    assert offsets(read_range(shared, new)) == [*range(20)]


@pytest.mark.parametrize("is_fatal", [True, False])
def test_a_new_partition_is_read_by_one_who_knew_fewer(is_fatal: bool, broker: EmbeddedBroker) -> None:
    shared = plan(broker, fail_on_data_loss=is_fatal)
    assert offsets(read_range(shared, whole())) == [*range(COUNT)]
    add_partition(broker)
    broker.faults.fail_next(ApiKey.METADATA, delay_ms=1000)
    assert offsets(read_range(shared, RangePartition(TOPIC, 1, 0, 5))) == [*range(5)]


def test_the_ends_of_a_new_partition_are_found_by_one_who_knew_fewer(broker: EmbeddedBroker) -> None:
    shared = plan(broker)
    assert offsets(read_range(shared, open_range())) == [*range(COUNT)]
    add_partition(broker)
    assert offsets(read_range(shared, RangePartition(TOPIC, 1, EARLIEST, LATEST))) == [*range(5)]


def add_partition(broker: EmbeddedBroker) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_partitions({TOPIC: 2})
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for _ in range(5):
            producer.send(TOPIC, VALUE, partition=1)


@pytest.mark.parametrize("is_fatal", [True, False])
def test_a_partition_that_the_new_topic_does_not_have(is_fatal: bool, broker: EmbeddedBroker) -> None:
    create_again(broker, 0, partitions=2)
    shared = plan(broker, fail_on_data_loss=is_fatal)
    kept = RangePartition(TOPIC, 1, EARLIEST, LATEST)
    assert list(read_range(shared, kept)) == []
    create_again(broker, 0)
    if is_fatal:
        with pytest.raises(DataLossError, match=r"These partitions were deleted: clicks-1\."):
            list(read_range(shared, kept))
    else:
        assert list(read_range(shared, kept)) == []


@pytest.mark.parametrize("is_fatal", [True, False])
def test_a_topic_that_is_shorter_by_now_than_where_the_range_begins(
    is_fatal: bool, broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    kept = RangePartition(TOPIC, 0, 300, LATEST, topic_id(broker))
    shared = plan(broker, fail_on_data_loss=is_fatal)
    assert offsets(read_range(shared, kept)) == [*range(300, COUNT)]
    create_again(broker, 20)
    story = "clicks-0 was to be read from offset 300, but ends at 20"
    if is_fatal:
        with pytest.raises(DataLossError, match=story):
            list(read_range(shared, kept))
    else:
        assert list(read_range(shared, kept)) == []
        assert story in caplog.text


def test_an_end_before_the_beginning_is_believed_when_the_time_is_over(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_ANSWER_WITHIN_S", 10.0)
    beyond = RangePartition(TOPIC, 0, COUNT + 10, LATEST, topic_id(broker))
    with pytest.raises(DataLossError, match=rf"was to be read from offset {COUNT + 10}, but ends at {COUNT}\."):
        list(read_range(plan(broker, poll_timeout_ms=500), beyond))


def test_what_spark_does_not_take_is_not_fetched(broker: EmbeddedBroker) -> None:
    """However long Spark thinks, only so much waits in memory."""
    fill(broker, 5000)
    batches = read_range(plan(broker), whole(until_offset=5000))
    next(batches)
    fetches = broker.faults.seen[ApiKey.FETCH]
    threading.Event().wait(0.3)
    assert broker.faults.seen[ApiKey.FETCH] <= fetches + 2
    assert len(offsets(batches)) == 5000 - 10
