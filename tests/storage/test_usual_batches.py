"""Most batches take a short way through the checks. It leads where the long one leads."""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import RemoteProtocolError
from barnabas.records import BatchView
from barnabas.storage import validation
from barnabas.storage.errors import AppendRefusedError
from barnabas.storage.settings import TopicSettings
from barnabas.storage.validation import prepare_from_client
from tests.records.naive import NaiveBatch, NaiveRecord, encode
from tests.records.strategies import record_lists
from tests.storage.logs import NOW_MS, topic_settings

RECORDS = [NaiveRecord(NOW_MS - 5, b"k", b"v", (), 0), NaiveRecord(NOW_MS, None, b"w", (("h", b"x"),), 1)]
USUAL = NaiveBatch(RECORDS)

topics = st.builds(
    topic_settings,
    max_message_bytes=st.sampled_from([1_000_000, 150]),
    compression_type=st.sampled_from(["producer", "producer", "uncompressed", "gzip"]),
    message_timestamp_type=st.sampled_from(["CreateTime", "CreateTime", "LogAppendTime"]),
    cleanup_policy=st.sampled_from([("delete",), ("compact",)]),
    message_timestamp_before_max_ms=st.sampled_from([2**63 - 1, 3_600_000, 0]),
    message_timestamp_after_max_ms=st.sampled_from([2**63 - 1, 3_600_000]),
)
fields = st.fixed_dictionaries(
    {},
    optional={
        "base_offset": st.sampled_from([0, 1, -1]),
        "attributes": st.integers(0, 0x7F),
        "last_offset_delta": st.integers(0, 12),
        "max_timestamp_ms": st.sampled_from([-1, NOW_MS]),
        "producer_id": st.integers(-1, 2),
        "base_sequence": st.integers(-1, 2),
        "record_count": st.sampled_from([0, 1, 2, 3, 2**31 - 1]),
        "trailing": st.sampled_from([b"", b"?"]),
    },
)


def outcome(data: bytes, settings: TopicSettings) -> tuple[Any, ...]:
    """All that can be seen of a check: the bytes that would be written, or how the batch is refused."""
    try:
        prepared = prepare_from_client(bytearray(data), settings, NOW_MS)
    except AppendRefusedError as refused:
        return refused.code, str(refused), refused.record_errors
    return bytes(prepared.data), prepared.max_timestamp_ms, prepared.append_time_ms, prepared.is_from_coordinator


def both_outcomes(data: bytes, settings: TopicSettings) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    with pytest.MonkeyPatch.context() as patch:
        short = outcome(data, settings)
        patch.setattr(validation, "_summary_if_welcome", lambda *_: None)
        return short, outcome(data, settings)


@given(records=st.one_of(record_lists(), record_lists(gaps=True)), fields=fields, settings=topics)
def test_both_ways_come_to_the_same(
    records: list[NaiveRecord], fields: dict[str, Any], settings: TopicSettings
) -> None:
    short, long = both_outcomes(encode(NaiveBatch(records, **fields)), settings)
    assert short == long


@given(changes=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=4), data=st.data())
def test_both_ways_come_to_the_same_with_bytes_that_an_attacker_chose(
    changes: list[tuple[int, int]], data: st.DataObject
) -> None:
    raw = bytearray(encode(USUAL))
    for place, value in changes:
        raw[place % len(raw)] = value
    if data.draw(st.booleans(), "with the CRC that belongs to them"):
        struct.pack_into(">I", raw, 17, crc32c(bytes(raw[21:])))
    short, long = both_outcomes(bytes(raw), topic_settings())
    assert short == long


@given(st.binary(max_size=90), st.integers(0, 2**31 - 1))
def test_hostile_records_are_no_usual_ones(payload: bytes, count: int) -> None:
    raw = bytearray(encode(USUAL))[:61] + payload
    struct.pack_into(">i", raw, 8, len(raw) - 12)
    struct.pack_into(">i", raw, 23, max(count - 1, 0))
    struct.pack_into(">i", raw, 57, count)
    struct.pack_into(">I", raw, 17, crc32c(bytes(raw[21:])))
    batch = BatchView(raw)
    expected = None
    with suppress(RemoteProtocolError):
        expected = batch.summarise()
    found = batch.summarise_if_usual()
    assert found is None or repr(found) == repr(expected)


def test_the_short_way_is_taken_by_what_producers_send() -> None:
    for sent in (
        USUAL,
        replace(USUAL, attributes=0x10),
        replace(USUAL, producer_id=7, producer_epoch=0, base_sequence=3),
    ):
        assert BatchView(bytearray(encode(sent))).summarise_if_usual() is not None


@pytest.mark.parametrize(
    "unusual",
    [
        replace(USUAL, base_offset=1),
        replace(USUAL, attributes=1),
        replace(USUAL, attributes=0x08),
        replace(USUAL, attributes=0x20),
        replace(USUAL, attributes=0x40),
        replace(USUAL, max_timestamp_ms=NOW_MS + 1),
        replace(USUAL, producer_id=7),
        replace(USUAL, last_offset_delta=2),
        replace(USUAL, record_count=1, last_offset_delta=0),
        replace(USUAL, trailing=b"?"),
        NaiveBatch([replace(RECORDS[0], offset_delta=1)], last_offset_delta=0),
    ],
)
def test_what_is_unusual_is_left_to_the_long_way(unusual: NaiveBatch) -> None:
    assert BatchView(bytearray(encode(unusual))).summarise_if_usual() is None


def test_a_batch_that_cannot_be_stamped_is_not_usual() -> None:
    assert BatchView(bytes(encode(USUAL))).summarise_if_usual() is None


def test_a_wrong_crc_is_not_usual() -> None:
    raw = bytearray(encode(USUAL))
    raw[-2] ^= 1
    assert BatchView(raw).summarise_if_usual() is None
