"""Batches agree with the naive twin, both ways, whatever the records."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.records import naive
from tests.records.naive import NaiveBatch, NaiveRecord
from tests.records.strategies import record_lists

from barnabas.records import BatchBuilder, BatchView, Codec, Record, iter_records

LIMIT_BYTES = 1 << 20
codecs = st.sampled_from(list(Codec))
offsets = st.integers(0, 2**62)


def append_all(builder: BatchBuilder, records: list[NaiveRecord]) -> None:
    for record in records:
        delta = builder.append(record.value, record.key, record.timestamp_ms, record.headers, record.offset_delta)
        assert delta == record.offset_delta


def as_records(batch: NaiveBatch) -> list[Record]:
    has_append_time = bool(batch.attributes & 0x08)
    assert batch.max_timestamp_ms is not None
    return [
        Record(
            batch.base_offset + record.offset_delta,
            batch.max_timestamp_ms if has_append_time else record.timestamp_ms,
            record.key,
            record.value,
            record.headers,
            int(has_append_time),
        )
        for record in batch.records
    ]


@given(record_lists(), st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1), st.booleans())
def test_builder_writes_the_bytes_of_the_twin(
    records: list[NaiveRecord], producer_id: int, epoch: int, sequence: int, transactional: bool
) -> None:
    builder = BatchBuilder(LIMIT_BYTES, transactional=transactional)
    sizes = []
    for record in records:
        before = builder.size_bytes
        sizes.append(builder.record_size_bytes(record.value, record.key, record.timestamp_ms, record.headers))
        builder.append(record.value, record.key, record.timestamp_ms, record.headers)
        assert builder.size_bytes == before + sizes[-1]
    builder.set_producer_state(producer_id, epoch, sequence)
    assert builder.size_bytes == 61 + sum(sizes)
    expected = NaiveBatch(
        records,
        attributes=0x10 if transactional else 0,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    assert bytes(builder.build()) == naive.encode(expected)


@given(record_lists(gaps=True), codecs, offsets, st.one_of(st.none(), st.integers(0, 2**60)))
def test_what_we_build_the_twin_reads(
    records: list[NaiveRecord], codec: Codec, base_offset: int, append_time_ms: int | None
) -> None:
    builder = BatchBuilder(LIMIT_BYTES, codec=codec, base_offset=base_offset, log_append_time_ms=append_time_ms)
    append_all(builder, records)
    built = bytes(builder.build())
    seen = naive.decode(built)
    assert seen.records == records
    assert (seen.base_offset, seen.last_offset_delta) == (base_offset, records[-1].offset_delta)
    assert seen.attributes & 0x08 == (0 if append_time_ms is None else 0x08)
    assert list(iter_records(built)) == as_records(seen)


@given(record_lists(gaps=True), codecs, st.sampled_from([0, 0x08]), offsets)
def test_what_the_twin_builds_we_read(
    records: list[NaiveRecord], codec: Codec, append_time_bit: int, base_offset: int
) -> None:
    data = naive.encode(NaiveBatch(records, base_offset=base_offset, attributes=codec | append_time_bit))
    view = BatchView(data)
    view.check_crc()
    expected = as_records(naive.decode(data))
    assert list(view) == expected
    assert list(view.records(base_offset + 5)) == [record for record in expected if record.offset >= base_offset + 5]


@given(record_lists(gaps=True), codecs)
def test_summary_is_what_a_look_at_every_record_finds(records: list[NaiveRecord], codec: Codec) -> None:
    summary = BatchView(naive.encode(NaiveBatch(records, attributes=codec))).summarise()
    deltas = [record.offset_delta for record in records]
    times_ms = [record.timestamp_ms for record in records]
    null_keys = [index for index, record in enumerate(records) if record.key is None]
    gaps = [index for index, delta in enumerate(deltas) if index != delta]
    assert summary.record_count == len(records)
    assert summary.last_offset_delta == deltas[-1]
    assert summary.first_gap == (gaps[0] if gaps else -1)
    assert summary.first_disorder == -1
    assert summary.first_null_key == (null_keys[0] if null_keys else -1)
    assert (summary.min_timestamp_ms, summary.max_timestamp_ms) == (min(times_ms), max(times_ms))
    assert summary.max_timestamp_offset_delta == deltas[times_ms.index(max(times_ms))]
