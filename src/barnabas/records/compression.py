"""The codecs of a batch. Compressed bytes come from others, so decompression is bounded and fails in one way only.

Nothing here trusts a size that the data claims of itself: before a byte is decompressed the frames are walked, which
gives an upper bound of what can come out, and no more than that (or the caller's limit) is ever allocated.
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import cramjam

from barnabas.base._kernel.scratch import scratch
from barnabas.base.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

# A broker takes batches of 1 MiB by default, and its largest requests have 100 MiB. Records of text shrink to a tenth
# at best, so an honest batch stays far below this, while a dozen hostile ones still fit in memory.
DEFAULT_LIMIT_BYTES: Final = 128 * 1024 * 1024


class Codec(IntEnum):
    """How the records of a batch are compressed; the number is what the batch's attributes carry."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def levels(self) -> range:
        """The levels that may be asked for, as in Kafka's settings; empty if the codec has none."""
        return _LEVELS[self]


_LEVELS: Final = {
    Codec.NONE: range(0),
    Codec.GZIP: range(1, 10),
    Codec.SNAPPY: range(0),
    Codec.LZ4: range(1, 18),
    Codec.ZSTD: range(-131072, 23),
}
GZIP_DEFAULT_LEVEL: Final = -1
ZSTD_DEFAULT_LEVEL: Final = 3


def check_level(codec: Codec, level: int | None) -> None:
    """Refuse a level that the codec does not have. None, and gzip's -1, stand for the codec's own default."""
    if level is None or level in codec.levels or (codec is Codec.GZIP and level == GZIP_DEFAULT_LEVEL):
        return
    if not codec.levels:
        raise ValueError(f"{codec.name.lower()} has no compression levels")
    allowed = f"{codec.levels.start} to {codec.levels.stop - 1}" + (" or -1" if codec is Codec.GZIP else "")
    raise ValueError(f"a level of {codec.name.lower()} is {allowed}, not {level}")


def compress(codec: Codec, data: Buffer, level: int | None = None) -> Buffer:
    """`data` in the form in which Kafka's own clients write it, as some object that holds the bytes."""
    check_level(codec, level)
    match codec:
        case Codec.NONE:
            return data
        case Codec.GZIP:
            return _compress_gzip(data, GZIP_DEFAULT_LEVEL if level is None else level)
        case Codec.SNAPPY:
            return _compress_snappy(memoryview(data))
        case Codec.LZ4:
            return _compress_lz4(memoryview(data), level)
        case Codec.ZSTD:
            compressed: Buffer = cramjam.zstd.compress(data, level=ZSTD_DEFAULT_LEVEL if level is None else level)
            return compressed


def decompress(codec: Codec, data: Buffer, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> memoryview:
    """The bytes that were compressed, unless they are more than `limit_bytes` or `data` is malformed."""
    view = memoryview(data)
    match codec:
        case Codec.NONE:
            return view
        case Codec.GZIP:
            return _decompress_gzip(view, limit_bytes)
        case Codec.SNAPPY:
            return _decompress_snappy(view, limit_bytes)
        case Codec.LZ4:
            frames = _lz4_frames(view, limit_bytes)
            return _decompress_frames(cramjam.lz4.decompress_into, codec, view, frames, limit_bytes)
        case Codec.ZSTD:
            frames = _zstd_frames(view, limit_bytes)
            return _decompress_frames(cramjam.zstd.decompress_into, codec, view, frames, limit_bytes)


class DecompressionLimitError(RemoteProtocolError):
    """More came out of compressed data than was allowed for."""


def _too_large(codec: Codec, limit_bytes: int) -> RemoteProtocolError:
    return DecompressionLimitError(f"the {codec.name.lower()} data decompresses to more than {limit_bytes} bytes")


def _malformed(codec: Codec, what: str, position: int) -> RemoteProtocolError:
    return RemoteProtocolError(f"malformed {codec.name.lower()} data: {what}, at byte {position}")


class _Frame(NamedTuple):
    """Where a frame lies, and the most that it can decompress to."""

    start: int
    stop: int
    bound_bytes: int


def _decompress_frames(
    into: Callable[[memoryview, memoryview], int],
    codec: Codec,
    data: memoryview,
    frames: list[_Frame],
    limit_bytes: int,
) -> memoryview:
    """Frame by frame: some versions of the library take the end of the first for the end of all."""
    bound_bytes = sum(frame.bound_bytes for frame in frames)
    room = memoryview(scratch(min(bound_bytes, limit_bytes)))
    filled_bytes = 0
    for frame in frames:
        try:
            filled_bytes += into(data[frame.start : frame.stop], room[filled_bytes:])
        except cramjam.DecompressionError as error:
            # The library does not tell a lack of room apart from other failures. The bound is never too small for
            # sound frames, so a lack of room can only come from the limit.
            if bound_bytes > limit_bytes:
                raise _too_large(codec, limit_bytes) from error
            raise _malformed(codec, str(error), frame.start) from error
    return room[:filled_bytes]


# --- gzip


def _compress_gzip(data: Buffer, level: int) -> bytes:
    return zlib.compress(data, level, wbits=31)


# A first guess of one piece, the rest in small ones: what follows a member is copied by zlib, and a hostile sender can
# put a member into every 20 bytes.
_LATER_PIECE_BYTES: Final = 16 * 1024


def _decompress_gzip(data: memoryview, limit_bytes: int) -> memoryview:
    members: list[bytes] = []
    left_bytes = limit_bytes
    position = 0
    piece_bytes = len(data)
    while True:
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            piece = data[position : position + piece_bytes]
            if not piece:
                raise _malformed(Codec.GZIP, "it is cut off", len(data))
            try:
                # One byte more than allowed, to see that there is more.
                out = member.decompress(piece, left_bytes + 1)
            except zlib.error as error:
                raise _malformed(Codec.GZIP, str(error), position) from error
            left_bytes -= len(out)
            if left_bytes < 0:
                raise _too_large(Codec.GZIP, limit_bytes)
            members.append(out)
            position += len(piece) - len(member.unused_data)
        if position == len(data):
            return memoryview(members[0] if len(members) == 1 else b"".join(members))
        piece_bytes = _LATER_PIECE_BYTES


# --- snappy

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + (1).to_bytes(4, "big") + (1).to_bytes(4, "big")
_XERIAL_CHUNK_BYTES: Final = 32 * 1024
# The densest element is a copy: 3 bytes for at most 64.
_SNAPPY_MAX_RATIO: Final = 22


def _compress_snappy(data: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_CHUNK_BYTES):
        chunk = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_CHUNK_BYTES]))
        parts += (len(chunk).to_bytes(4, "big"), chunk)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, limit_bytes: int) -> memoryview:
    """Java frames snappy as the xerial library does; librdkafka and others send one bare block."""
    blocks = _xerial_blocks(data) if _is_xerial(data, 0) else [(0, data)]
    sizes = [_snappy_size(block, position) for position, block in blocks]
    total_bytes = sum(sizes)
    if total_bytes > limit_bytes:
        raise _too_large(Codec.SNAPPY, limit_bytes)
    room = memoryview(scratch(total_bytes))
    filled_bytes = 0
    for (position, block), size_bytes in zip(blocks, sizes, strict=True):
        if size_bytes:  # the library refuses to write nothing
            try:
                cramjam.snappy.decompress_raw_into(block, room[filled_bytes : filled_bytes + size_bytes])
            except cramjam.DecompressionError as error:
                raise _malformed(Codec.SNAPPY, str(error), position) from error
        filled_bytes += size_bytes
    return room


def _is_xerial(data: memoryview, position: int) -> bool:
    return data[position : position + len(_XERIAL_MAGIC)].tobytes() == _XERIAL_MAGIC


def _xerial_blocks(data: memoryview) -> list[tuple[int, memoryview]]:
    if len(data) < len(_XERIAL_HEADER):
        raise _malformed(Codec.SNAPPY, "the stream header is cut off", len(data))
    blocks = []
    position = len(_XERIAL_HEADER)
    while position < len(data):
        # Streams may be concatenated, each with its header.
        if _is_xerial(data, position):
            position += len(_XERIAL_HEADER)
            continue
        size_bytes = int.from_bytes(data[position : position + 4], "big")
        block = data[position + 4 : position + 4 + size_bytes]
        if len(block) < size_bytes or position + 4 > len(data):
            raise _malformed(Codec.SNAPPY, "a chunk is cut off", position)
        blocks.append((position + 4, block))
        position += 4 + size_bytes
    return blocks


def _snappy_size(block: memoryview, position: int) -> int:
    """What a block says it decompresses to, as far as that is possible at all."""
    size_bytes = 0
    for index, byte in enumerate(block[:5]):
        size_bytes |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            break
    else:
        raise _malformed(Codec.SNAPPY, "the length is cut off or too long", position)
    if size_bytes > _SNAPPY_MAX_RATIO * len(block):
        raise _malformed(Codec.SNAPPY, f"{len(block)} bytes cannot hold the {size_bytes} that they claim", position)
    return size_bytes


# --- lz4

_SKIPPABLE_MAGICS: Final = range(0x184D2A50, 0x184D2A60)
_LZ4_MAGIC: Final = 0x184D2204
# Magic, then what Java reads and writes: independent blocks of 64 KiB, no checksums; the last byte guards these two.
_LZ4_HEADER: Final = _LZ4_MAGIC.to_bytes(4, "little") + b"\x60\x40\x82"
_LZ4_END: Final = bytes(4)
_LZ4_STORED_BIT: Final = 0x80000000
_LZ4_WRITTEN_BLOCK_BYTES: Final = 64 * 1024
_LZ4_BLOCK_BYTES: Final = {4: 64 * 1024, 5: 256 * 1024, 6: 1024 * 1024, 7: 4 * 1024 * 1024}
# A run of matches costs one byte per 255.
_LZ4_MAX_RATIO: Final = 255


def _compress_lz4(data: memoryview, level: int | None) -> memoryview:
    """One frame, written here block by block: the library's own would copy its input and add checksums to blocks."""
    mode: Literal["default", "high_compression"] = "default" if level is None else "high_compression"
    block_count = -(-len(data) // _LZ4_WRITTEN_BLOCK_BYTES)
    # A block that does not shrink is stored as it is, so 4 bytes for its length are all that it can add; the last one
    # needs the room that the library demands before it knows.
    bound_bytes = cramjam.lz4.compress_block_bound(data[:_LZ4_WRITTEN_BLOCK_BYTES])
    room = memoryview(scratch(len(_LZ4_HEADER) + len(data) + 4 * block_count + bound_bytes + len(_LZ4_END)))
    room[: len(_LZ4_HEADER)] = _LZ4_HEADER
    position = len(_LZ4_HEADER)
    for start in range(0, len(data), _LZ4_WRITTEN_BLOCK_BYTES):
        block = data[start : start + _LZ4_WRITTEN_BLOCK_BYTES]
        body = room[position + 4 : position + 4 + bound_bytes]
        size_bytes = cramjam.lz4.compress_block_into(block, body, mode, compression=level, store_size=False)
        length = size_bytes
        if size_bytes >= len(block):
            size_bytes = len(block)
            length = size_bytes | _LZ4_STORED_BIT
            body[:size_bytes] = block
        room[position : position + 4] = length.to_bytes(4, "little")
        position += 4 + size_bytes
    room[position : position + len(_LZ4_END)] = _LZ4_END
    return room[: position + len(_LZ4_END)]


def _lz4_frames(data: memoryview, limit_bytes: int) -> list[_Frame]:
    frames = []
    position = 0
    while position < len(data):
        start, bound_bytes = position, 0
        magic = int.from_bytes(data[position : position + 4], "little")
        if magic in _SKIPPABLE_MAGICS:
            position = _after_skippable(data, position, Codec.LZ4)
            continue
        if magic != _LZ4_MAGIC or position + 7 > len(data):
            raise _malformed(Codec.LZ4, "this is no frame", position)
        flags = data[position + 4]
        block_limit_bytes = _LZ4_BLOCK_BYTES.get(data[position + 5] >> 4 & 7)
        if block_limit_bytes is None:
            raise _malformed(Codec.LZ4, "the block size is unknown", position + 5)
        has_block_checksums, has_content_size, has_content_checksum, has_dictionary = (
            bool(flags & bit) for bit in (0x10, 0x08, 0x04, 0x01)
        )
        if has_content_size and int.from_bytes(data[position + 6 : position + 14], "little") > limit_bytes:
            raise _too_large(Codec.LZ4, limit_bytes)
        position += 7 + 8 * has_content_size + 4 * has_dictionary
        while True:
            if position + 4 > len(data):
                raise _malformed(Codec.LZ4, "a frame is cut off", len(data))
            size_bytes = int.from_bytes(data[position : position + 4], "little") & ~_LZ4_STORED_BIT
            position += 4
            if size_bytes == 0:
                break
            bound_bytes += min(block_limit_bytes, _LZ4_MAX_RATIO * size_bytes)
            position += size_bytes + 4 * has_block_checksums
        position += 4 * has_content_checksum
        frames.append(_Frame(start, position, bound_bytes))
    if position != len(data) or not data:
        raise _malformed(Codec.LZ4, "a frame is cut off", len(data))
    return frames


def _after_skippable(data: memoryview, position: int, codec: Codec) -> int:
    after = position + 8 + int.from_bytes(data[position + 4 : position + 8], "little")
    if after > len(data):
        raise _malformed(codec, "a skippable frame is cut off", position)
    return after


# --- zstd

_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_BLOCK_BYTES: Final = 128 * 1024
_ZSTD_HEADER_ROOM: Final = 18  # magic, descriptor, window, dictionary id, content size
# What every decoder must be able to take, says RFC 8878; more is taken only within the limit.
_ZSTD_WINDOW_BYTES: Final = 8 * 1024 * 1024
_RAW_BLOCK, _RLE_BLOCK, _COMPRESSED_BLOCK = 0, 1, 2


def _zstd_frames(data: memoryview, limit_bytes: int) -> list[_Frame]:
    frames = []
    position = 0
    while position < len(data):
        start, bound_bytes = position, 0
        magic = int.from_bytes(data[position : position + 4], "little")
        if magic in _SKIPPABLE_MAGICS:
            position = _after_skippable(data, position, Codec.ZSTD)
            continue
        if magic != _ZSTD_MAGIC:
            raise _malformed(Codec.ZSTD, "this is no frame", position)
        position, block_limit_bytes, has_checksum = _zstd_header(data, position, limit_bytes)
        last = False
        while not last:
            if position + 3 > len(data):
                raise _malformed(Codec.ZSTD, "a frame is cut off", len(data))
            block = int.from_bytes(data[position : position + 3], "little")
            last, kind, size_bytes = bool(block & 1), block >> 1 & 3, block >> 3
            if kind not in (_RAW_BLOCK, _RLE_BLOCK, _COMPRESSED_BLOCK) or size_bytes > block_limit_bytes:
                raise _malformed(Codec.ZSTD, "a block is of an unknown kind or too large", position)
            bound_bytes += block_limit_bytes if kind == _COMPRESSED_BLOCK else size_bytes
            position += 3 + (1 if kind == _RLE_BLOCK else size_bytes)
        position += 4 * has_checksum
        frames.append(_Frame(start, position, bound_bytes))
    if position != len(data) or not data:
        raise _malformed(Codec.ZSTD, "a frame is cut off", len(data))
    return frames


def _zstd_header(data: memoryview, position: int, limit_bytes: int) -> tuple[int, int, bool]:
    """Where the blocks of the frame begin, how much one may hold, and whether a checksum follows them."""
    header = data[position : position + _ZSTD_HEADER_ROOM].tobytes()
    if len(header) < 6:
        raise _malformed(Codec.ZSTD, "a frame is cut off", len(data))
    descriptor = header[4]
    is_single_segment, has_checksum = bool(descriptor & 0x20), bool(descriptor & 0x04)
    at = 5
    window_bytes = 0
    if not is_single_segment:
        window_base = 1 << (10 + (header[at] >> 3))
        window_bytes = window_base + window_base // 8 * (header[at] & 7)
        at += 1
    at += (0, 1, 2, 4)[descriptor & 3]
    content_size_width = (int(is_single_segment), 2, 4, 8)[descriptor >> 6]
    if content_size_width:
        content_bytes = int.from_bytes(header[at : at + content_size_width], "little")
        content_bytes += 256 if content_size_width == 2 else 0
        if content_bytes > limit_bytes:
            raise _too_large(Codec.ZSTD, limit_bytes)
        if is_single_segment:
            window_bytes = content_bytes
    if window_bytes > max(limit_bytes, _ZSTD_WINDOW_BYTES):
        raise _malformed(Codec.ZSTD, f"the frame asks for a window of {window_bytes} bytes", position)
    return position + at + content_size_width, min(_ZSTD_BLOCK_BYTES, window_bytes), has_checksum
