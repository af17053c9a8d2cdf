"""confluent-kafka's producer, and its consumer on partitions that it chose: records of every shape, offsets, times."""

from __future__ import annotations

import time

import pytest

from tests.compat.brokers import unique
from tests.compat.confluent_client import Confluent, as_sample, ck, code_of, nothing_polled, polled, values
from tests.compat.samples import BIG_BYTES, CODECS, RECORDS, TIME_MS, TIMEOUT_S, TOO_BIG_BYTES, Sample, until


@pytest.fixture(scope="module")
def client(node: str) -> Confluent:
    return Confluent(node)


def numbered(count: int, first: int = 0) -> list[Sample]:
    return [Sample(str(number).encode(), timestamp_ms=TIME_MS + number) for number in range(first, first + count)]


# Producing


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_every_shape_come_back_as_they_were(client: Confluent, codec: str) -> None:
    topic = client.topic()
    delivered = client.produce(topic, RECORDS, {"compression.codec": codec})
    assert [each.offset() for each in delivered] == list(range(len(RECORDS)))
    received = client.consume(topic, len(RECORDS))
    assert tuple(as_sample(each) for each in received) == RECORDS
    assert {each.timestamp()[0] for each in received} == {ck.TIMESTAMP_CREATE_TIME}


@pytest.mark.parametrize("codec", CODECS)
def test_a_topic_compresses_as_it_is_told(client: Confluent, codec: str) -> None:
    topic = client.topic(config={"compression.type": "uncompressed" if codec == "none" else codec})
    client.produce(topic, RECORDS, {"compression.codec": "gzip"})
    assert tuple(as_sample(each) for each in client.consume(topic, len(RECORDS))) == RECORDS


def test_a_topic_stamps_records_when_they_are_appended(client: Confluent) -> None:
    topic = client.topic(config={"message.timestamp.type": "LogAppendTime"})
    before_ms = int(time.time() * 1000)
    (delivered,) = client.produce(topic, [Sample(b"x")])
    (received,) = client.consume(topic, 1)
    assert received.timestamp()[0] == ck.TIMESTAMP_LOG_APPEND_TIME
    assert before_ms <= received.timestamp()[1] <= time.time() * 1000
    assert delivered.timestamp() == received.timestamp()


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_big_record(client: Confluent, codec: str) -> None:
    topic = client.topic()
    client.produce(topic, [Sample(b"v" * BIG_BYTES)], {"compression.codec": codec})
    assert values(client.consume(topic, 1)) == [b"v" * BIG_BYTES]


def test_a_record_that_is_too_big(client: Confluent) -> None:
    topic = client.topic()
    with pytest.raises(ck.KafkaException) as failure:
        client.produce(topic, [Sample(b"v" * TOO_BIG_BYTES)], {"message.max.bytes": 2 * TOO_BIG_BYTES})
    assert code_of(failure) == "MSG_SIZE_TOO_LARGE"
    small = client.topic(config={"max.message.bytes": "1000"})
    with pytest.raises(ck.KafkaException) as failure:
        client.produce(small, [Sample(b"v" * 1001)])
    assert code_of(failure) == "MSG_SIZE_TOO_LARGE"
    client.produce(small, [Sample(b"v" * 800)])


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(client: Confluent, acks: str) -> None:
    topic = client.topic()
    delivered = client.produce(topic, numbered(50), {"acks": acks})
    assert len(delivered) == 50
    if acks != "0":
        assert [each.offset() for each in delivered] == list(range(50))
    assert values(client.consume(topic, 50)) == [str(number).encode() for number in range(50)]


def test_an_idempotent_producer_keeps_the_order(client: Confluent) -> None:
    topic = client.topic()
    settings = {"enable.idempotence": True, "batch.num.messages": 7, "linger.ms": 0}
    delivered = client.produce(topic, numbered(500), settings)
    assert [each.offset() for each in delivered] == list(range(500))
    assert values(client.consume(topic, 500)) == [each.value for each in numbered(500)]


def test_keys_choose_partitions_and_every_one_is_written(client: Confluent) -> None:
    topic = client.topic(30)
    samples = [Sample(b"v", f"key {number}".encode()) for number in range(600)]
    delivered = client.produce(topic, samples, {"partitioner": "murmur2_random"})
    written = {each.partition() for each in delivered}
    assert written == set(range(30))
    with client.consumer() as consumer:
        consumer.assign([ck.TopicPartition(topic, number, 0) for number in range(30)])
        received = polled(consumer, 600)
    assert sorted((each.partition(), each.key()) for each in received) == sorted(
        (each.partition(), each.key()) for each in delivered
    )


def test_a_topic_is_created_by_writing_to_it(client: Confluent) -> None:
    topic = unique("confluent-made")
    (delivered,) = client.produce(topic, [Sample(b"first")])
    assert (delivered.partition(), delivered.offset()) == (0, 0)


def test_a_partition_that_is_not_there(client: Confluent) -> None:
    topic = client.topic(1)
    with pytest.raises(ck.KafkaException) as failure:
        client.produce(topic, [Sample(b"x")], partition=7)
    assert code_of(failure) == "_UNKNOWN_PARTITION"


def test_a_topic_name_that_cannot_be(client: Confluent) -> None:
    with pytest.raises(ck.KafkaException) as failure:
        client.produce("not a topic", [Sample(b"x")])
    assert code_of(failure) == "TOPIC_EXCEPTION"


def test_a_compacted_topic_wants_keys(client: Confluent) -> None:
    topic = client.topic(config={"cleanup.policy": "compact"})
    with pytest.raises(ck.KafkaException) as failure:
        client.produce(topic, [Sample(b"no key")])
    assert code_of(failure) == "INVALID_RECORD"


def test_a_timestamp_far_in_the_future_is_refused(client: Confluent) -> None:
    topic = client.topic(config={"message.timestamp.after.max.ms": "1000"})
    with pytest.raises(ck.KafkaException) as failure:
        client.produce(topic, [Sample(b"x", timestamp_ms=int(time.time() * 1000) + 3_600_000)])
    assert code_of(failure) == "INVALID_TIMESTAMP"


# Consuming


def test_seeking_to_an_offset_and_back(client: Confluent) -> None:
    topic = client.topic()
    client.produce(topic, numbered(20))
    with client.consumer() as consumer:
        consumer.assign([ck.TopicPartition(topic, 0, 15)])
        assert values(polled(consumer, 5)) == [b"15", b"16", b"17", b"18", b"19"]
        consumer.seek(ck.TopicPartition(topic, 0, 3))
        assert values(polled(consumer, 2)) == [b"3", b"4"]
        assert consumer.position([ck.TopicPartition(topic, 0)])[0].offset == 5


def test_offsets_for_times_and_watermarks(client: Confluent) -> None:
    topic = client.topic(2)
    client.produce(topic, numbered(10), partition=0)
    with client.consumer() as consumer:
        asked = [ck.TopicPartition(topic, 0, TIME_MS + 4), ck.TopicPartition(topic, 1, TIME_MS)]
        found = consumer.offsets_for_times(asked, timeout=TIMEOUT_S)
        assert [each.offset for each in found] == [4, ck.OFFSET_END]
        assert consumer.get_watermark_offsets(ck.TopicPartition(topic, 0), timeout=TIMEOUT_S) == (0, 10)
        assert consumer.get_watermark_offsets(ck.TopicPartition(topic, 1), timeout=TIMEOUT_S) == (0, 0)
        consumer.assign([found[0]])
        assert values(polled(consumer, 1)) == [b"4"]
        assert consumer.get_watermark_offsets(ck.TopicPartition(topic, 0), cached=True) == (0, 10)


def test_a_paused_partition_is_silent_until_it_is_resumed(client: Confluent) -> None:
    topic = client.topic(2)
    with client.consumer() as consumer:
        consumer.assign([ck.TopicPartition(topic, 0, 0), ck.TopicPartition(topic, 1, 0)])
        consumer.pause([ck.TopicPartition(topic, 0)])
        client.produce(topic, [Sample(b"paused")], partition=0)
        client.produce(topic, [Sample(b"heard")], partition=1)
        assert values(polled(consumer, 1)) == [b"heard"]
        assert nothing_polled(consumer)
        consumer.resume([ck.TopicPartition(topic, 0)])
        assert values(polled(consumer, 1)) == [b"paused"]


@pytest.mark.parametrize(("reset", "expected"), [("earliest", b"0"), ("latest", b"new")])
def test_an_offset_out_of_range_is_reset(client: Confluent, reset: str, expected: bytes) -> None:
    topic = client.topic()
    client.produce(topic, numbered(3))
    with client.consumer(settings={"auto.offset.reset": reset}) as consumer:
        consumer.assign([ck.TopicPartition(topic, 0, 1000)])
        if reset == "latest":
            until(
                lambda: (
                    consumer.poll(0.05) is None
                    and consumer.get_watermark_offsets(ck.TopicPartition(topic, 0), cached=True) == (0, 3)
                )
            )
            client.produce(topic, [Sample(b"new")])
        assert values(polled(consumer, 1)) == [expected]


def test_an_offset_out_of_range_is_an_error_where_nobody_resets(client: Confluent) -> None:
    topic = client.topic()
    client.produce(topic, numbered(3))
    with client.consumer(settings={"auto.offset.reset": "error"}) as consumer:
        consumer.assign([ck.TopicPartition(topic, 0, 1000)])
        with pytest.raises(ck.KafkaException) as failure:
            polled(consumer, 1)
    assert code_of(failure) == "_AUTO_OFFSET_RESET"
    assert "OFFSET_OUT_OF_RANGE" in failure.value.args[0].str() or "out of range" in failure.value.args[0].str()


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_both_isolation_levels_see_records_outside_of_transactions(client: Confluent, isolation: str) -> None:
    topic = client.topic()
    client.produce(topic, numbered(10))
    received = client.consume(topic, 10, {"isolation.level": isolation})
    assert values(received) == [each.value for each in numbered(10)]


def test_a_fetch_session_over_many_partitions_sees_each_new_record(client: Confluent) -> None:
    topic = client.topic(60)
    with client.consumer() as consumer:
        consumer.assign([ck.TopicPartition(topic, number, 0) for number in range(60)])
        assert nothing_polled(consumer)
        for partition in (0, 59, 17, 17, 3):
            client.produce(topic, [Sample(b"x")], partition=partition)
            (message,) = polled(consumer, 1)
            assert message.partition() == partition
        consumer.incremental_unassign([ck.TopicPartition(topic, 17)])
        client.produce(topic, [Sample(b"unheard")], partition=17)
        client.produce(topic, [Sample(b"y")], partition=18)
        assert values(polled(consumer, 1)) == [b"y"]
        consumer.incremental_assign([ck.TopicPartition(topic, 17, 2)])
        assert values(polled(consumer, 1)) == [b"unheard"]


def test_the_end_of_a_partition_is_told(client: Confluent) -> None:
    topic = client.topic()
    client.produce(topic, numbered(2))
    with client.consumer(settings={"enable.partition.eof": True}) as consumer:
        consumer.assign([ck.TopicPartition(topic, 0, 0)])
        polled(consumer, 2)
        with pytest.raises(ck.KafkaException) as failure:
            polled(consumer, 1)
    assert code_of(failure) == "_PARTITION_EOF"


def test_small_fetches_give_all_records(client: Confluent) -> None:
    topic = client.topic(2)
    for partition in (0, 1):
        client.produce(topic, [Sample(b"v" * 5000) for _ in range(40)], {"batch.num.messages": 3}, partition)
    with client.consumer(
        settings={"fetch.max.bytes": 8000, "max.partition.fetch.bytes": 3000, "message.max.bytes": 8000}
    ) as consumer:
        consumer.assign([ck.TopicPartition(topic, 0, 0), ck.TopicPartition(topic, 1, 0)])
        received = polled(consumer, 80)
    assert sorted((each.partition(), each.offset()) for each in received) == [
        (partition, offset) for partition in (0, 1) for offset in range(40)
    ]
