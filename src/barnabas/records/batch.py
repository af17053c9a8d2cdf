"""Batches of format 2 in a buffer: step over them, look into their headers, check them, stamp them in place."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from barnabas.base.errors import LocalProtocolError, RemoteProtocolError
from barnabas.records._kernel.decode import RecordReader
from barnabas.records._kernel.walk import BatchHeader, EntryWalk, RecordSummary, summarise_records
from barnabas.records.compression import DEFAULT_LIMIT_BYTES, Codec, decompress

if TYPE_CHECKING:
    from typing_extensions import Buffer

NO_TIMESTAMP_MS: Final = -1
FIRST_OFFSET: Final = -(2**63)  # below every offset, also those of messages that no broker has placed yet
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
#: No producer of a transaction is ever given this one, so that there is always one left to fence with.
MAX_PRODUCER_EPOCH: Final = 2**15 - 1
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = -1
MAX_SEQUENCE: Final = 2**31 - 1

# base offset, length, leader epoch, magic, CRC, attributes, last offset delta, base timestamp, max timestamp,
# producer id, producer epoch, base sequence, record count
HEADER: Final = struct.Struct(">qiibIhiqqqhii")
FRAME_BYTES: Final = 12  # base offset and length: what the length does not count
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21  # the CRC covers everything from here on
MAX_TIMESTAMP_AT: Final = 35
PRODUCER_AT: Final = 43

CODEC_MASK: Final = 0x07
APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

_I64: Final = struct.Struct(">q")
_CRC: Final = struct.Struct(">I")
_ATTRIBUTES: Final = struct.Struct(">h")
_PRODUCER: Final = struct.Struct(">qhi")


class TimestampType(IntEnum):
    """Whose clock a record's timestamp comes from."""

    NONE = -1  # format 0 had no timestamps
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


def add_to_sequence(sequence: int, increment: int) -> int:
    """Producer sequences count up to 2^31-1 and go on at 0."""
    return (sequence + increment) & MAX_SEQUENCE


def iter_batches(buffer: Buffer) -> EntryWalk[BatchView]:
    """Step through the batches that lie back to back in `buffer`, without decoding them.

    The last batch may be there only in part, as in the answer to a fetch. The walk ends before it: `truncated` says
    whether that was so, `position` where it ended.
    """
    return EntryWalk(buffer, BatchView)


class BatchView(BatchHeader):
    """One batch, seen in the buffer that holds it. The header's fields are attributes; nothing is copied.

    The form of the header is sound once the view exists. Whether the bytes are those that were sent is for `check_crc`
    to say, and whether the records are well formed for `summarise` (or reading them).
    """

    __slots__ = ()

    @property
    def codec(self) -> Codec:
        try:
            return Codec(self.attributes & CODEC_MASK)
        except ValueError:
            raise RemoteProtocolError(f"a batch names the unknown codec {self.attributes & CODEC_MASK}") from None

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND_TIME if self.attributes & APPEND_TIME_BIT else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop the batch's tombstones or marker, if it has decided so already."""
        return self.base_timestamp_ms if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return add_to_sequence(self.base_sequence, self.last_offset_delta)

    def computed_crc(self) -> int:
        return int(crc32c(self.data[ATTRIBUTES_AT:]))

    def check_crc(self) -> None:
        """Raise unless the batch is as its builder left it."""
        if not self.is_intact():
            computed = self.computed_crc()
            raise RemoteProtocolError(
                f"the batch at offset {self.base_offset} is corrupt: its CRC is {computed:#010x}, not {self.crc:#010x}"
            )

    def payload(self, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> memoryview:
        """The records' bytes, decompressed if need be, which must not make them more than `limit_bytes`."""
        compressed = self.data[HEADER.size :]
        if not self.attributes & CODEC_MASK:
            return compressed
        if not compressed and not self.record_count:
            return compressed  # emptied by compaction, perhaps with its codec still named
        return decompress(self.codec, compressed, limit_bytes)

    def summarise(self, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> RecordSummary:
        """Check the form of every record, without making objects, and tell what the rules of a topic need to know."""
        return summarise_records(self.payload(limit_bytes), self.record_count, self.base_timestamp_ms)

    def records(self, from_offset: int = FIRST_OFFSET, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> RecordReader:
        """The records one by one, those of a control batch too; what lies below `from_offset` is left out."""
        return RecordReader(
            self.payload(limit_bytes),
            self.record_count,
            self.base_offset,
            self.base_timestamp_ms,
            self.max_timestamp_ms,
            bool(self.attributes & APPEND_TIME_BIT),
            from_offset,
        )

    def __iter__(self) -> RecordReader:
        return self.records()

    def stamp_log_append_time(self, timestamp_ms: int) -> None:
        """Make every record read as appended at `timestamp_ms`."""
        self._stamp_timestamp(timestamp_ms, self.attributes | APPEND_TIME_BIT)

    def stamp_max_timestamp(self, timestamp_ms: int) -> None:
        """Correct the highest timestamp of a batch whose records keep their own."""
        self._stamp_timestamp(timestamp_ms, self.attributes & ~APPEND_TIME_BIT)

    def stamp_producer(self, *, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Renew the producer's state in a batch that must be sent again after the producer got a new epoch."""
        self._write(_PRODUCER, PRODUCER_AT, producer_id, producer_epoch, base_sequence)
        self._stamp_crc()

    def _stamp_timestamp(self, timestamp_ms: int, attributes: int) -> None:
        if timestamp_ms == self.max_timestamp_ms and attributes == self.attributes:
            return
        self._write(_ATTRIBUTES, ATTRIBUTES_AT, attributes)
        self._write(_I64, MAX_TIMESTAMP_AT, timestamp_ms)
        self._stamp_crc()

    def _stamp_crc(self) -> None:
        self._write(_CRC, CRC_AT, self.computed_crc())
        self.read_header()

    def _write(self, form: struct.Struct, position: int, *fields: int) -> None:
        if self.data.readonly:
            raise LocalProtocolError("a batch can be stamped only in a writable buffer")
        form.pack_into(self.data, position, *fields)

    def __repr__(self) -> str:
        return (
            f"<batch of {self.record_count} records, offsets {self.base_offset} to {self.last_offset}, "
            f"{self.size_bytes} bytes>"
        )
