"""Code that is not ours reads what we write, and we read what it writes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka.record._crecords import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record._crecords import DefaultRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaPlainBuilder
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from kafka.record.legacy_records import LegacyRecordBatchBuilder as KafkaPythonLegacyBuilder
from tests.oracles import needs_kafka, run_java

from barnabas.records import (
    BatchBuilder,
    BatchView,
    Codec,
    Record,
    TransactionMarker,
    build_marker,
    iter_batches,
    iter_entries,
    iter_records,
)
from barnabas.records.legacy import LegacyMessage

SAMPLES = Path(__file__).with_name("samples")
TIMESTAMP_MS = 1_700_000_000_000
Parts = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]
RECORDS: list[Parts] = [
    (TIMESTAMP_MS, b"key", b"value", [("plain", b"text"), ("null", None), ("", b""), ("größe", b"\xff")]),
    (TIMESTAMP_MS + 3_600_000, None, b"no key", []),
    (TIMESTAMP_MS - 1, b"tombstone", None, []),
    (TIMESTAMP_MS - 86_400_000, b"", b"", [("null", None)]),
    (0, None, None, []),
    (TIMESTAMP_MS, b"long", b"Gehilfe " * 30_000, []),
]


def parts_of(records: Any) -> list[Parts]:
    return [(record.timestamp, record.key, record.value, list(record.headers)) for record in records]


def our_parts(records: Iterator[Record]) -> list[Parts]:
    return [(record.timestamp_ms, record.key, record.value, list(record.headers)) for record in records]


def ours(codec: Codec, **options: Any) -> bytes:
    builder = BatchBuilder(1 << 20, codec=codec, **options)
    for timestamp_ms, key, value, headers in RECORDS:
        assert builder.append(value, key, timestamp_ms, headers) is not None
    return bytes(builder.build())


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("build", [AiokafkaBuilder, AiokafkaPlainBuilder, KafkaPythonBuilder])
def test_we_read_what_python_clients_build(build: Any, codec: Codec) -> None:
    builder = build(
        magic=2,
        compression_type=int(codec),
        is_transactional=True,
        producer_id=4711,
        producer_epoch=3,
        base_sequence=9,
        batch_size=1 << 20,
    )
    for offset, (timestamp_ms, key, value, headers) in enumerate(RECORDS):
        assert builder.append(offset, timestamp_ms, key, value, headers)
    (view,) = iter_batches(bytes(builder.build()))
    view.check_crc()
    assert our_parts(view.records()) == RECORDS
    assert (view.codec, view.is_transactional, view.producer_id, view.producer_epoch, view.base_sequence) == (
        codec,
        True,
        4711,
        3,
        9,
    )


@pytest.mark.parametrize("codec", list(Codec))
def test_python_clients_read_what_we_build(codec: Codec) -> None:
    built = ours(codec, producer_id=4711, producer_epoch=3, base_sequence=9, transactional=True)
    assert built[22] & 7 == codec
    for read in (AiokafkaBatch, KafkaPythonBatch):
        batch = read(built)
        assert batch.validate_crc()
        assert batch.is_transactional
        assert parts_of(batch) == RECORDS


OLD_FORMATS = [(magic, codec) for magic in (0, 1) for codec in Codec if codec is not Codec.ZSTD]
# kafka-python needs one more package for this one; Kafka's own samples have it.
OLD_FORMATS.remove((0, Codec.LZ4))


@pytest.mark.parametrize(("magic", "codec"), OLD_FORMATS)
def test_we_read_the_old_formats_of_kafka_python(magic: int, codec: Codec) -> None:
    builder = KafkaPythonLegacyBuilder(magic=magic, compression_type=int(codec), batch_size=1 << 20)
    for offset, (timestamp_ms, key, value, _) in enumerate(RECORDS):
        assert builder.append(offset, timestamp=timestamp_ms, key=key, value=value)
    data = bytearray(builder.build())
    if codec is not Codec.NONE:
        data[:8] = (1000 + len(RECORDS) - 1).to_bytes(8, "big")  # as a broker stamps a wrapper: the last offset
    records = list(iter_records(data))
    assert [(record.key, record.value) for record in records] == [(key, value) for _, key, value, _ in RECORDS]
    base_offset = 1000 if magic == 1 and codec is not Codec.NONE else 0
    assert [record.offset - base_offset for record in records] == list(range(len(RECORDS)))
    assert [record.timestamp_ms for record in records] == [ms if magic else -1 for ms, _, _, _ in RECORDS]


def described(data: bytes) -> list[dict[str, Any]]:
    """What we see in `data`, in the words of the Java program that made the samples."""

    def shown(part: bytes | None) -> str | None:
        if part is None:
            return None
        return "sha256:" + hashlib.sha256(part).hexdigest() if len(part) > 1000 else part.hex()

    def described_entry(entry: BatchView | LegacyMessage) -> dict[str, Any]:
        entry.check_crc()
        fields: dict[str, Any] = {
            "magic": entry.magic,
            "codec": int(entry.codec),
            "timestamp_type": int(entry.timestamp_type),
            "last_offset": entry.last_offset,
            "control": entry.is_control,
            "records": [
                {
                    "offset": record.offset,
                    "timestamp_ms": record.timestamp_ms,
                    "key": shown(record.key),
                    "value": shown(record.value),
                    "headers": [[name, shown(content)] for name, content in record.headers],
                }
                for record in entry.records()
            ],
        }
        if isinstance(entry, LegacyMessage):
            none = dict.fromkeys(
                ("leader_epoch", "producer_id", "producer_epoch", "base_sequence", "last_sequence"), -1
            )
            return (
                fields
                | none
                | {
                    "max_timestamp_ms": entry.timestamp_ms,
                    "transactional": False,
                    "delete_horizon_ms": None,
                }
            )
        return fields | {
            "leader_epoch": entry.leader_epoch,
            "max_timestamp_ms": entry.max_timestamp_ms,
            "producer_id": entry.producer_id,
            "producer_epoch": entry.producer_epoch,
            "base_sequence": entry.base_sequence,
            "last_sequence": entry.last_sequence,
            "transactional": entry.is_transactional,
            "delete_horizon_ms": entry.delete_horizon_ms,
        }

    return [described_entry(entry) for entry in iter_entries(data)]


def samples(name: str) -> list[Any]:
    lines = [json.loads(line) for line in (SAMPLES / name).read_text(encoding="utf-8").splitlines()]
    return [pytest.param(line, id=line.get("name")) for line in lines]


@pytest.mark.parametrize("sample", samples("kafka.jsonl"))
def test_we_see_in_kafkas_batches_what_kafka_sees(sample: dict[str, Any]) -> None:
    assert described(bytes.fromhex(sample["hex"])) == sample["batches"]


@pytest.mark.parametrize("sample", samples("librdkafka.jsonl"))
def test_we_read_what_librdkafka_builds(sample: dict[str, Any]) -> None:
    (view,) = iter_batches(bytes.fromhex(sample["hex"]))
    view.check_crc()
    assert view.codec is Codec[sample["codec"].upper()]
    assert (view.has_producer_id, view.base_sequence) == ((True, 0) if sample["idempotent"] else (False, -1))
    assert view.summarise().first_gap == -1
    assert our_parts(view.records()) == [
        (TIMESTAMP_MS, b"key", b"value", [("plain", b"text"), ("null", None), ("", b""), ("größe", "ü".encode())]),
        (TIMESTAMP_MS, None, b"no key", []),
        (TIMESTAMP_MS, b"tombstone", None, []),
        (TIMESTAMP_MS, b"", b"", []),
        (TIMESTAMP_MS, b"long", b"Gehilfe " * 60, []),
    ]


@needs_kafka()
def test_kafka_reads_what_we_build() -> None:
    built = [ours(codec) for codec in Codec]
    built += [ours(codec, log_append_time_ms=5, base_offset=2**40, leader_epoch=4) for codec in Codec]
    built += [ours(Codec.ZSTD, producer_id=1, producer_epoch=2, base_sequence=2**31 - 2, transactional=True, level=-7)]
    built += [ours(Codec.LZ4, level=9), ours(Codec.GZIP, level=9), ours(Codec.NONE, delete_horizon_ms=TIMESTAMP_MS)]
    built += [bytes(build_marker(TransactionMarker(7, 1, 42, committed), TIMESTAMP_MS)) for committed in (True, False)]
    program = str(SAMPLES / "KafkaRecords.java")
    answer = run_java(program, "\n".join(data.hex() for data in built), arguments=("read",))
    seen = [json.loads(line)["batches"] for line in answer.splitlines()]
    assert seen == [described(data) for data in built]
