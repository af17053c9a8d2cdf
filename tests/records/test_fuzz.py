"""Hostile bytes: every way of reading them ends well or with the one error for bad bytes, and with little memory."""

from __future__ import annotations

import contextlib
import random
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.records import naive
from tests.records.naive import NaiveBatch, NaiveRecord
from tests.records.test_oracles import samples

from barnabas.base.errors import RemoteProtocolError
from barnabas.records import BatchView, Codec, iter_entries, iter_records, read_marker
from barnabas.records.arrow import ArrowCollector
from barnabas.records.legacy import as_batch

RECORDS = [
    NaiveRecord(5, b"key", b"value" * 9, (("name", b"content"), ("größe", None)), 0),
    NaiveRecord(-7, None, None, (), 1),
    NaiveRecord(2**62, b"", b"x" * 200, (("", b""),), 2),
]
BATCHES = [naive.encode(NaiveBatch(RECORDS, attributes=codec)) for codec in Codec]
BATCHES += [bytes.fromhex(sample.values[0]["hex"]) for sample in samples("kafka.jsonl")]


def read_in_every_way(data: bytes) -> None:
    with contextlib.suppress(RemoteProtocolError):
        list(iter_records(data))
    with contextlib.suppress(RemoteProtocolError):
        list(iter_records(data, check_crcs=False, limit_bytes=1 << 20))
    collector = ArrowCollector()
    with contextlib.suppress(RemoteProtocolError):
        for entry in iter_entries(data):
            rows = collector.row_count
            try:
                batch = entry if isinstance(entry, BatchView) else as_batch(entry, 1 << 20)
                counted = None
                if not batch.is_control:
                    with contextlib.suppress(RemoteProtocolError):
                        counted = batch.summarise(1 << 20).record_count
                collector.add(batch, limit_bytes=1 << 20)
                assert batch.is_control or collector.row_count == rows + (counted or 0)
                read_marker(batch)
            except RemoteProtocolError:
                pass
    columns = collector.take()
    columns.validate(full=True)


@given(st.binary(max_size=200))
def test_random_bytes(data: bytes) -> None:
    read_in_every_way(data)


@given(st.binary(max_size=120), st.sampled_from([0, 1, 2]), st.integers(0, 3), st.integers(0, 5))
def test_random_bytes_behind_a_sound_frame(data: bytes, magic: int, codec: int, count: int) -> None:
    body = bytes(4) + bytes([magic]) + bytes(4) + bytes([0, codec]) + bytes(35) + count.to_bytes(1, "big") + data
    read_in_every_way(bytes(8) + len(body).to_bytes(4, "big") + body)


@settings(max_examples=300)
@given(
    st.sampled_from(BATCHES),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=5),
    st.booleans(),
)
def test_changed_batches(batch: bytes, changes: list[tuple[int, int]], only_records: bool) -> None:
    data = bytearray(batch)
    for position, byte in changes:
        data[61 + position % (len(data) - 61) if only_records and len(data) > 61 else position % len(data)] = byte
    read_in_every_way(bytes(data))


def test_many_changed_batches_from_a_seed() -> None:
    chance = random.Random(1883)
    for _ in range(4000):
        data = bytearray(chance.choice(BATCHES[:5]))
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(61, len(data))] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        if chance.random() < 0.3:
            del data[chance.randrange(61, len(data)) :]
            data[8:12] = (len(data) - 12).to_bytes(4, "big")
        read_in_every_way(bytes(data))


@pytest.mark.parametrize("count", [4, 10_000, 2**31 - 1])
@pytest.mark.parametrize("codec", list(Codec))
def test_a_claimed_count_takes_no_memory(codec: Codec, count: int) -> None:
    data = naive.encode(NaiveBatch(RECORDS, attributes=codec, record_count=count))
    tracemalloc.start()
    try:
        for read in (lambda view: view.summarise(), list, ArrowCollector().add):
            with pytest.raises(RemoteProtocolError):
                read(BatchView(data))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("header_count", [2**31 - 1, 1000, -1])
def test_a_claimed_header_count_takes_no_memory(header_count: int) -> None:
    body = b"\0\0\0\1\1" + naive.varint(header_count)
    data = naive.encode(NaiveBatch([], record_count=1, trailing=naive.varint(len(body)) + body))
    for read in (lambda view: view.summarise(), list, ArrowCollector().add):
        with pytest.raises(RemoteProtocolError, match="header count does not fit"):
            read(BatchView(data))


@pytest.mark.parametrize("varint", ["8080808000", "ffffffff1f", "808080808001", "ffffffffffffffffffff01"])
def test_varints_that_are_too_long_are_refused(varint: str) -> None:
    data = naive.encode(NaiveBatch([], record_count=1, trailing=bytes.fromhex(varint) + bytes(9)))
    with pytest.raises(RemoteProtocolError):
        BatchView(data).summarise()
