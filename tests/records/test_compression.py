"""Codecs: what goes in comes out, in Kafka's form; bombs and garbage end as one kind of error."""

from __future__ import annotations

import contextlib
import gzip
import os
import struct
import tracemalloc

import cramjam
import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from tests.records import naive

from barnabas.base.errors import RemoteProtocolError
from barnabas.records import Codec, compress, decompress

COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]
NOISE = os.urandom(70_000)
CONTENTS = [b"", b"a", b"Klamm " * 40_000, NOISE, bytes(65_536), bytes(65_536) + NOISE[:65_537], NOISE[:32_768]]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("content", CONTENTS, ids=len)
def test_round_trip(codec: Codec, content: bytes) -> None:
    assert decompress(codec, compress(codec, content)) == content
    assert decompress(codec, memoryview(compress(codec, memoryview(bytearray(content))))) == content


@given(st.binary(max_size=2000), st.sampled_from(list(Codec)), st.integers(1, 200))
def test_others_read_ours_and_we_read_theirs(content: bytes, codec: Codec, repeat: int) -> None:
    content *= repeat
    assert naive.decompress(codec, bytes(memoryview(compress(codec, content)))) == content
    assert decompress(codec, naive.compress(codec, content)) == content


@pytest.mark.parametrize("codec", COMPRESSING)
def test_levels(codec: Codec) -> None:
    content = b"".join(b"record %d of the castle's registry " % index for index in range(3000))
    for level in {codec.levels.start, -5, 1, 9, codec.levels.stop - 1} & set(codec.levels):
        assert decompress(codec, compress(codec, content, level)) == content
    for level in (codec.levels.start - 1, codec.levels.stop):
        if level != -1:
            with pytest.raises(ValueError, match="level"):
                compress(codec, content, level)


def test_lz4_is_one_frame_of_independent_blocks_without_checksums() -> None:
    """Java's reader refuses linked blocks, and knows no content checksum."""
    for level in (None, 9):
        frame = bytes(memoryview(compress(Codec.LZ4, bytes(200_000) + NOISE, level)))
        assert frame[:7].hex() == "04224d18604082"
        info = lz4.frame.get_frame_info(frame)
        assert (info["block_size"], info["block_linked"]) == (64 * 1024, False)
        assert not info["content_checksum"]
        assert not info["block_checksum"]


def test_snappy_is_written_in_chunks_of_32_kib() -> None:
    stream = bytes(memoryview(compress(Codec.SNAPPY, NOISE)))
    assert stream[:16].hex() == "82534e415050590000000001" + "00000001"
    sizes, position = [], 16
    while position < len(stream):
        (size,) = struct.unpack_from(">i", stream, position)
        sizes.append(len(snappy.decompress(stream[position + 4 : position + 4 + size])))
        position += 4 + size
    assert sizes == [32_768, 32_768, 70_000 - 65_536]


@pytest.mark.parametrize("codec", COMPRESSING)
def test_concatenated_streams_are_one(codec: Codec) -> None:
    stream = bytes(memoryview(compress(codec, b"K." * 50_000)))
    assert decompress(codec, stream * 3) == b"K." * 150_000
    if codec is Codec.GZIP:
        assert decompress(codec, gzip.compress(b"") * 3000 + stream) == b"K." * 50_000


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_skippable_frames_are_skipped(codec: Codec) -> None:
    skippable = struct.pack("<II", 0x184D2A53, 5) + b"12345"
    stream = bytes(memoryview(compress(codec, b"land surveyor")))
    assert bytes(decompress(codec, skippable + stream + skippable)) == b"land surveyor"
    with pytest.raises(RemoteProtocolError):
        decompress(codec, stream + skippable[:-1])


@pytest.mark.parametrize("codec", COMPRESSING)
def test_the_limit_is_exact(codec: Codec) -> None:
    stream = compress(codec, bytes(100_000))
    assert len(decompress(codec, stream, 100_000)) == 100_000
    with pytest.raises(
        RemoteProtocolError, match=f"the {codec.name.lower()} data decompresses to more than 99999 bytes"
    ):
        decompress(codec, stream, 99_999)


def bombs() -> list[tuple[Codec, bytes]]:
    zeros = bytes(64 << 20)
    unsized = zstandard.ZstdCompressor(level=1).compressobj()
    sized_lz4 = lz4.frame.compress(zeros, block_linked=False, store_size=True)
    return [
        (Codec.GZIP, gzip.compress(zeros, 1)),
        (Codec.GZIP, gzip.compress(zeros[: 1 << 20], 1) * 64),
        (Codec.SNAPPY, bytes(memoryview(compress(Codec.SNAPPY, zeros)))),
        (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(zeros))),
        (Codec.LZ4, bytes(memoryview(compress(Codec.LZ4, zeros)))),
        (Codec.LZ4, sized_lz4),
        (Codec.LZ4, lz4.frame.compress(zeros, store_size=False)),
        (Codec.ZSTD, zstandard.compress(zeros)),
        (Codec.ZSTD, unsized.compress(zeros) + unsized.flush()),
    ]


@pytest.mark.parametrize(("codec", "bomb"), bombs(), ids=lambda part: None if isinstance(part, bytes) else part.name)
def test_a_bomb_is_an_error_and_takes_no_memory(codec: Codec, bomb: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError, match="more than 1000000 bytes"):
            decompress(codec, bomb, 1_000_000)
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


LYING = {
    "snappy block": (Codec.SNAPPY, b"\xff\xff\xff\xff\x07" + b"\x00a"),
    "snappy chunk": (Codec.SNAPPY, b"\x82SNAPPY\0\0\0\0\1\0\0\0\1" + b"\x7f\xff\xff\xff" + b"abc"),
    "snappy block in a chunk": (Codec.SNAPPY, b"\x82SNAPPY\0\0\0\0\1\0\0\0\1\0\0\0\6" + b"\xff\xff\xff\x3f\x00a"),
    "lz4 content size": (Codec.LZ4, bytes.fromhex("04224d1868 40") + (1 << 40).to_bytes(8, "little") + bytes(5)),
    "lz4 block": (Codec.LZ4, bytes.fromhex("04224d18604082 ffffff7f 00000000")),
    "zstd content size": (Codec.ZSTD, bytes.fromhex("28b52ffd e0") + (1 << 50).to_bytes(8, "little") + b"\1\0\0"),
    "zstd window": (Codec.ZSTD, bytes.fromhex("28b52ffd 00 a8 010000")),
    "zstd run": (Codec.ZSTD, bytes.fromhex("28b52ffd 00 58 fbffff61")),
}


@pytest.mark.parametrize("name", LYING)
def test_sizes_are_not_believed(name: str) -> None:
    codec, data = LYING[name]
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError):
            decompress(codec, data)
        assert tracemalloc.get_traced_memory()[1] < 300_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", COMPRESSING)
def test_every_cut_is_an_error(codec: Codec) -> None:
    content = b"".join(b"%d " % index for index in range(300)) + NOISE[:100]
    stream = bytes(memoryview(compress(codec, content)))
    for size in range(len(stream)):
        if codec is Codec.SNAPPY and size == 16:
            continue  # a stream of no chunks is a stream
        with pytest.raises(RemoteProtocolError):
            decompress(codec, stream[:size])


@given(st.sampled_from(COMPRESSING), st.binary(max_size=300), st.booleans())
def test_garbage_is_an_error_or_a_small_result(codec: Codec, garbage: bytes, keep_start: bool) -> None:
    data = (bytes(memoryview(compress(codec, b"start")))[:11] if keep_start else b"") + garbage
    with contextlib.suppress(RemoteProtocolError):
        assert len(decompress(codec, data, 1_000_000)) <= 1_000_000


@given(st.sampled_from(COMPRESSING), st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), max_size=4))
def test_flipped_bits_are_an_error_or_a_bounded_result(codec: Codec, flips: list[tuple[int, int]]) -> None:
    stream = bytearray(memoryview(compress(codec, b"Frieda Olga Amalia Sortini " * 20)))
    for position, mask in flips:
        stream[position % len(stream)] ^= mask
    with contextlib.suppress(RemoteProtocolError):
        assert len(decompress(codec, stream, 1_000_000)) <= 1_000_000
