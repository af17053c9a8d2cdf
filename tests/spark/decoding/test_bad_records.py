"""What becomes of records whose value cannot be decoded: the query fails, a column tells, or a topic takes them."""

from __future__ import annotations

import pickle
from collections.abc import Generator, Iterator
from dataclasses import replace
from random import Random
from typing import Any, cast

import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from barnabas import Admin, Consumer, NewTopic, Producer, TopicPartition
from barnabas.client.errors import ClientTimeoutError
from barnabas.spark.core.errors import OptionError
from barnabas.spark.decoding import Decoder, DecodingOptions
from barnabas.spark.decoding.bad_records import BadKind, BadRecordError, BadValue, excerpt
from barnabas.spark.decoding.dead_letters import DeadLetterError, SourceRecord, letter_settings, write_letters
from barnabas.spark.pool import ClientPool
from barnabas.spark.producers import producers
from barnabas.spark.schema import source_schema
from barnabas.spark.source import BarnabasDataSource
from barnabas.testing import EmbeddedBroker
from tests.spark.decoding.batches import AT_MS, batch

JSON = {"valueFormat": "json", "valueSchema": "id long, name string"}
VALUES = [b'{"id": 1}', b"no json", None, b'{"id": "x"}', b'{"id": 4}']


def _options(**options: str) -> DecodingOptions:
    parsed = DecodingOptions.parse({**JSON, **options})
    assert parsed is not None
    return parsed


def _decoder(client: dict[str, str] | None = None, keep_headers: bool = True, **options: str) -> Decoder:
    letters = None if client is None else letter_settings(client)
    # As it comes to a worker.
    return Decoder(pickle.loads(pickle.dumps(_options(**options))), letters, keep_headers=keep_headers)


def test_good_batches_have_the_schema_that_spark_was_promised() -> None:
    for include_headers in (False, True):
        for bad_records in ("fail", "column"):
            headers = [None, [("h", b"1")]] if include_headers else None
            decoded = _decoder(badRecords=bad_records).apply(batch([b'{"id": 1}', None], headers=headers))
            promised = _options(badRecords=bad_records).spark_schema(source_schema(include_headers))
            assert decoded.schema.equals(to_arrow_schema(promised, timezone="UTC"))
            assert decoded.column("value").to_pylist() == [{"id": 1, "name": None}, None]


def test_a_batch_without_rows_has_the_schema_too() -> None:
    decoder = _decoder(badRecords="column")
    assert decoder.apply(batch([])).schema.equals(decoder.apply(batch([b"{}"])).schema)


def test_failing_names_the_place_the_cause_and_the_beginning_of_the_value() -> None:
    with pytest.raises(BadRecordError) as caught:
        _decoder().apply(batch(VALUES))
    text = str(caught.value)
    assert "offset 101 of clicks-3" in text
    assert "JSON_TYPE" in text or "JSON_SYNTAX" in text
    assert "no json" in text
    assert "badRecords" in text
    assert str(pickle.loads(pickle.dumps(caught.value))) == text


def test_a_column_tells_of_bad_records_and_keeps_their_rows() -> None:
    decoded = _decoder(badRecords="column").apply(batch(VALUES))
    assert decoded.column("value").to_pylist() == [{"id": 1, "name": None}, None, None, None, {"id": 4, "name": None}]
    bad = decoded.column("_bad_record").to_pylist()
    assert [item and item["value"] for item in bad] == [None, b"no json", None, b'{"id": "x"}', None]
    assert bad[3]["error"] == 'JSON_TYPE: id: a whole number (bigint) was expected, not a string: "x"'
    assert decoded.column("offset").to_pylist() == [100, 101, 102, 103, 104]


def test_the_column_can_have_another_name_but_not_that_of_another() -> None:
    decoder = _decoder(badRecords="column", badRecordColumn="broken")
    assert decoder.apply(batch(VALUES)).schema.names[-1] == "broken"
    with pytest.raises(ValueError, match="there is such a column already"):
        _options(badRecords="column", badRecordColumn="Offset").spark_schema(source_schema())


def test_more_bad_records_than_allowed_fail_the_task() -> None:
    decoder = _decoder(badRecords="column", maxBadRecords="3")
    decoder.apply(batch(VALUES))
    with pytest.raises(
        BadRecordError, match=r"more bad records than the 3 that maxBadRecords allows.*offset 203"
    ) as caught:
        decoder.apply(batch(VALUES, first_offset=200))
    assert "raise maxBadRecords" in str(caught.value)


class _Delivery:
    def __init__(self, fate: Exception | None) -> None:
        self.fate = fate

    def exception(self) -> Exception | None:
        return self.fate


class _Producer:
    """Keeps what is sent, and shares out fates."""

    def __init__(self, *fates: Exception | None) -> None:
        self.sent: list[tuple[str, bytes | None, bytes, list[tuple[str, bytes | None]]]] = []
        self.fates = list(fates)
        self.is_flushed = False
        self.is_closed = False

    def send(self, topic: str, value: bytes | None, /, *, key: bytes, headers: Any) -> _Delivery:
        self.sent.append((topic, value, key, headers))
        return _Delivery(self.fates.pop(0) if self.fates else None)

    def flush(self) -> None:
        self.is_flushed = True

    def close(self, timeout: float | None = None) -> None:
        self.is_closed = True


def _lends(producer: _Producer) -> ClientPool[Producer]:
    return ClientPool(lambda settings: cast("Producer", producer))


RECORD = SourceRecord("clicks", 3, 17, 5, b"k", b"{", [("trace", b"1"), ("trace", None)])
BAD = BadValue(0, BadKind.JSON_SYNTAX, "it ends", schema_id=7)


def test_a_letter_says_where_it_came_from_and_why() -> None:
    producer = _Producer()
    write_letters("dead", {}, [(RECORD, BAD), (RECORD, BAD)], _lends(producer))
    assert (producer.is_flushed, producer.is_closed) == (True, False)
    assert producer.sent[0] == producer.sent[1]
    assert producer.sent[0] == (
        "dead",
        b"{",
        b"clicks-3-17",
        [
            ("trace", b"1"),
            ("trace", None),
            ("barnabas.error.class", b"JSON_SYNTAX"),
            ("barnabas.error.message", b"it ends"),
            ("barnabas.error.topic", b"clicks"),
            ("barnabas.error.partition", b"3"),
            ("barnabas.error.offset", b"17"),
            ("barnabas.error.timestamp", b"5"),
            ("barnabas.error.schema-id", b"7"),
            ("barnabas.error.key", b"k"),
        ],
    )


def test_a_letter_that_is_not_written_fails_the_task_and_its_producer_is_not_used_again() -> None:
    producer = _Producer(None, ClientTimeoutError("no leader."))
    pool = _lends(producer)
    with pytest.raises(DeadLetterError, match=r"offset 17 of clicks-3 could not be .* 'dead': no leader[.] Nothing"):
        write_letters("dead", {}, [(replace(RECORD, offset=16), BAD), (RECORD, BAD)], pool)
    assert producer.is_closed
    assert pool.idle_count == 0


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


def _create(cluster: EmbeddedBroker, topic: str, partitions: int = 1, **configs: str) -> None:
    configs = {name.replace("_", "."): value for name, value in configs.items()}
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, num_partitions=partitions, configs=configs)])


def _letters(cluster: EmbeddedBroker, topic: str, count: int) -> list[Any]:
    """All letters that are there. There must be so many already: nothing is waited for but what was acknowledged."""
    with Consumer(topic, bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        found: list[Any] = []
        while len(found) < count:
            more = consumer.poll(5)
            assert more
            found.extend(more)
        ends = consumer.end_offsets([TopicPartition(topic, each.partition) for each in consumer.partitions_for(topic)])
    assert sum(ends.values()) == count
    return found


def test_letters_are_in_the_topic_before_the_other_rows_are_handed_on(cluster: EmbeddedBroker) -> None:
    client = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "fetch.max.bytes": "1000000",
        "isolation.level": "read_committed",
        "linger.ms": "60000",
    }
    _create(cluster, "dead", 2)
    for _ in range(2):
        decoder = _decoder(client, keep_headers=False, badRecords="topic", deadLetterTopic="dead")
        decoded = decoder.apply(batch(VALUES, headers=[None, [("trace", b"1")], None, None, None]))
        assert decoded.column("offset").to_pylist() == [100, 102, 104]
        assert "headers" not in decoded.schema.names
    letters: dict[bytes, list[Any]] = {}
    for record in _letters(cluster, "dead", 4):
        letters.setdefault(record.key, []).append(record)
    assert {key: [record.value for record in records] for key, records in letters.items()} == {
        b"clicks-3-101": [b"no json"] * 2,
        b"clicks-3-103": [b'{"id": "x"}'] * 2,
    }
    for records in letters.values():
        assert len({record.partition for record in records}) == 1
    headers = dict(letters[b"clicks-3-101"][0].headers)
    assert headers["trace"] == b"1"
    assert headers["barnabas.error.key"] == b"k1"
    assert headers["barnabas.error.timestamp"] == str(AT_MS).encode()


def test_one_producer_serves_all_tasks_of_a_worker(cluster: EmbeddedBroker) -> None:
    _create(cluster, "few")
    # A name of its own, so that no other test's producer is lent.
    client = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": "few"}
    before = producers.idle_count
    for offset in (0, 10, 20):
        _decoder(client, badRecords="topic", deadLetterTopic="few").apply(batch(VALUES, first_offset=offset))
    assert producers.idle_count == before + 1
    _decoder({**client, "client.id": "none"}, badRecords="topic", deadLetterTopic="few").apply(batch([b"{}"]))
    assert producers.idle_count == before + 1


def test_who_has_enough_of_the_rows_leaves_no_letter_behind(cluster: EmbeddedBroker) -> None:
    _create(cluster, "much")
    _create(cluster, "dead.of.much")
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for value in VALUES:
            producer.send("much", value)
    options = {"badRecords": "topic", "deadLetterTopic": "dead.of.much", "subscribe": "much", **JSON}
    client = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "kafka.linger.ms": "60000"}
    source = BarnabasDataSource({**client, **options})
    reader = source.reader(source.schema())
    (part,) = reader.partitions()
    rows = reader.read(part)
    assert isinstance(rows, Generator)
    assert next(rows).num_rows == 3
    rows.close()
    assert [letter.key for letter in _letters(cluster, "dead.of.much", 2)] == [b"much-0-1", b"much-0-3"]


def _large(value: bytes, cluster: EmbeddedBroker, topic: str, **client: str) -> None:
    """Decode a batch with a bad record that is about as large as a topic takes, unless it is told otherwise."""
    settings = {"bootstrap.servers": cluster.bootstrap_servers}
    settings |= {name.replace("_", "."): given for name, given in client.items()}
    assert _decoder(settings, badRecords="topic", deadLetterTopic=topic).apply(batch([value])).num_rows == 0


def test_a_record_that_was_just_small_enough_for_its_topic_makes_a_letter(cluster: EmbeddedBroker) -> None:
    _create(cluster, "large")
    _create(cluster, "larger", max_message_bytes="3000000")
    text, noise = b"{" + b"a" * 1_048_400, Random(1).randbytes(1_048_400)
    _large(text, cluster, "large")
    assert _letters(cluster, "large", 1)[0].value == text
    _large(noise, cluster, "larger")
    assert _letters(cluster, "larger", 1)[0].value == noise

    with pytest.raises(DeadLetterError, match="offset 100 of clicks-3") as refused:
        _large(noise, cluster, "large")
    assert "raise max.message.bytes of the topic 'large'" in str(refused.value)
    assert "See that" not in str(refused.value)
    with pytest.raises(DeadLetterError, match=r"raise the options kafka.max.request.size and kafka.buffer.memory"):
        _large(text, cluster, "large", max_request_size="1000000")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("value.serializer", "string", "kafka.value.serializer cannot be used with dead letters"),
        ("transactional.id", "t", "kafka.transactional.id cannot be used with dead letters"),
        ("partitioner.class", "org.x.Y", "kafka.partitioner.class cannot be used with dead letters"),
        ("max.request.size", "much", "kafka.max.request.size = 'much'"),
    ],
)
def test_settings_that_make_no_producer_of_letters_are_refused(name: str, value: str, said: str) -> None:
    with pytest.raises(OptionError) as refused:
        letter_settings({"bootstrap.servers": "127.0.0.1:9", name: value})
    assert said in str(refused.value)


def test_a_dead_letter_topic_that_cannot_be_written_fails_the_task() -> None:
    client = {"bootstrap.servers": "127.0.0.1:9", "max.block.ms": "300", "default.api.timeout.ms": "300"}
    decoder = _decoder(client, badRecords="topic", deadLetterTopic="dead")
    with pytest.raises(DeadLetterError, match=r"Nothing is lost.*See that the topic exists"):
        decoder.apply(batch(VALUES))


def test_an_excerpt_is_short_and_harmless() -> None:
    assert excerpt(b"\x1b[2J\xff\x00\n" + "é".encode()) == "\\x1b[2J\\xff\\x00\\né"
    assert excerpt(b"x" * 1000) == "x" * 80 + " … and 920 bytes more"


def test_framed_json_is_decoded_behind_its_frame() -> None:
    values = [b"\0\0\0\0\7" + b'{"id": 1}', None, b"\0\0\0\0\7{", b'{"id": 2}', b"\0\0\0\0\7" + b'{"id": 3}', b"\0\0"]
    decoded = _decoder(valueFraming="registry", badRecords="column").apply(batch(values))
    assert [row and row["id"] for row in decoded.column("value").to_pylist()] == [1, None, None, None, 3, None]
    errors = [item and item["error"].partition(":")[0] for item in decoded.column("_bad_record").to_pylist()]
    assert errors == [None, None, "JSON_SYNTAX", "NO_REGISTRY_FRAMING", None, "NO_REGISTRY_FRAMING"]
    good = _decoder(valueFraming="registry").apply(batch(values[:2]))
    assert good.column("value").to_pylist() == [{"id": 1, "name": None}, None]


def test_slices_of_batches_are_decoded_like_whole_ones() -> None:
    whole = batch([b"broken", b'{"id": 1}', None, b'{"id": 2}', b"broken"])
    part = whole.slice(1, 3)
    assert _decoder().apply(part).column("value").to_pylist() == [
        {"id": 1, "name": None},
        None,
        {"id": 2, "name": None},
    ]
