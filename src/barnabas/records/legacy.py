"""Message formats 0 and 1, which brokers before 0.11 wrote and old producers still send. Only for reading.

This is a cold path: logs of that age are rewritten once and small, so plain Python that shows the format is worth more
than speed. The framing (offset, length, magic at byte 16) is that of today's batches.
"""

from __future__ import annotations

import struct
import zlib
from collections import deque
from typing import TYPE_CHECKING, Final

from barnabas.base.errors import RemoteProtocolError
from barnabas.records._kernel.decode import Record
from barnabas.records._kernel.walk import EntryWalk
from barnabas.records.batch import FIRST_OFFSET, NO_TIMESTAMP_MS, BatchView, TimestampType
from barnabas.records.builder import BatchBuilder
from barnabas.records.compression import DEFAULT_LIMIT_BYTES, Codec, decompress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer

_START: Final = struct.Struct(">qiIbb")  # offset, length, CRC, magic, attributes
_TIMESTAMP: Final = struct.Struct(">q")
_LENGTH: Final = struct.Struct(">i")
_MAGIC_AT: Final = 16  # the CRC covers everything from here on
_CODEC_MASK: Final = 0x07
_APPEND_TIME_BIT: Final = 0x08
_LAST_OFFSET: Final = 2**63 - 1
_LAST_DELTA: Final = 2**31 - 1
_CODECS: Final = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)


def iter_messages(buffer: Buffer) -> EntryWalk[LegacyMessage]:
    """Step through the outer messages in `buffer`; as with batches, one that is cut off ends the walk."""
    return EntryWalk(buffer, LegacyMessage)


class LegacyMessage:
    """One message of format 0 or 1. With a `codec` it is a wrapper: its value is a compressed run of messages."""

    __slots__ = ("attributes", "codec", "crc", "data", "key", "magic", "offset", "timestamp_ms", "value")

    is_control: Final = False
    offset: int
    crc: int
    magic: int
    attributes: int
    timestamp_ms: int

    def __init__(self, data: memoryview) -> None:
        self.data = data
        if len(data) < _START.size:
            raise RemoteProtocolError(f"a message has {len(data)} bytes; its header alone takes {_START.size}")
        self.offset, length, self.crc, self.magic, self.attributes = _START.unpack_from(data)
        if self.magic not in (0, 1):
            raise RemoteProtocolError(f"a message has magic {self.magic}, where 0 or 1 was expected")
        if length + 12 != len(data):
            raise RemoteProtocolError(f"a message says {length + 12} bytes but has {len(data)}")
        position = _START.size
        self.timestamp_ms = NO_TIMESTAMP_MS
        if self.magic == 1:
            if position + _TIMESTAMP.size > len(data):
                raise RemoteProtocolError(f"the message at offset {self.offset} is cut off")
            (self.timestamp_ms,) = _TIMESTAMP.unpack_from(data, position)
            position += _TIMESTAMP.size
        self.key, position = self._nullable(position)
        self.value, position = self._nullable(position)
        if position != len(data):
            raise RemoteProtocolError(f"the message at offset {self.offset} is longer than its fields")
        if self.attributes & _CODEC_MASK >= len(_CODECS):
            raise RemoteProtocolError(f"the message at offset {self.offset} names the codec {self.attributes & 7}")
        self.codec = _CODECS[self.attributes & _CODEC_MASK]

    def _nullable(self, position: int) -> tuple[memoryview | None, int]:
        after = position + _LENGTH.size
        if after > len(self.data):
            raise RemoteProtocolError(f"the message at offset {self.offset} is cut off")
        (size_bytes,) = _LENGTH.unpack_from(self.data, position)
        if size_bytes == -1:
            return None, after
        if size_bytes < 0 or size_bytes > len(self.data) - after:
            raise RemoteProtocolError(
                f"a length of {size_bytes} does not fit, at byte {position} of the message at offset {self.offset}"
            )
        return self.data[after : after + size_bytes], after + size_bytes

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    @property
    def last_offset(self) -> int:
        """A wrapper carries the offset of the last message in it."""
        return self.offset

    @property
    def next_offset(self) -> int:
        return self.offset + 1

    @property
    def max_timestamp_ms(self) -> int:
        """A wrapper carries the highest timestamp of the messages in it."""
        return self.timestamp_ms

    @property
    def timestamp_type(self) -> TimestampType:
        if self.magic == 0:
            return TimestampType.NONE
        return TimestampType.LOG_APPEND_TIME if self.attributes & _APPEND_TIME_BIT else TimestampType.CREATE_TIME

    def check_crc(self) -> None:
        """Raise unless the message is as its writer left it. (The CRC is the plain CRC-32, not today's CRC-32C.)"""
        computed = zlib.crc32(self.data[_MAGIC_AT:])
        if computed != self.crc:
            raise RemoteProtocolError(
                f"the message at offset {self.offset} is corrupt: its CRC is {computed:#010x}, not {self.crc:#010x}"
            )

    def records(self, from_offset: int = FIRST_OFFSET, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Iterator[Record]:
        """The record, or those in the wrapper, whose offset is not below `from_offset`."""
        if self.codec is not Codec.NONE:
            yield from (record for record in self._unwrap(limit_bytes) if record.offset >= from_offset)
        elif self.offset >= from_offset:
            yield self._record(self.offset, self.timestamp_ms, self.timestamp_type)

    def _record(self, offset: int, timestamp_ms: int, timestamp_type: TimestampType) -> Record:
        key = None if self.key is None else bytes(self.key)
        value = None if self.value is None else bytes(self.value)
        return Record(offset, timestamp_ms, key, value, (), timestamp_type)

    def _unwrap(self, limit_bytes: int) -> Iterator[Record]:
        if self.value is None:
            raise RemoteProtocolError(f"the compressed message at offset {self.offset} is empty")
        compressed: Buffer = self.value
        if self.codec is Codec.LZ4 and self.magic == 0:
            compressed = _with_sound_lz4_header(self.value)
        inner = decompress(self.codec, compressed, limit_bytes)
        # Twice over the messages, so that never all of them are objects at a time: a few bytes can unfold to millions.
        walk = iter_messages(inner)
        last = deque(walk, maxlen=1)
        if walk.truncated or not last:
            raise RemoteProtocolError(f"the compressed message at offset {self.offset} ends inside a message")
        # Format 1 counts offsets within the wrapper; after compaction with gaps, but the last one stays the wrapper's.
        base_offset = self.offset - last[0].offset if self.magic == 1 else 0
        for message in iter_messages(inner):
            if message.codec is not Codec.NONE:
                raise RemoteProtocolError(f"the compressed message at offset {self.offset} holds another one")
            message.check_crc()
            timestamp_ms, timestamp_type = message.timestamp_ms, message.timestamp_type
            if self.timestamp_type is TimestampType.LOG_APPEND_TIME:
                timestamp_ms, timestamp_type = self.timestamp_ms, TimestampType.LOG_APPEND_TIME
            offset = base_offset + message.offset
            if not FIRST_OFFSET <= offset <= _LAST_OFFSET:
                raise RemoteProtocolError(f"the compressed message at offset {self.offset} holds the offset {offset}")
            yield message._record(offset, timestamp_ms, timestamp_type)


def as_batch(message: LegacyMessage, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> BatchView:
    """The same records as an uncompressed batch of today's format, for code that knows nothing older."""
    has_append_time = message.timestamp_type is TimestampType.LOG_APPEND_TIME
    builder = BatchBuilder(2**31 - 1, log_append_time_ms=message.timestamp_ms if has_append_time else None)
    for record in message.records(limit_bytes=limit_bytes):
        if not builder.record_count:
            builder.base_offset = record.offset
        delta = record.offset - builder.base_offset
        if not builder.last_offset_delta < delta <= _LAST_DELTA:
            raise RemoteProtocolError(f"the offsets in the message at offset {message.offset} do not rise as they must")
        builder.append(record.value, record.key, record.timestamp_ms, (), delta)
    return BatchView(builder.build())


def _with_sound_lz4_header(frame: memoryview) -> bytearray:
    """Format 0 was written with a header checksum over the wrong bytes, which a sound reader must refuse."""
    mended = bytearray(frame)
    if len(mended) > 4:
        descriptor_bytes = 2 + (8 if mended[4] & 0x08 else 0) + (4 if mended[4] & 0x01 else 0)
        if len(mended) > 4 + descriptor_bytes:
            checksum = _xxh32_of_few(mended[4 : 4 + descriptor_bytes])
            mended[4 + descriptor_bytes] = checksum >> 8 & 0xFF
    return mended


def _xxh32_of_few(data: bytearray) -> int:
    """xxHash32 of fewer than 16 bytes, with seed 0."""
    prime_1, prime_2, prime_3, prime_4, prime_5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
    mask = 0xFFFFFFFF
    hashed = prime_5 + len(data)
    words_end = len(data) // 4 * 4
    for position in range(0, words_end, 4):
        hashed = (hashed + int.from_bytes(data[position : position + 4], "little") * prime_3) & mask
        hashed = (hashed << 17 | hashed >> 15) * prime_4 & mask
    for byte in data[words_end:]:
        hashed = (hashed + byte * prime_5) & mask
        hashed = (hashed << 11 | hashed >> 21) * prime_1 & mask
    hashed ^= hashed >> 15
    hashed = hashed * prime_2 & mask
    hashed ^= hashed >> 13
    hashed = hashed * prime_3 & mask
    return hashed ^ hashed >> 16
