"""The builder's promises: known sizes, a limit that holds, a clear word when it is full."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.records.naive import NaiveRecord
from tests.records.strategies import record_lists

from barnabas.base.errors import LocalProtocolError
from barnabas.records import BatchBuilder, BatchView, Codec, TimestampType, max_record_size_bytes, recoded


@given(record_lists(max_size=20), st.integers(100, 3000), st.sampled_from(list(Codec)))
def test_the_limit_holds(records: list[NaiveRecord], limit_bytes: int, codec: Codec) -> None:
    builder = BatchBuilder(limit_bytes, codec=codec)
    taken = 0
    for record in records:
        size_bytes = builder.record_size_bytes(record.value, record.key, record.timestamp_ms, record.headers)
        assert size_bytes <= max_record_size_bytes(record.value, record.key, record.headers)
        fits = builder.size_bytes + size_bytes <= limit_bytes
        try:
            delta = builder.append(record.value, record.key, record.timestamp_ms, record.headers)
        except LocalProtocolError:
            assert not fits
            assert not taken
            continue
        assert delta == (taken if fits else None)
        taken += fits
        assert builder.size_bytes <= limit_bytes
    assert builder.record_count == taken
    if taken:
        built = builder.build()
        assert len(built) <= limit_bytes
        assert BatchView(built).record_count == taken


def test_a_full_builder_says_so_and_stays_usable() -> None:
    builder = BatchBuilder(61 + 20)
    assert builder.append(b"0123456789", None, 1) == 0
    assert builder.append(b"0123456789", None, 1) is None
    assert builder.record_count == 1
    assert [record.value for record in BatchView(builder.build())] == [b"0123456789"]


def test_a_record_that_no_batch_could_take_is_refused() -> None:
    builder = BatchBuilder(100)
    with pytest.raises(LocalProtocolError, match="1009 bytes does not fit in a batch of at most 100 bytes"):
        builder.append(bytes(1000), None, 1)
    assert builder.append(b"small", None, 1) == 0


def test_an_oversized_first_record_gets_in_alone_when_asked_for() -> None:
    builder = BatchBuilder(100, allow_oversized=True)
    assert builder.append(bytes(1000), None, 1) == 0
    assert builder.append(b"", None, 1) is None
    assert len(builder.build()) == 61 + 1009
    second = BatchBuilder(100, allow_oversized=True)
    second.append(b"", None, 1)
    assert second.append(bytes(1000), None, 1) is None


def test_what_compression_would_make_larger_goes_uncompressed() -> None:
    noise = os.urandom(500)
    for codec in Codec:
        builder = BatchBuilder(61 + 509, codec=codec)
        builder.append(noise, None, 1)
        built = builder.build()
        assert len(built) <= 61 + 509
        assert BatchView(built).codec is Codec.NONE


@pytest.mark.parametrize(("codec", "level"), [(Codec.GZIP, 9), (Codec.GZIP, -1), (Codec.LZ4, 12), (Codec.ZSTD, -5)])
def test_levels_are_taken(codec: Codec, level: int) -> None:
    builder = BatchBuilder(10_000, codec=codec, level=level)
    builder.append(b"Amalia " * 100, b"key", 1)
    view = BatchView(builder.build())
    assert view.codec is codec
    assert [record.value for record in view] == [b"Amalia " * 100]


def test_a_wrong_level_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="a level of gzip is 1 to 9 or -1, not 10"):
        BatchBuilder(1000, codec=Codec.GZIP, level=10)


def test_a_batch_is_built_once() -> None:
    builder = BatchBuilder(1000)
    with pytest.raises(LocalProtocolError, match="at least one record"):
        builder.build()
    builder.append(b"v", None, 1)
    builder.build()
    for use in (builder.build, lambda: builder.append(b"v", None, 1), builder.view):
        with pytest.raises(LocalProtocolError, match="built"):
            use()


def test_a_transaction_needs_a_producer() -> None:
    builder = BatchBuilder(1000, transactional=True)
    builder.append(b"v", None, 1)
    with pytest.raises(LocalProtocolError, match="producer id"):
        builder.build()


def test_producer_state_may_come_last() -> None:
    builder = BatchBuilder(1000, transactional=True)
    builder.append(b"v", None, 1)
    builder.set_producer_state(7, 1, 2**31 - 1)
    view = BatchView(builder.build())
    view.check_crc()
    assert (view.producer_id, view.producer_epoch, view.base_sequence) == (7, 1, 2**31 - 1)


def test_offset_deltas_only_rise() -> None:
    builder = BatchBuilder(1000)
    assert builder.append(b"", None, 0, offset_delta=4) == 4
    with pytest.raises(LocalProtocolError, match="delta 4 does not come after 4"):
        builder.append(b"", None, 0, offset_delta=4)
    assert builder.append(b"", None, 0, offset_delta=2**31 - 1) == 2**31 - 1
    assert builder.append(b"", None, 0) is None


def test_append_time_and_delete_horizon() -> None:
    builder = BatchBuilder(1000, log_append_time_ms=50, delete_horizon_ms=40)
    builder.append(b"v", None, 7)
    view = BatchView(builder.build())
    assert view.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert view.delete_horizon_ms == 40
    assert [record.timestamp_ms for record in view] == [50]
    assert view.summarise().max_timestamp_ms == 7


def test_parts_may_be_any_bytes_but_nothing_else() -> None:
    builder = BatchBuilder(1000)
    builder.append(bytearray(b"v"), memoryview(b"k"), 1, [("h", bytearray(b"c"))])
    (record,) = BatchView(builder.build())
    assert (record.value, record.key, record.headers) == (b"v", b"k", (("h", b"c"),))
    fresh = BatchBuilder(1000)
    with pytest.raises(TypeError, match="a value must be bytes or None, not str"):
        fresh.append("text", None, 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a key must be bytes or None, not int"):
        fresh.append(b"", 3, 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a header's key must be str, not bytes"):
        fresh.append(b"", None, 1, [(b"h", b"")])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="a header's value must be bytes or None, not str"):
        fresh.append(b"", None, 1, [("h", "v")])  # type: ignore[list-item]
    assert fresh.record_count == 0


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("other", list(Codec))
def test_a_batch_under_another_codec_is_the_same_but_for_its_size(codec: Codec, other: Codec) -> None:
    builder = BatchBuilder(
        10_000, codec=codec, base_offset=9, leader_epoch=4, transactional=True, producer_id=7, base_sequence=1
    )
    builder.append(b"Gardena " * 100, b"k", 5, [("h", None)])
    builder.append(None, b"k", 3, offset_delta=6)
    before = BatchView(builder.build())
    after = BatchView(recoded(before, other))
    after.check_crc()
    assert after.codec is other
    assert list(after) == list(before)
    for name in ("base_offset", "last_offset", "leader_epoch", "producer_id", "base_sequence", "is_transactional"):
        assert getattr(after, name) == getattr(before, name)
    assert (after.base_timestamp_ms, after.max_timestamp_ms) == (5, 5)
    assert recoded(after, codec) == before.data


@pytest.mark.parametrize("limit_bytes", [-1, 0, 60, 2**31])
def test_limits_that_cannot_be_are_refused(limit_bytes: int) -> None:
    with pytest.raises(ValueError, match="limit"):
        BatchBuilder(limit_bytes)
