"""Metadata records as the values of a log: of `__cluster_metadata`, and of snapshots of it. Pure.

The records of one change are one batch: it is there as a whole or not at all. A change that does not fit into a batch
becomes a *metadata transaction*: a BeginTransaction record, as many batches as needed, an EndTransaction record.
Whoever replays them (`ImageBuilder`) lets a transaction count when it ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from barnabas.base.errors import RemoteProtocolError
from barnabas.metadata.features import METADATA_VERSION_BUILT, encode_record
from barnabas.raft.batches import MAX_BATCH_BYTES, build_batches
from barnabas.wire.stored.cluster_metadata import BeginTransactionRecord, EndTransactionRecord, MetadataRecord


def encode_change(
    records: Sequence[MetadataRecord],
    metadata_version: int = METADATA_VERSION_BUILT,
    limit_bytes: int = MAX_BATCH_BYTES,
) -> tuple[Sequence[MetadataRecord], list[bytes]]:
    """The records of one change and their values: as they are if they fit into a batch, else as a transaction."""
    values = [encode_record(record, metadata_version) for record in records]
    if _fit_into_one(values, limit_bytes) or isinstance(records[0], BeginTransactionRecord):
        return records, values
    begin, end = BeginTransactionRecord(), EndTransactionRecord()
    return [begin, *records, end], [begin.encode_framed(0), *values, end.encode_framed(0)]


def _fit_into_one(values: Sequence[bytes], limit_bytes: int) -> bool:
    if sum(map(len, values)) > limit_bytes:
        return False
    batches = build_batches(values, base_offset=0, epoch=0, timestamp_ms=0, limit_bytes=limit_bytes)
    return next(batches, None) is None or next(batches, None) is None


def decode_values(values: Iterable[bytes], base_offset: int | None = None) -> Iterator[MetadataRecord]:
    """The records behind the values. Raises `RemoteProtocolError` for what is not known."""
    try:
        for value in values:
            yield MetadataRecord.decode_framed(value)[0]
    except RemoteProtocolError as problem:
        where = "a snapshot of the metadata" if base_offset is None else f"the metadata log at offset {base_offset}"
        raise RemoteProtocolError(f"{where}: {problem}") from None
