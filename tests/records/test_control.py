"""Control records and transaction markers."""

from __future__ import annotations

import pytest

from barnabas.base.errors import RemoteProtocolError
from barnabas.records import (
    BatchBuilder,
    BatchView,
    ControlType,
    Record,
    TransactionMarker,
    build_marker,
    control_key,
    control_type,
    emptied,
    iter_records,
    read_marker,
)


def control_batch(key: bytes | None, value: bytes | None) -> BatchView:
    builder = BatchBuilder(1000, control=True, transactional=True, producer_id=1)
    builder.append(value, key, 1)
    return BatchView(builder.build())


@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_comes_back(committed: bool) -> None:
    marker = TransactionMarker(producer_id=2**40, producer_epoch=7, coordinator_epoch=42, committed=committed)
    built = build_marker(marker, 1_700_000_000_000)
    view = BatchView(built)
    view.check_crc()
    assert (view.is_control, view.is_transactional, view.base_sequence, view.record_count) == (True, True, -1, 1)
    assert read_marker(view) == marker
    (record,) = view
    assert control_type(record) is (ControlType.COMMIT if committed else ControlType.ABORT)
    assert list(iter_records(built)) == []


def test_other_batches_hold_no_marker() -> None:
    builder = BatchBuilder(1000)
    builder.append(b"", control_key(ControlType.COMMIT), 1)
    assert read_marker(BatchView(builder.build())) is None
    assert read_marker(control_batch(control_key(ControlType.LEADER_CHANGE), b"")) is None
    assert read_marker(control_batch(b"\0\0\0\x63", b"")) is None
    assert read_marker(BatchView(emptied(control_batch(control_key(ControlType.ABORT), b"\0\0\0\0\0\1")))) is None


def test_types_of_the_future_read_as_unknown() -> None:
    assert control_type(Record(0, 0, b"\0\0\0\x63", None)) is ControlType.UNKNOWN
    assert control_type(Record(0, 0, b"\0\1\0\1more", None)) is ControlType.COMMIT
    assert [control_type(Record(0, 0, control_key(kind), None)) for kind in ControlType] == list(ControlType)


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\0"])
def test_keys_that_are_none_are_refused(key: bytes | None) -> None:
    with pytest.raises(RemoteProtocolError, match="control record"):
        control_type(Record(0, 0, key, None))


@pytest.mark.parametrize("value", [None, b"", b"\0\0\0\0\0", b"\xff\xff\0\0\0\0"])
def test_marker_values_that_are_none_are_refused(value: bytes | None) -> None:
    with pytest.raises(RemoteProtocolError, match="transaction marker"):
        read_marker(control_batch(control_key(ControlType.ABORT), value))
