"""What a producer's batch must be like, what it is turned into, and what the producer is told otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.records import BatchBuilder, BatchView, Codec, TimestampType, emptied
from barnabas.records.compression import DecompressionLimitError
from barnabas.storage.errors import AppendRefusedError
from barnabas.storage.settings import TopicSettings
from barnabas.storage.validation import prepare_from_client, prepare_from_coordinator, prepare_from_leader
from tests.records.naive import NaiveBatch, NaiveRecord, encode
from tests.records.test_legacy import message
from tests.storage.logs import NOW_MS, batch, marker, new_disk, open_log, topic_settings

RECORDS = [NaiveRecord(NOW_MS - 5, b"k", b"v" * 40, (), 0), NaiveRecord(NOW_MS - 9, b"k", b"v" * 40, (), 1)]
GOOD = NaiveBatch(RECORDS)
COMPRESSION_TYPES = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


def refusal(records: bytes | bytearray, **settings: Any) -> AppendRefusedError:
    """How a client is refused, with a look whether anything was written."""
    disk = new_disk()
    topic = topic_settings(**settings)
    log = open_log(disk, topic)
    before = disk.contents()
    with pytest.raises(AppendRefusedError) as refused:
        log.append(prepare_from_client(records, topic, NOW_MS), leader_epoch=0, now_ms=NOW_MS)
    assert disk.contents() == before
    assert log.log_end_offset == 0
    return refused.value


def damaged(data: bytes | bytearray) -> bytearray:
    broken = bytearray(data)
    broken[-1] ^= 1
    return broken


SOUND = bytes(encode(GOOD))
REFUSED: dict[str, tuple[bytes | bytearray, dict[str, Any], ErrorCode]] = {
    "no batch": (b"", {}, ErrorCode.INVALID_RECORD),
    "two batches": (SOUND + SOUND, {}, ErrorCode.INVALID_RECORD),
    "half a batch": (SOUND[:-1], {}, ErrorCode.INVALID_RECORD),
    "bytes after the batch": (SOUND + b"?", {}, ErrorCode.INVALID_RECORD),
    "a message of format 1": (message(0, b"old"), {}, ErrorCode.INVALID_RECORD),
    "a message of format 0": (message(0, b"old", magic=0), {}, ErrorCode.INVALID_RECORD),
    "a base offset": (encode(replace(GOOD, base_offset=7)), {}, ErrorCode.INVALID_RECORD),
    "a control batch": (marker(1, 0, committed=True), {}, ErrorCode.INVALID_RECORD),
    "a count that does not fit": (encode(replace(GOOD, last_offset_delta=5)), {}, ErrorCode.INVALID_RECORD),
    "no records": (emptied(BatchView(bytearray(SOUND))), {}, ErrorCode.INVALID_RECORD),
    "a producer without a sequence": (
        encode(replace(GOOD, producer_id=4, producer_epoch=0)),
        {},
        ErrorCode.INVALID_RECORD,
    ),
    "records cut off": (encode(replace(GOOD, record_count=3, last_offset_delta=2)), {}, ErrorCode.INVALID_RECORD),
    "bytes after the records": (encode(replace(GOOD, trailing=b"??")), {}, ErrorCode.INVALID_RECORD),
    "an unknown codec": (encode(replace(GOOD, attributes=7)), {}, ErrorCode.INVALID_RECORD),
    "a wrong CRC": (damaged(SOUND), {}, ErrorCode.CORRUPT_MESSAGE),
    "a length below that of a header": (SOUND[:8] + bytes(4) + SOUND[12:], {}, ErrorCode.CORRUPT_MESSAGE),
    "more bytes than a batch may have": (SOUND, {"max_message_bytes": len(SOUND) - 1}, ErrorCode.MESSAGE_TOO_LARGE),
    "more bytes than a segment may have": (
        SOUND,
        {"internal_segment_bytes": len(SOUND) - 1},
        ErrorCode.RECORD_LIST_TOO_LARGE,
    ),
    "append time from a producer": (encode(replace(GOOD, attributes=8)), {}, ErrorCode.INVALID_TIMESTAMP),
    "a record that is too old": (SOUND, {"message_timestamp_before_max_ms": 7}, ErrorCode.INVALID_TIMESTAMP),
    "no key in a compacted topic": (
        batch([b"v"], key=None),
        {"cleanup_policy": ("compact",)},
        ErrorCode.INVALID_RECORD,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_batch_gets_its_code_and_leaves_no_trace(name: str) -> None:
    data, settings, code = REFUSED[name]
    assert refusal(data, **settings).code is code


def test_a_good_batch_is_taken() -> None:
    prepared = prepare_from_client(SOUND, topic_settings(), NOW_MS)
    assert bytes(prepared.data)[61:] == SOUND[61:]
    assert (prepared.max_timestamp_ms, prepared.append_time_ms) == (NOW_MS - 5, -1)


def test_compressed_records_that_cannot_be_decompressed_are_refused() -> None:
    view = BatchView(batch([b"v" * 100], codec=Codec.GZIP))
    view.data[61:65] = b"????"
    view.stamp_producer(producer_id=-1, producer_epoch=-1, base_sequence=-1)  # makes the CRC right
    assert refusal(bytes(view.data)).code is ErrorCode.INVALID_RECORD


def test_sizes_are_those_of_the_batch_as_sent() -> None:
    data = batch([b"v" * 5000], codec=Codec.GZIP)
    prepared = prepare_from_client(data, topic_settings(max_message_bytes=len(data)), NOW_MS)
    assert prepared.size_bytes == len(data)


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ({"max_message_bytes": 400}, ErrorCode.MESSAGE_TOO_LARGE),
        ({"max_message_bytes": 9000, "internal_segment_bytes": 400}, ErrorCode.RECORD_LIST_TOO_LARGE),
    ],
)
def test_sizes_are_looked_at_again_after_recompression(limits: dict[str, Any], code: ErrorCode) -> None:
    data = batch([b"v" * 500], codec=Codec.GZIP)
    assert len(data) < 400
    assert refusal(data, compression_type="uncompressed", **limits).code is code


def test_all_records_without_a_key_are_named() -> None:
    keys = [None, b"k", None]
    records = [NaiveRecord(NOW_MS, key, b"v", (), number) for number, key in enumerate(keys)]
    error = refusal(encode(NaiveBatch(records)), cleanup_policy=("compact", "delete"))
    assert [each.number for each in error.record_errors] == [0, 2]


def test_all_records_out_of_time_are_named() -> None:
    offsets_ms = [0, -101, 51, 50, -100]
    records = [NaiveRecord(NOW_MS + each, b"k", b"v", (), number) for number, each in enumerate(offsets_ms)]
    limits = {"message_timestamp_before_max_ms": 100, "message_timestamp_after_max_ms": 50}
    error = refusal(encode(NaiveBatch(records)), **limits)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert [each.number for each in error.record_errors] == [1, 2]


def test_records_without_timestamps_are_welcome() -> None:
    settings = topic_settings(message_timestamp_before_max_ms=100)
    data = batch([b"v"], timestamp_ms=-1)
    assert prepare_from_client(data, settings, NOW_MS).max_timestamp_ms == -1


def test_append_time_is_stamped_whatever_the_records_say() -> None:
    settings = topic_settings(message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms=100)
    prepared = prepare_from_client(batch([b"v", b"w"], timestamp_ms=5), settings, NOW_MS)
    (view,) = prepared.batches
    view.check_crc()
    assert view.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert {record.timestamp_ms for record in view} == {NOW_MS}
    assert (view.max_timestamp_ms, prepared.append_time_ms, prepared.max_timestamp_ms) == (NOW_MS, NOW_MS, NOW_MS)


def test_a_wrong_highest_timestamp_is_corrected() -> None:
    prepared = prepare_from_client(encode(replace(GOOD, max_timestamp_ms=12345)), topic_settings(), NOW_MS)
    (view,) = prepared.batches
    view.check_crc()
    assert view.max_timestamp_ms == prepared.max_timestamp_ms == NOW_MS - 5
    assert [record.timestamp_ms for record in view] == [NOW_MS - 5, NOW_MS - 9]


@pytest.mark.parametrize("sent", list(Codec), ids=lambda codec: f"sent as {codec.name}")
@pytest.mark.parametrize("wanted", ["producer", *COMPRESSION_TYPES])
def test_records_get_the_codec_of_the_topic(sent: Codec, wanted: str) -> None:
    settings = topic_settings(compression_type=wanted)
    data = batch([b"v" * 300, None], codec=sent, producer_id=7, producer_epoch=1, base_sequence=3, transactional=True)
    expected = list(BatchView(data))
    prepared = prepare_from_client(bytes(data), settings, NOW_MS)
    (view,) = prepared.batches
    view.check_crc()
    assert view.codec is COMPRESSION_TYPES.get(wanted, sent)
    assert list(view) == expected
    assert (view.producer_id, view.producer_epoch, view.base_sequence) == (7, 1, 3)
    assert view.is_transactional
    if wanted == "producer":
        assert bytes(view.data) == bytes(data), "records are not touched without need"


@pytest.mark.parametrize("wanted", ["producer", "zstd"])
def test_odd_offset_deltas_are_counted_anew(wanted: str) -> None:
    records = [NaiveRecord(NOW_MS, b"k", b"v" * 99, (("h", None),), delta) for delta in (0, 0, 9)]
    sent = NaiveBatch(records, last_offset_delta=2, producer_id=7, producer_epoch=1, base_sequence=3, attributes=16)
    (view,) = prepare_from_client(encode(sent), topic_settings(compression_type=wanted), NOW_MS).batches
    view.check_crc()
    assert [record.offset for record in view] == [0, 1, 2]
    assert [(record.key, record.value, record.headers) for record in view] == [(b"k", b"v" * 99, (("h", None),))] * 3
    assert (view.producer_id, view.producer_epoch, view.base_sequence, view.is_transactional) == (7, 1, 3, True)
    assert view.last_offset_delta == 2


def test_what_a_coordinator_writes_is_taken_as_it_is() -> None:
    data = marker(1, 0, committed=False)
    prepared = prepare_from_coordinator(bytes(data), topic_settings())
    assert bytes(prepared.data) == data
    assert prepared.is_from_coordinator


def test_what_a_coordinator_writes_keeps_to_the_sizes() -> None:
    with pytest.raises(AppendRefusedError) as refused:
        prepare_from_coordinator(batch([b"v" * 2000]), topic_settings())
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


def fetched(*base_offsets: int, count: int = 2) -> bytearray:
    return bytearray().join(batch([b"v"] * count, base_offset=offset, leader_epoch=4) for offset in base_offsets)


def test_batches_from_a_leader_keep_their_offsets_and_a_cut_off_one_is_left_out() -> None:
    whole = fetched(5, 7, 20)
    prepared = prepare_from_leader(bytes(whole + fetched(22)[:-1]))
    assert [view.base_offset for view in prepared.batches] == [5, 7, 20]
    assert bytes(prepared.data) == whole
    assert prepare_from_leader(b"").batches == []


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (damaged(fetched(5, 7)), ErrorCode.CORRUPT_MESSAGE),
        (fetched(5)[:8] + b"\0\0\0\1" + fetched(5)[12:], ErrorCode.CORRUPT_MESSAGE),
        (fetched(5, 6), ErrorCode.OFFSET_OUT_OF_RANGE),
        (fetched(5, 3), ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_bad_batches_from_a_leader(data: bytearray, code: ErrorCode) -> None:
    with pytest.raises(AppendRefusedError) as refused:
        prepare_from_leader(data)
    assert refused.value.code is code


def test_a_topic_without_settings_takes_a_large_batch() -> None:
    assert prepare_from_client(batch([b"v" * 50_000]), TopicSettings(), NOW_MS).size_bytes > 50_000


@pytest.mark.parametrize("key", [b"", b"\0", b"\xff\xff\0\0"])
def test_a_control_batch_from_the_leader_must_be_readable(key: bytes) -> None:
    data = batch([b"\0\0\0\0\0\0"], key=key, producer_id=1, producer_epoch=0, transactional=True, control=True)
    with pytest.raises(AppendRefusedError) as refusal:
        prepare_from_leader(data)
    assert refusal.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("offset", [-1, 2**63 - 1, 2**63 - 2**31])
def test_offsets_from_the_leader_must_be_ones_that_can_be(offset: int) -> None:
    data = batch([b"x"])
    data[:8] = offset.to_bytes(8, "big", signed=True)
    with pytest.raises(AppendRefusedError, match=f"there is no offset {offset}"):
        prepare_from_leader(data)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD, Codec.LZ4], ids=lambda codec: codec.name)
def test_little_that_becomes_much_can_be_left_to_those_who_have_time(codec: Codec) -> None:
    builder = BatchBuilder(2_000_000, codec=codec)
    for _ in range(3):
        builder.append(bytes(300_000), b"key", NOW_MS)
    data, topic = builder.build(), topic_settings(max_message_bytes=10_000, internal_segment_bytes=100_000)
    assert len(data) < 10_000
    with pytest.raises(DecompressionLimitError):
        prepare_from_client(data, topic, NOW_MS, limit_bytes=500_000)
    assert prepare_from_client(data, topic, NOW_MS).batches[0].record_count == 3


def test_a_refusal_does_not_hold_on_to_what_was_decompressed() -> None:
    view = BatchView(batch([b"v" * 100], codec=Codec.GZIP))
    view.data[61:65] = b"????"
    view.stamp_producer(producer_id=-1, producer_epoch=-1, base_sequence=-1)  # makes the CRC right
    assert refusal(bytes(view.data)).__context__ is None
