"""The loops of compaction: an exact map within a bound, and answers or refusals for any bytes."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import RemoteProtocolError
from barnabas.records import BatchBuilder, BatchView, Codec, iter_batches
from barnabas.records._kernel.compact import rebase_timestamps, retain
from barnabas.records._kernel.keymap import KeyMap
from barnabas.storage.compaction import BatchCleaner, KeyOffsets
from tests.records import naive
from tests.storage import compaction_model as model
from tests.storage.compaction_model import START_MS, batch

NO_LIMIT_BYTES = 1 << 30


@given(
    st.lists(st.tuples(st.one_of(st.none(), st.binary(max_size=3), st.binary(max_size=300)), st.none()), max_size=300),
    st.sampled_from([0, 1100, 2000, 5000, NO_LIMIT_BYTES]),
)
def test_the_map_is_a_dict_with_a_bound(records: list[tuple[bytes | None, None]], limit_bytes: int) -> None:
    keys = KeyMap(limit_bytes)
    expected: dict[bytes, int] = {}
    for offset, (key, _) in enumerate(records):
        view = BatchView(batch(offset, (key, None)).encode())
        refused = keys.add(view.payload(), 1, offset, 0, 0)
        if refused is not None:
            assert refused == offset
            assert key not in expected
            break
        if key is not None:
            expected[key] = offset
    assert len(keys) == keys.key_count == len(expected)
    assert {key: keys.get(key) for key in expected} == expected
    assert keys.get(b"never there, and longer than any") is None
    assert keys.size_bytes <= max(limit_bytes, 2048) or len(keys) == 1
    if limit_bytes == NO_LIMIT_BYTES:
        assert len(expected) == len({key for key, _ in records if key is not None})


def test_many_keys_in_large_batches() -> None:
    rng = random.Random(1)
    records = [(START_MS, rng.randbytes(rng.randrange(1, 3)), rng.randbytes(40)) for _ in range(40_000)]
    builder = BatchBuilder(1 << 22, codec=Codec.LZ4)
    for timestamp_ms, key, value in records:
        builder.append(value, key, timestamp_ms)
    data = bytes(builder.build())
    keys = KeyOffsets(0, NO_LIMIT_BYTES)
    assert keys.add_all(iter_batches(data))
    newest = {key: offset for offset, (_, key, _) in enumerate(records)}
    assert {key: keys.map.get(key) for key in newest} == newest
    (left,) = BatchCleaner(keys, end_offset=0, now_ms=0, delete_retention_ms=0).clean(iter_batches(data))
    assert [(record.offset, record.key, record.value) for record in left.records()] == [
        (offset, key, value) for offset, (_, key, value) in enumerate(records) if newest[key] == offset
    ]


payloads = st.lists(st.tuples(model.keys, model.values, st.integers(0, 10)), min_size=1, max_size=4)


@given(st.data())
def test_damaged_records_are_refused_or_read_within_their_bounds(data: st.DataObject) -> None:
    """Whatever the bytes, there is an answer or a `RemoteProtocolError`; the checksum cannot save us here."""
    good = batch(0, *((key, value) for key, value, _ in data.draw(payloads))).encode()[61:]
    damaged = bytearray(good)
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    payload = bytes(damaged[: data.draw(st.integers(0, len(damaged)))] if data.draw(st.booleans()) else damaged)
    count = data.draw(st.integers(0, 5))
    keys = KeyMap(1 << 20)
    with suppress(RemoteProtocolError):
        keys.add(payload, count, 0, 3, 0)
    with suppress(RemoteProtocolError):
        left = retain(keys, payload, count, 0, 3, 0, end_offset=9, keep_tombstones=False, head_bytes=61).records
        assert left is None or 61 < len(left) < 61 + len(payload), "some went and some stayed"
    with suppress(RemoteProtocolError):
        assert len(rebase_timestamps(payload, count, START_MS, 5, head_bytes=61)) >= 61


@given(st.binary(max_size=60), st.integers(0, 8))
def test_noise_is_refused(payload: bytes, count: int) -> None:
    keys = KeyMap(1 << 20)
    try:
        keys.add(payload, count, 0, 2**31 - 1, 0)
        read = True
    except RemoteProtocolError:
        read = False
    try:
        retain(keys, payload, count, 0, 2**31 - 1, 0, end_offset=0, keep_tombstones=True, head_bytes=0)
        assert read
    except RemoteProtocolError:
        assert not read


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5), st.integers(-(2**63), 2**63 - 1))
def test_rebasing_keeps_every_timestamp(timestamps_ms: list[int], base_ms: int) -> None:
    records = [naive.NaiveRecord(each, b"k", None, (), i) for i, each in enumerate(timestamps_ms)]
    built = naive.encode(naive.NaiveBatch(records))
    view = BatchView(built)
    rebased = rebase_timestamps(view.payload(), len(records), view.base_timestamp_ms, base_ms, head_bytes=3)
    assert bytes(rebased[3:]) == b"".join(naive.encode_record(record, base_ms) for record in records)


def test_a_corrupt_batch_is_never_cleaned() -> None:
    damaged = bytearray(batch(0, (b"a", b"1"), (b"b", b"2")).encode())
    damaged[-2] ^= 1
    keys = KeyOffsets(0, NO_LIMIT_BYTES)
    with pytest.raises(RemoteProtocolError, match="corrupt"):
        keys.add(BatchView(damaged))
    cleaner = BatchCleaner(keys, end_offset=9, now_ms=0, delete_retention_ms=0)
    with pytest.raises(RemoteProtocolError, match="corrupt"):
        cleaner.clean_entry(BatchView(damaged))


def test_offsets_that_do_not_rise_are_refused() -> None:
    records = [naive.NaiveRecord(START_MS, b"k", b"v", (), delta) for delta in (1, 1)]
    twice = BatchView(naive.encode(naive.NaiveBatch(records)))
    beyond = BatchView(naive.encode(naive.NaiveBatch(records[:1], last_offset_delta=0)))
    for view, match in ((twice, "not above the one before"), (beyond, "above the last one")):
        with pytest.raises(RemoteProtocolError, match=match):
            KeyOffsets(0, NO_LIMIT_BYTES).add(view)
