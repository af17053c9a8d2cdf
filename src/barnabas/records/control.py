"""Control records: what brokers write into a log for each other and for consumers, never for applications."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from barnabas.base.errors import RemoteProtocolError
from barnabas.records._kernel.decode import Record
from barnabas.records.batch import NO_SEQUENCE, BatchView
from barnabas.records.builder import BatchBuilder

#: From this level of transaction.version on the epoch goes up with each transaction: a marker has a newer one than the
#: records that it ends.
EPOCH_PER_TRANSACTION: Final = 2

_KEY: Final = struct.Struct(">hh")  # version, type
_MARKER_VALUE: Final = struct.Struct(">hi")  # version, coordinator epoch
_KEY_VERSION: Final = 0
_MARKER_VERSION: Final = 0
_MARKER_LIMIT_BYTES: Final = 256


class ControlType(IntEnum):
    """What a control record says. Types that came after this was written read as `UNKNOWN`: to be stepped over."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6

    @classmethod
    def _missing_(cls, value: object) -> ControlType | None:
        return cls.UNKNOWN if isinstance(value, int) else None


@dataclass(frozen=True, slots=True)
class TransactionMarker:
    """The end of a transaction in one partition."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool


def control_key(kind: ControlType) -> bytes:
    return _KEY.pack(_KEY_VERSION, kind)


def control_type(record: Record) -> ControlType:
    """The type that the key of a control record names. Newer versions of the key only add fields after it."""
    if record.key is None or len(record.key) < _KEY.size:
        raise RemoteProtocolError(f"the control record at offset {record.offset} has the key {record.key!r}")
    version, kind = _KEY.unpack_from(record.key)
    if version < _KEY_VERSION:
        raise RemoteProtocolError(f"the control record at offset {record.offset} has a key of version {version}")
    return ControlType(kind)


def build_marker(marker: TransactionMarker, timestamp_ms: int) -> bytearray:
    """The batch with which a transaction ends in a partition."""
    builder = BatchBuilder(
        _MARKER_LIMIT_BYTES,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        base_sequence=NO_SEQUENCE,
        transactional=True,
        control=True,
    )
    builder.append(
        _MARKER_VALUE.pack(_MARKER_VERSION, marker.coordinator_epoch),
        control_key(ControlType.COMMIT if marker.committed else ControlType.ABORT),
        timestamp_ms,
    )
    return builder.build()


def read_marker(batch: BatchView) -> TransactionMarker | None:
    """The marker that a control batch holds, or None if it holds something else or was emptied by compaction."""
    if not batch.is_control:
        return None
    record = next(batch.records(), None)
    if record is None:
        return None
    kind = control_type(record)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if record.value is None or len(record.value) < _MARKER_VALUE.size:
        raise RemoteProtocolError(f"the transaction marker at offset {record.offset} has the value {record.value!r}")
    version, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value)
    if version < _MARKER_VERSION:
        raise RemoteProtocolError(f"the transaction marker at offset {record.offset} has version {version}")
    return TransactionMarker(batch.producer_id, batch.producer_epoch, coordinator_epoch, kind is ControlType.COMMIT)
