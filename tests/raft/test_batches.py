"""Records and control records in batches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import RemoteProtocolError
from barnabas.raft.batches import build_batches, build_control, read_batch
from barnabas.records.batch import BatchView, iter_batches
from barnabas.records.builder import BatchBuilder
from barnabas.records.control import ControlType, control_key
from tests.raft.stores import NOW_MS, kraft_version, leader_change, snapshot_bytes, voters


@given(st.lists(st.binary(max_size=400), min_size=1, max_size=40), st.integers(500, 2000))
def test_values_fill_as_few_batches_as_they_fit_into(values: list[bytes], limit_bytes: int) -> None:
    batches = list(build_batches(values, base_offset=100, epoch=1, timestamp_ms=NOW_MS, limit_bytes=limit_bytes))
    assert all(len(batch) <= limit_bytes for batch in batches)
    told = [read_batch(BatchView(batch)) for batch in batches]
    assert [value for each in told for value in each.values] == values
    assert [each.base_offset for each in told] == [100, *(each.last_offset + 1 for each in told[:-1])]
    assert len(batches) <= 1 + sum(len(each) + 80 for each in values) // (limit_bytes // 3)


def test_control_records_are_read_back() -> None:
    records = (leader_change(), kraft_version(), voters(1, 2))
    batch = build_control(records, base_offset=7, epoch=1, timestamp_ms=NOW_MS)
    told = read_batch(BatchView(batch))
    assert (told.base_offset, told.last_offset, told.controls, told.values) == (7, 9, records, ())


def test_a_damaged_batch_says_where_it_is() -> None:
    (data,) = build_batches([b"a"], base_offset=42, epoch=1, timestamp_ms=NOW_MS)
    data[-1] ^= 1
    with pytest.raises(RemoteProtocolError, match="offset 42"):
        read_batch(BatchView(data))


def test_a_control_record_of_an_unknown_version_says_where_it_is() -> None:
    builder = BatchBuilder(1000, control=True, base_offset=42, leader_epoch=1)
    builder.append((9).to_bytes(2, "big"), control_key(ControlType.KRAFT_VERSION), NOW_MS)
    with pytest.raises(RemoteProtocolError, match="offset 42: KRaftVersionRecord: version 9 is not known"):
        read_batch(BatchView(builder.build()))


def test_a_snapshot_counts_its_offsets_from_zero_and_carries_its_epoch() -> None:
    batches = list(iter_batches(snapshot_bytes(4, [b"x" * 500_000] * 50)))
    assert [batch.base_offset for batch in batches[1:]] == [batch.next_offset for batch in batches[:-1]]
    assert {batch.leader_epoch for batch in batches} == {4}
    assert batches[0].is_control
    assert batches[-1].is_control
    assert len(batches) > 3
