"""What becomes of records whose value cannot be decoded: the query fails, a column tells, or a topic takes them."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from barnabas import Admin, Consumer, NewTopic
from barnabas.spark.decoding import Decoder, DecodingOptions
from barnabas.spark.decoding.bad_records import BadKind, BadRecordError, BadValue, excerpt
from barnabas.spark.decoding.dead_letters import DeadLetterError, DeadLetters, SourceRecord
from barnabas.spark.schema import source_schema
from barnabas.testing import EmbeddedBroker
from tests.spark.decoding.batches import AT_MS, batch

JSON = {"valueFormat": "json", "valueSchema": "id long, name string"}
VALUES = [b'{"id": 1}', b"no json", None, b'{"id": "x"}', b'{"id": 4}']


def _decoder(client: dict[str, str] | None = None, keep_headers: bool = True, **options: str) -> Decoder:
    parsed = DecodingOptions.parse({**JSON, **options})
    assert parsed is not None
    # As it comes to a worker.
    return Decoder(pickle.loads(pickle.dumps(parsed)), client, keep_headers=keep_headers)


def test_good_batches_have_the_schema_that_spark_was_promised() -> None:
    for include_headers in (False, True):
        for bad_records in ("fail", "column"):
            decoder = _decoder(badRecords=bad_records)
            headers = [None, [("h", b"1")]] if include_headers else None
            decoded = decoder.apply(batch([b'{"id": 1}', None], headers=headers))
            promised = decoder.spark_schema(source_schema(include_headers))
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
        _decoder(badRecords="column", badRecordColumn="Offset").spark_schema(source_schema())


def test_more_bad_records_than_allowed_fail_the_task() -> None:
    decoder = _decoder(badRecords="column", maxBadRecords="3")
    decoder.apply(batch(VALUES))
    with pytest.raises(
        BadRecordError, match=r"more bad records than the 3 that maxBadRecords allows.*offset 203"
    ) as caught:
        decoder.apply(batch(VALUES, first_offset=200))
    assert "raise maxBadRecords" in str(caught.value)


class _Producer:
    """Keeps what is sent; `fate` decides on each record when it is flushed."""

    def __init__(self, fate: Exception | None = None) -> None:
        self.sent: list[tuple[str, bytes | None, bytes, list[tuple[str, bytes | None]]]] = []
        self.fate = fate
        self.told: list[Callable[[Any, Exception | None], None]] = []
        self.is_closed = False

    def send(self, topic: str, value: bytes | None, /, *, key: bytes, headers: Any, on_delivery: Any) -> None:
        self.sent.append((topic, value, key, headers))
        self.told.append(on_delivery)

    def flush(self) -> None:
        for tell in self.told:
            tell(None, self.fate)

    def close(self, timeout: float | None = None) -> None:
        self.is_closed = True


RECORD = SourceRecord("clicks", 3, 17, 5, b"k", b"{", [("trace", b"1"), ("trace", None)])
BAD = BadValue(0, BadKind.JSON_SYNTAX, "it ends", schema_id=7)


def test_a_letter_says_where_it_came_from_and_why() -> None:
    producer = _Producer()
    letters = DeadLetters("dead", lambda: producer)
    letters.send(RECORD, BAD)
    letters.send(RECORD, BAD)
    letters.flush()
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


def test_a_letter_that_is_not_written_fails_the_task() -> None:
    letters = DeadLetters("dead", lambda: _Producer(RuntimeError("disk full")))
    letters.send(RECORD, BAD)
    with pytest.raises(DeadLetterError, match="'dead': disk full"):
        letters.flush()
    with pytest.raises(DeadLetterError):
        letters.send(RECORD, BAD)


def test_without_letters_no_producer_is_made() -> None:
    letters = DeadLetters("dead", lambda: pytest.fail("a producer was made"))
    letters.flush()
    letters.close()


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


def test_letters_are_in_the_topic_when_the_task_ends(cluster: EmbeddedBroker) -> None:
    client = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "fetch.max.bytes": "1000000",
        "isolation.level": "read_committed",
    }
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("dead", num_partitions=2)])
    for _ in range(2):
        decoder = _decoder(client, keep_headers=False, badRecords="topic", deadLetterTopic="dead")
        decoded = decoder.apply(batch(VALUES, headers=[None, [("trace", b"1")], None, None, None]))
        decoder.finish()
        assert decoded.column("offset").to_pylist() == [100, 102, 104]
        assert "headers" not in decoded.schema.names
    with Consumer("dead", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        found: list[Any] = []
        while len(found) < 4:
            found.extend(consumer.poll(5))
    letters: dict[bytes, list[Any]] = {}
    for record in found:
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


def test_a_dead_letter_topic_that_cannot_be_written_fails_the_task() -> None:
    client = {"bootstrap.servers": "127.0.0.1:9", "max.block.ms": "300", "default.api.timeout.ms": "300"}
    with (
        _decoder(client, badRecords="topic", deadLetterTopic="dead") as decoder,
        pytest.raises(DeadLetterError, match="Nothing is lost"),
    ):
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
    assert isinstance(part, pa.RecordBatch)
