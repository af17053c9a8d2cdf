"""Metadata records in batches: how they lie in `__cluster_metadata`, and in snapshots of it. Pure.

The records of one change are one batch: it is there as a whole or not at all. A change that does not fit into a batch
becomes a *metadata transaction*: a BeginTransaction record, as many batches as needed, an EndTransaction record.
Readers that use `TransactionReader` see only whole changes, in either form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from barnabas.base.errors import RemoteProtocolError
from barnabas.metadata.features import METADATA_VERSION_BUILT, encode_record
from barnabas.records.batch import BatchView
from barnabas.records.builder import BatchBuilder
from barnabas.records.control import ControlType, control_key, control_type
from barnabas.wire.message import Message
from barnabas.wire.stored.cluster_metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    MetadataRecord,
)
from barnabas.wire.stored.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)

if TYPE_CHECKING:
    from barnabas.records._kernel.decode import Record

MAX_BATCH_BYTES: Final = 8 * 1024 * 1024

_CONTROL_MESSAGES: Final[dict[ControlType, type[Message]]] = {
    ControlType.LEADER_CHANGE: LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: VotersRecord,
}


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """What the quorum writes for itself. `message` is None for a kind that came after this was written."""

    kind: ControlType
    message: Message | None


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """One batch of the log or of a snapshot: either `records` or `controls`, never both."""

    base_offset: int
    last_offset: int
    epoch: int
    append_time_ms: int
    size_bytes: int
    records: tuple[MetadataRecord, ...] = ()
    controls: tuple[ControlRecord, ...] = ()


def build_change(
    records: Sequence[MetadataRecord],
    *,
    base_offset: int,
    epoch: int,
    timestamp_ms: int,
    metadata_version: int = METADATA_VERSION_BUILT,
    limit_bytes: int = MAX_BATCH_BYTES,
) -> list[bytearray]:
    """The batches of one change: one if its records fit, otherwise a transaction."""
    values = [encode_record(record, metadata_version) for record in records]
    batches = list(_build(values, base_offset, epoch, timestamp_ms, limit_bytes))
    if len(batches) == 1 or isinstance(records[0], BeginTransactionRecord):
        return batches
    values = [BeginTransactionRecord().encode_framed(0), *values, EndTransactionRecord().encode_framed(0)]
    return list(_build(values, base_offset, epoch, timestamp_ms, limit_bytes))


def build_snapshot(
    records: Iterable[MetadataRecord],
    *,
    epoch: int,
    timestamp_ms: int,
    last_contained_ms: int,
    voters: Sequence[ControlRecord] = (),
    metadata_version: int = METADATA_VERSION_BUILT,
    limit_bytes: int = MAX_BATCH_BYTES,
) -> Iterator[bytearray]:
    """The batches of a snapshot, from header to footer, one at a time. Its offsets are its own: they count from 0."""
    header = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_contained_ms)
    batch = build_control(
        [ControlRecord(ControlType.SNAPSHOT_HEADER, header), *voters],
        base_offset=0,
        epoch=epoch,
        timestamp_ms=timestamp_ms,
    )
    next_offset = BatchView(batch).next_offset
    yield batch
    values = (encode_record(record, metadata_version) for record in records)
    for batch in _build(values, next_offset, epoch, timestamp_ms, limit_bytes):
        next_offset = BatchView(batch).next_offset
        yield batch
    footer = ControlRecord(ControlType.SNAPSHOT_FOOTER, SnapshotFooterRecord(version=0))
    yield build_control([footer], base_offset=next_offset, epoch=epoch, timestamp_ms=timestamp_ms)


def _build(
    values: Iterable[bytes], base_offset: int, epoch: int, timestamp_ms: int, limit_bytes: int
) -> Iterator[bytearray]:
    builder: BatchBuilder | None = None
    for value in values:
        if builder is not None and builder.append(value, None, timestamp_ms) is None:
            base_offset += builder.record_count
            yield builder.build()
            builder = None
        if builder is None:
            builder = BatchBuilder(limit_bytes, base_offset=base_offset, leader_epoch=epoch)
            builder.append(value, None, timestamp_ms)
    if builder is not None:
        yield builder.build()


def build_control(records: Sequence[ControlRecord], *, base_offset: int, epoch: int, timestamp_ms: int) -> bytearray:
    """A batch of what the quorum writes for itself."""
    builder = BatchBuilder(MAX_BATCH_BYTES, control=True, base_offset=base_offset, leader_epoch=epoch)
    for record in records:
        # Such a message says its version itself, in its first field.
        version: int = getattr(record.message, "version", 0)
        value = b"" if record.message is None else record.message.encode(version)
        builder.append(value, control_key(record.kind), timestamp_ms)
    return builder.build()


def decode_batch(batch: BatchView) -> DecodedBatch:
    """What a batch says. Raises `RemoteProtocolError` for what is damaged or not known."""
    batch.check_crc()
    where = f"the metadata log at offset {batch.base_offset}"
    records: tuple[MetadataRecord, ...] = ()
    controls: tuple[ControlRecord, ...] = ()
    try:
        if batch.is_control:
            controls = tuple(_decode_control(record) for record in batch)
        else:
            records = tuple(MetadataRecord.decode_framed(record.value or b"")[0] for record in batch)
    except RemoteProtocolError as problem:
        raise RemoteProtocolError(f"{where}: {problem}") from None
    return DecodedBatch(
        batch.base_offset,
        batch.last_offset,
        batch.leader_epoch,
        batch.max_timestamp_ms,
        batch.size_bytes,
        records,
        controls,
    )


def _decode_control(record: Record) -> ControlRecord:
    kind = control_type(record)
    message_class = _CONTROL_MESSAGES.get(kind)
    if message_class is None:
        return ControlRecord(kind, None)
    value = record.value or b""
    version = int.from_bytes(value[:2], "big")
    if version not in message_class.VERSIONS:
        raise RemoteProtocolError(f"{message_class.__name__}: version {version} is not known")
    return ControlRecord(kind, message_class.decode(value, version))


class TransactionReader:
    """Holds the batches of a metadata transaction back until its end is there, and drops those of an aborted one."""

    def __init__(self) -> None:
        self._held: list[DecodedBatch] = []

    @property
    def in_transaction(self) -> bool:
        return bool(self._held)

    def feed(self, batch: DecodedBatch) -> DecodedBatch | None:
        """The next whole change: the batch itself, or a transaction's batches as one; None while one is open.

        Begin and end stay among the records, so that the offset of each is still the base offset plus its place.
        A transaction begins with a batch and ends with one, as every writer has it.
        """
        if batch.records and isinstance(batch.records[0], BeginTransactionRecord):
            self._held.clear()
        elif not self._held:
            return batch
        self._held.append(batch)
        if not batch.records or not isinstance(batch.records[-1], EndTransactionRecord | AbortTransactionRecord):
            return None
        held, self._held = self._held, []
        is_aborted = isinstance(batch.records[-1], AbortTransactionRecord)
        return DecodedBatch(
            held[0].base_offset,
            batch.last_offset,
            batch.epoch,
            batch.append_time_ms,
            sum(each.size_bytes for each in held),
            () if is_aborted else tuple(record for each in held for record in each.records),
        )
