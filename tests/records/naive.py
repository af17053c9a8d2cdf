"""Batches of format 2 in the plainest Python there is: the twin that the kernel is compared with."""

from __future__ import annotations

import gzip
import struct
from dataclasses import dataclass, field

import crc32c
import lz4.frame
import snappy
import zstandard

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True)
class NaiveRecord:
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    offset_delta: int = 0


@dataclass(frozen=True)
class NaiveBatch:
    records: list[NaiveRecord]
    base_offset: int = 0
    leader_epoch: int = -1
    attributes: int = 0
    last_offset_delta: int | None = None
    base_timestamp_ms: int | None = None
    max_timestamp_ms: int | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    record_count: int | None = None
    trailing: bytes = field(default=b"")


def varint(value: int) -> bytes:
    zigzag = value * 2 if value >= 0 else -value * 2 - 1
    out = []
    while zigzag > 127:
        out.append(zigzag % 128 + 128)
        zigzag //= 128
    return bytes([*out, zigzag])


def take_varint(data: bytes) -> tuple[int, bytes]:
    zigzag = 0
    for index, byte in enumerate(data):
        zigzag += byte % 128 * 128**index
        if byte < 128:
            return (zigzag // 2 if zigzag % 2 == 0 else -(zigzag + 1) // 2), data[index + 1 :]
    raise ValueError("cut off")


def nullable(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def take_nullable(data: bytes) -> tuple[bytes | None, bytes]:
    size, data = take_varint(data)
    return (None, data) if size < 0 else (data[:size], data[size:])


def wrapped(value: int) -> int:
    """As 64-bit arithmetic wraps."""
    return (value + 2**63) % 2**64 - 2**63


def encode_record(record: NaiveRecord, base_timestamp_ms: int) -> bytes:
    body = b"\0" + varint(wrapped(record.timestamp_ms - base_timestamp_ms)) + varint(record.offset_delta)
    body += nullable(record.key) + nullable(record.value) + varint(len(record.headers))
    for key, value in record.headers:
        body += nullable(key.encode()) + nullable(value)
    return varint(len(body)) + body


def decode_record(data: bytes, base_timestamp_ms: int) -> tuple[NaiveRecord, bytes]:
    size, data = take_varint(data)
    body, rest = data[1:size], data[size:]
    timestamp_delta, body = take_varint(body)
    offset_delta, body = take_varint(body)
    key, body = take_nullable(body)
    value, body = take_nullable(body)
    count, body = take_varint(body)
    headers = []
    for _ in range(count):
        name, body = take_nullable(body)
        content, body = take_nullable(body)
        assert name is not None
        headers.append((name.decode(), content))
    assert body == b""
    return NaiveRecord(wrapped(base_timestamp_ms + timestamp_delta), key, value, tuple(headers), offset_delta), rest


def compress(codec: int, data: bytes) -> bytes:
    if codec == 1:
        return gzip.compress(data)
    if codec == 2:
        return bytes(snappy.compress(data))
    if codec == 3:
        return bytes(lz4.frame.compress(data))
    if codec == 4:
        return bytes(zstandard.compress(data))
    return data


def decompress(codec: int, data: bytes) -> bytes:
    if codec == 1:
        return gzip.decompress(data)
    if codec == 2:
        if not data.startswith(b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"):
            return bytes(snappy.decompress(data))
        out, data = b"", data[16:]
        while data:
            size = int.from_bytes(data[:4], "big")
            out += snappy.decompress(data[4 : 4 + size])
            data = data[4 + size :]
        return out
    if codec == 3:
        return bytes(lz4.frame.decompress(data))
    if codec == 4:
        return bytes(zstandard.ZstdDecompressor().decompressobj().decompress(data))
    return data


def encode(batch: NaiveBatch) -> bytes:
    records = batch.records
    base_ms = batch.base_timestamp_ms
    if base_ms is None:
        base_ms = records[0].timestamp_ms if records else -1
    max_ms = batch.max_timestamp_ms
    if max_ms is None:
        max_ms = max((record.timestamp_ms for record in records), default=-1)
    last = batch.last_offset_delta
    if last is None:
        last = records[-1].offset_delta if records else 0
    count = len(records) if batch.record_count is None else batch.record_count
    payload = b"".join(encode_record(record, base_ms) for record in records) + batch.trailing
    tail = struct.pack(">hiqq", batch.attributes, last, base_ms, max_ms)
    tail += struct.pack(">qhii", batch.producer_id, batch.producer_epoch, batch.base_sequence, count)
    tail += compress(batch.attributes & 7, payload)
    crc = crc32c.crc32c(tail)
    return struct.pack(">qiibI", batch.base_offset, len(tail) + 9, batch.leader_epoch, 2, crc) + tail


def decode(data: bytes) -> NaiveBatch:
    base_offset, length, leader_epoch, magic, crc = struct.unpack(">qiibI", data[:21])
    attributes, last, base_ms, max_ms = struct.unpack(">hiqq", data[21:43])
    producer_id, producer_epoch, base_sequence, count = struct.unpack(">qhii", data[43:61])
    assert (length + 12, magic, crc) == (len(data), 2, crc32c.crc32c(data[21:]))
    payload = decompress(attributes & 7, data[61:])
    records = []
    for _ in range(count):
        record, payload = decode_record(payload, base_ms)
        records.append(record)
    assert payload == b""
    return NaiveBatch(
        records,
        base_offset,
        leader_epoch,
        attributes,
        last,
        base_ms,
        max_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
