"""Reading a buffer of log entries of whatever format, as it lies in a segment or comes in a fetch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.records._kernel.walk import EntryWalk
from barnabas.records.batch import FIRST_OFFSET, BatchView
from barnabas.records.compression import DEFAULT_LIMIT_BYTES
from barnabas.records.legacy import LegacyMessage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer

    from barnabas.records._kernel.decode import Record


def iter_entries(buffer: Buffer) -> EntryWalk[BatchView | LegacyMessage]:
    """Step through the entries in `buffer`: batches of today's format, messages of the older ones."""
    return EntryWalk(buffer, BatchView, LegacyMessage)


def iter_records(
    buffer: Buffer, from_offset: int = FIRST_OFFSET, *, check_crcs: bool = True, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> Iterator[Record]:
    """All records for applications in `buffer`, from `from_offset` on. Control records are for brokers: left out.

    An entry that is cut off ends the iteration. Transactions are not looked at: a consumer that reads only what was
    committed walks the batches itself.
    """
    for entry in iter_entries(buffer):
        if entry.is_control or entry.next_offset <= from_offset:
            continue
        if check_crcs:
            entry.check_crc()
        yield from entry.records(from_offset, limit_bytes)
