"""Formats 0 and 1: what Kafka's own samples do not show, above all bytes that should not be."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.records import naive

from barnabas.base.errors import RemoteProtocolError
from barnabas.records import BatchView, Codec, TimestampType, iter_entries, iter_records
from barnabas.records.legacy import LegacyMessage, as_batch, iter_messages


def message(
    offset: int,
    value: bytes | None,
    key: bytes | None = None,
    *,
    magic: int = 1,
    attributes: int = 0,
    timestamp_ms: int = 5,
) -> bytes:
    def nullable(part: bytes | None) -> bytes:
        return struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part

    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp_ms) if magic else b"")
    body += nullable(key) + nullable(value)
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapper(offset: int, *inner: bytes, codec: Codec = Codec.GZIP, magic: int = 1, attributes: int = 0) -> bytes:
    value = naive.compress(codec, b"".join(inner))
    return message(offset, value, magic=magic, attributes=attributes | codec, timestamp_ms=77)


def test_relative_offsets_end_at_the_wrappers_even_with_gaps() -> None:
    data = wrapper(105, message(0, b"a"), message(2, b"b"), message(3, b"c"))
    assert [(record.offset, record.value) for record in iter_records(data)] == [(102, b"a"), (104, b"b"), (105, b"c")]
    assert [record.offset for record in iter_records(data, from_offset=104)] == [104, 105]


def test_offsets_in_a_wrapper_of_format_0_are_absolute() -> None:
    data = wrapper(105, message(102, b"a", magic=0), message(105, b"b", magic=0), magic=0)
    assert [record.offset for record in iter_records(data)] == [102, 105]
    assert {(record.timestamp_ms, record.timestamp_type) for record in iter_records(data)} == {(-1, TimestampType.NONE)}


def test_append_time_of_the_wrapper_rules() -> None:
    data = wrapper(1, message(0, b"a", timestamp_ms=3), message(1, b"b", timestamp_ms=4), attributes=0x08)
    assert [(record.timestamp_ms, record.timestamp_type) for record in iter_records(data)] == [(77, 1), (77, 1)]


def test_formats_may_be_mixed_in_a_log() -> None:
    new = naive.encode(naive.NaiveBatch([naive.NaiveRecord(1, None, b"new")], base_offset=2))
    data = message(0, b"oldest", magic=0) + message(1, b"old") + new + message(3, b"cut off")[:-1]
    assert [record.value for record in iter_records(data)] == [b"oldest", b"old", b"new"]
    walk = iter_entries(data)
    assert [entry.magic for entry in walk] == [0, 1, 2]
    assert walk.truncated


def test_a_wrapper_as_a_batch_of_today() -> None:
    data = wrapper(105, message(0, b"a", b"k"), message(3, None), attributes=0x08)
    (entry,) = iter_messages(data)
    batch = as_batch(entry)
    batch.check_crc()
    assert isinstance(batch, BatchView)
    assert list(batch) == list(entry.records())
    assert (batch.base_offset, batch.last_offset) == (102, 105)
    assert (entry.last_offset, entry.next_offset, entry.size_bytes) == (105, 106, len(data))


def test_wrong_checksums_are_found_outside_and_inside() -> None:
    inner = bytearray(message(0, b"a"))
    inner[-1] ^= 1
    with pytest.raises(RemoteProtocolError, match="message at offset 0 is corrupt"):
        list(iter_records(inner))
    with pytest.raises(RemoteProtocolError, match="message at offset 0 is corrupt"):
        list(iter_records(wrapper(0, bytes(inner)), check_crcs=False))


BAD = {
    "a wrapper in a wrapper": wrapper(0, wrapper(0, message(0, b"a"))),
    "an empty wrapper": wrapper(0),
    "a wrapper without a value": message(0, None, attributes=1),
    "a message cut off in a wrapper": wrapper(0, message(0, b"a"), message(1, b"b")[:-1]),
    "a codec that came later": message(0, b"", attributes=4),
    "an offset that is too large": wrapper(2**63 - 1, message(2**62, b"a"), message(0, b"b")),
    "an offset that is too small": wrapper(-(2**63), message(0, b"a"), message(2**62, b"b")),
    "a batch of today in a wrapper": wrapper(0, naive.encode(naive.NaiveBatch([naive.NaiveRecord(0, None, None)]))),
}


@pytest.mark.parametrize("name", BAD)
def test_what_should_not_be_is_refused(name: str) -> None:
    with pytest.raises(RemoteProtocolError):
        list(iter_records(BAD[name]))


def test_offsets_that_do_not_rise_make_no_batch() -> None:
    (entry,) = iter_messages(wrapper(0, message(0, b"a"), message(0, b"b")))
    assert [record.offset for record in entry.records()] == [0, 0]
    with pytest.raises(RemoteProtocolError, match="rise"):
        as_batch(entry)


@given(st.binary(min_size=14, max_size=60), st.integers(0, 3))
def test_random_fields(tail: bytes, magic: int) -> None:
    body = tail[:4] + bytes([magic]) + tail[4:]
    data = memoryview(bytes(8) + len(body).to_bytes(4, "big") + body)
    try:
        read = list(LegacyMessage(data).records())
    except RemoteProtocolError:
        return
    assert magic < 2
    assert len(read) <= len(data)
