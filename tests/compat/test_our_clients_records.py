"""What our clients write others read, and the other way round: every field of every shape of record, in every codec."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

import pyarrow as pa
import pytest

from barnabas import TopicPartition
from tests.compat import confluent_client
from tests.compat import test_kcat as kcat_command
from tests.compat.confluent_client import ck
from tests.compat.our_client import aio_polled, as_table, iterated, polled, polled_arrow
from tests.compat.our_client_peers import READERS, WRITERS, Peers, Records, as_java_tells
from tests.compat.samples import BIG_BYTES, CODECS, RECORDS, TIME_MS, TIMEOUT_S, Sample
from tests.oracles import missing

#: Compressible, but only by what lies a few thousand bytes back.
BIG: Final = (Random(5).randbytes(3000) * (BIG_BYTES // 3000 + 1))[:BIG_BYTES]

#: Every shape, then many that share batches, with timestamps that go up and down, then one that fills a batch alone.
SAMPLES: Final[tuple[Sample, ...]] = (
    *RECORDS,
    *(
        Sample(
            None if number % 11 == 7 else b"value %d" % number,
            None if number % 5 == 3 and number % 11 != 7 else b"key %d" % (number % 13),
            (("number", b"%d" % number), ("null", None)) if number % 4 == 0 else (),
            TIME_MS + (number * 37) % 101,
        )
        for number in range(200)
    ),
    Sample(BIG, b"big"),
    Sample(b"the last"),
)

#: kafka-python reads null in headers but does not send it.
WITHOUT_NULL_HEADERS: Final = tuple(
    replace(each, headers=tuple(pair for pair in each.headers if pair[1] is not None)) for each in SAMPLES
)

WITHOUT_JAVA: Final = missing() is not None
PLACES: Final = [(writer, codec) for writer in WRITERS if not (writer == "Java" and WITHOUT_JAVA) for codec in CODECS]


@dataclass
class Written:
    """A topic with a partition for each writer and codec."""

    peers: Peers
    topic: str
    offsets: Mapping[tuple[str, str], list[int] | None]
    _read: dict[str, Records] = field(default_factory=dict)

    def read(self, reader: str) -> Records:
        """All that is there, as one reader sees it; read once."""
        if reader not in self._read:
            count = sum(len(samples_of(writer)) for writer, _ in PLACES)
            self._read[reader] = READERS[reader](self.peers, self.topic, len(PLACES), count)
        return self._read[reader]


def samples_of(writer: str) -> tuple[Sample, ...]:
    return WITHOUT_NULL_HEADERS if writer == "kafka-python" else SAMPLES


@pytest.fixture(scope="module")
def written(both_peers: Peers) -> Written:
    topic = both_peers.ours.topic(len(PLACES))
    offsets = {
        (writer, codec): WRITERS[writer](both_peers, topic, number, codec, samples_of(writer))
        for number, (writer, codec) in enumerate(PLACES)
    }
    return Written(both_peers, topic, offsets)


def same(found: Sequence[Sample], wanted: Sequence[Sample]) -> bool:
    """Told apart by the first difference: whole lists of large records say nothing."""
    for index, (one, other) in enumerate(zip(found, wanted, strict=False)):
        if one != other:
            pytest.fail(f"record {index}: {str(one)[:500]}, and not {str(other)[:500]}")
    return len(found) == len(wanted)


@pytest.mark.parametrize("reader", [each for each in READERS if not (each == "Java" and WITHOUT_JAVA)])
def test_every_reader_sees_what_every_writer_wrote(written: Written, reader: str) -> None:
    read = written.read(reader)
    for number, (writer, codec) in enumerate(PLACES):
        wanted = samples_of(writer)
        if reader == "Java":
            wanted = tuple(map(as_java_tells, wanted))
        assert same(read[number], wanted), f"{writer}, {codec}"


def test_offsets_that_were_acknowledged_are_those_of_the_records(written: Written) -> None:
    for place, offsets in written.offsets.items():
        assert offsets == list(range(len(samples_of(place[0])))), place


@pytest.mark.parametrize("acks", ["0", "all"])
def test_records_in_many_partitions_arrive_whole_and_in_order(peers: Peers, acks: str) -> None:
    topic, partitions, count = peers.ours.topic(5), 5, 3000
    settings = {"acks": acks, "enable_idempotence": acks == "all", "batch_size": 500, "linger_ms": 0}
    with peers.ours.producer(**settings) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, b"%d" % (number % 17))
    with peers.confluent.consumer() as consumer:
        consumer.assign([ck.TopicPartition(topic, number, ck.OFFSET_BEGINNING) for number in range(partitions)])
        messages = confluent_client.polled(consumer, count)
    by_key: dict[bytes, list[int]] = {}
    for each in messages:
        by_key.setdefault(each.key(), []).append(int(each.value()))
    assert by_key == {b"%d" % key: list(range(key, count, 17)) for key in range(17)}


def test_a_table_that_names_partitions(peers: Peers) -> None:
    topic = peers.ours.topic(4)
    samples = [Sample(b"%d" % number, timestamp_ms=TIME_MS + number) for number in range(400)]
    partitions = [number * 7 % 4 for number in range(400)]
    table = as_table(samples).append_column("partition", pa.array(partitions, pa.int32()))
    ranges = peers.ours.produce_arrow(topic, table)
    assert sorted((each.partition, each.base_offset, each.row_count) for each in ranges) == [
        (number, 0, 100) for number in range(4)
    ]
    for reader in ("kafka-python", "ours in Arrow"):
        read = READERS[reader](peers, topic, 4, 400)
        for number in range(4):
            wanted = [sample for sample, partition in zip(samples, partitions, strict=True) if partition == number]
            assert same(read[number], wanted)


def test_a_table_of_values_alone(peers: Peers) -> None:
    topic, before_ms = peers.ours.topic(), int(time.time() * 1000)
    peers.ours.produce_arrow(topic, pa.table({"value": ["eins", None, ""]}))
    (found,) = READERS["kafka-python"](peers, topic, 1, 3).values()
    assert [(each.value, each.key, each.headers) for each in found] == [
        (b"eins", None, ()),
        (None, None, ()),
        (b"", None, ()),
    ]
    assert all(before_ms <= each.timestamp_ms <= time.time() * 1000 for each in found)


def test_a_topic_stamps_records_when_they_are_appended(peers: Peers) -> None:
    ours = peers.ours
    topic, before_ms = ours.topic(config={"message.timestamp.type": "LogAppendTime"}), int(time.time() * 1000)
    (sent,) = ours.produce(topic, [Sample(b"x", timestamp_ms=5)])
    (sent_by_other,) = peers.confluent.produce(topic, [Sample(b"y", timestamp_ms=5)])
    records = ours.read(topic, 1, 2, polled)
    stamps = [sent.timestamp_ms, sent_by_other.timestamp()[1]]
    assert [each.timestamp_ms for each in records] == stamps
    assert {each.timestamp_type for each in records} == {1}
    assert [each.timestamp()[1] for each in peers.confluent.consume(topic, 2)] == stamps
    column = ours.read(topic, 1, 2, polled_arrow).column("timestamp")
    assert column.cast(pa.int64()).to_pylist() == stamps
    assert before_ms <= stamps[0] <= stamps[1] <= time.time() * 1000


def test_a_record_without_a_timestamp_gets_the_present(peers: Peers) -> None:
    topic, before_ms = peers.ours.topic(), int(time.time() * 1000)
    with peers.ours.producer() as producer:
        sent = producer.send(topic, b"now").result(TIMEOUT_S)
    (record,) = peers.kafka_python.consume(topic, 1)
    assert (record.timestamp, record.timestamp_type) == (sent.timestamp_ms, 0)
    assert before_ms <= sent.timestamp_ms <= time.time() * 1000


def test_reading_begins_and_ends_where_others_say(peers: Peers) -> None:
    """Offsets by time, first and last ones, and seeks: asked by ours, and by confluent-kafka of the same topic."""
    ours, topic = peers.ours, peers.ours.topic()
    partition = TopicPartition(topic, 0)
    peers.confluent.produce(
        topic, [Sample(b"%d" % number, timestamp_ms=TIME_MS + 1000 * number) for number in range(10)]
    )
    times = {TIME_MS - 1: 0, TIME_MS + 4500: 5, TIME_MS + 9000: 9, TIME_MS + 9001: None}
    with ours.consumer() as consumer, peers.confluent.consumer() as other:
        for time_ms, offset in times.items():
            found = consumer.offsets_for_times({partition: time_ms})[partition]
            assert (None if found is None else found.offset) == offset
            (asked,) = other.offsets_for_times([ck.TopicPartition(topic, 0, time_ms)], timeout=20)
            assert asked.offset == (ck.OFFSET_END if offset is None else offset)
        beginning, end = (
            consumer.beginning_offsets([partition])[partition],
            consumer.end_offsets([partition])[partition],
        )
        assert (beginning, end) == other.get_watermark_offsets(ck.TopicPartition(topic, 0), timeout=20) == (0, 10)
        consumer.assign([partition])
        consumer.seek(partition, 7)
        assert [each.value for each in iterated(consumer, 3)] == [b"7", b"8", b"9"]
        assert consumer.current_lag(partition) == 0

    async def story() -> list[bytes | None]:
        async with ours.aio_consumer() as reader:
            reader.assign([partition])
            reader.seek(partition, 8)
            return [each.value for each in await aio_polled(reader, 2)]

    assert asyncio.run(story()) == [b"8", b"9"]


def test_kcat(peers: Peers) -> None:
    """What people type first, to see what is there."""
    if kcat_command.COMMAND is None:
        pytest.skip("kcat is not installed, and 'make oracles' could not fetch it")
    kcat, topic = kcat_command.Kcat(peers.bootstrap), peers.ours.topic()
    kcat.topic = topic
    sent = [Sample("größe".encode(), b"k", (("h", b"v"), ("h", None)), TIME_MS), Sample(None, b"gone", (), TIME_MS + 1)]
    peers.ours.produce(topic, sent, compression_type="zstd")
    first, second = kcat.records()
    assert (first["key"], first["payload"], first["headers"], first["ts"]) == (
        "k",
        "größe",
        ["h", "v", "h", None],
        TIME_MS,
    )
    assert (second["key"], second["payload"], second["offset"]) == ("gone", None, 1)
    kcat.produce("a:eins\nb:zwei\n", "-K", ":", "-H", "from=kcat", "-z", "lz4")
    records = peers.ours.read(topic, 1, 4, polled)[2:]
    assert [(each.key, each.value, each.headers) for each in records] == [
        (b"a", b"eins", (("from", b"kcat"),)),
        (b"b", b"zwei", (("from", b"kcat"),)),
    ]
