"""Records in batches: how they lie in a replicated log, and in snapshots of it. Pure.

What the owner of the log writes is bytes here. What the quorum writes for itself are control records: each batch holds
the one or the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from barnabas.base.errors import RemoteProtocolError
from barnabas.records.batch import BatchView
from barnabas.records.builder import BatchBuilder
from barnabas.records.control import ControlType, control_key, control_type
from barnabas.wire.message import Message
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
class LogBatch:
    """One batch of the log or of a snapshot: either `values` or `controls`, never both."""

    base_offset: int
    last_offset: int
    epoch: int
    append_time_ms: int
    size_bytes: int
    values: tuple[bytes, ...] = ()
    controls: tuple[ControlRecord, ...] = ()


def build_batches(
    values: Iterable[bytes],
    *,
    base_offset: int,
    epoch: int,
    timestamp_ms: int,
    limit_bytes: int = MAX_BATCH_BYTES,
    allow_oversized: bool = False,
) -> Iterator[bytearray]:
    """Values in as few batches as they fit into. One that is larger than the limit raises `LocalProtocolError`, or has
    a batch for itself with `allow_oversized`."""
    builder: BatchBuilder | None = None
    for value in values:
        if builder is not None and builder.append(value, None, timestamp_ms) is None:
            base_offset += builder.record_count
            yield builder.build()
            builder = None
        if builder is None:
            builder = BatchBuilder(
                limit_bytes, base_offset=base_offset, leader_epoch=epoch, allow_oversized=allow_oversized
            )
            builder.append(value, None, timestamp_ms)
    if builder is not None:
        yield builder.build()


def build_snapshot(
    values: Iterable[bytes],
    *,
    epoch: int,
    timestamp_ms: int,
    last_contained_ms: int,
    voters: Sequence[ControlRecord] = (),
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
    for batch in build_batches(
        values,
        base_offset=next_offset,
        epoch=epoch,
        timestamp_ms=timestamp_ms,
        limit_bytes=limit_bytes,
        # A snapshot travels in pieces, however large its batches are.
        allow_oversized=True,
    ):
        next_offset = BatchView(batch).next_offset
        yield batch
    footer = ControlRecord(ControlType.SNAPSHOT_FOOTER, SnapshotFooterRecord(version=0))
    yield build_control([footer], base_offset=next_offset, epoch=epoch, timestamp_ms=timestamp_ms)


def build_control(records: Sequence[ControlRecord], *, base_offset: int, epoch: int, timestamp_ms: int) -> bytearray:
    """A batch of what the quorum writes for itself."""
    builder = BatchBuilder(MAX_BATCH_BYTES, control=True, base_offset=base_offset, leader_epoch=epoch)
    for record in records:
        # Such a message says its version itself, in its first field.
        version: int = getattr(record.message, "version", 0)
        value = b"" if record.message is None else record.message.encode(version)
        builder.append(value, control_key(record.kind), timestamp_ms)
    return builder.build()


def read_batch(batch: BatchView, *, is_checked: bool = False) -> LogBatch:
    """What a batch holds. Raises `RemoteProtocolError` for what is damaged, and for control records not known.
    `is_checked` says that its checksum was looked at already."""
    if not is_checked:
        batch.check_crc()
    values: tuple[bytes, ...] = ()
    controls: tuple[ControlRecord, ...] = ()
    if batch.is_control:
        try:
            controls = tuple(_decode_control(record) for record in batch)
        except RemoteProtocolError as problem:
            raise _unreadable(batch, problem) from None
    else:
        values = values_of(batch)
    return LogBatch(
        batch.base_offset,
        batch.last_offset,
        batch.leader_epoch,
        batch.max_timestamp_ms,
        batch.size_bytes,
        values,
        controls,
    )


def values_of(batch: BatchView) -> tuple[bytes, ...]:
    """What the owner of the log wrote into a batch whose checksum was looked at."""
    try:
        return tuple([record.value or b"" for record in batch])
    except RemoteProtocolError as problem:
        raise _unreadable(batch, problem) from None


def _unreadable(batch: BatchView, problem: RemoteProtocolError) -> RemoteProtocolError:
    return RemoteProtocolError(f"the log at offset {batch.base_offset}: {problem}")


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
