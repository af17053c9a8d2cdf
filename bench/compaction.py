"""Both passes of compaction on one core, from the bytes of a log to those of the compacted one, CRCs included."""

from __future__ import annotations

import random
from functools import partial

from barnabas.records import BatchBuilder, BatchView, Codec, iter_batches
from barnabas.storage.compaction import BatchCleaner, KeyOffsets
from bench.measure import Result, best_seconds

RECORDS = 1_000_000
QUICK_RECORDS = 200_000
RECORDS_PER_KEY = 10
KEY_BYTES = 16
VALUE_BYTES = 100 - KEY_BYTES
BATCH_BYTES = 16 * 1024
READ_BYTES = 1024 * 1024
MAP_LIMIT_BYTES = 128 * 1024 * 1024
TIMESTAMP_MS = 1_700_000_000_000
TARGET_RECORDS_PER_SECOND = 1_000_000
ROUNDS = 5


def build_log(codec: Codec, records: int) -> list[bytes]:
    """Records with keys in no order, in pieces of about the size that a cleaner reads at once."""
    rng = random.Random(1)
    keys = [rng.randbytes(KEY_BYTES) for _ in range(records // RECORDS_PER_KEY)] * RECORDS_PER_KEY
    rng.shuffle(keys)
    # Half of the bytes of a value repeat, as those of JSON and its kin do.
    values = [rng.randbytes(VALUE_BYTES // 2) + b"x" * (VALUE_BYTES - VALUE_BYTES // 2) for _ in range(1000)]
    pieces, piece, offset = [], bytearray(), 0
    builder = BatchBuilder(BATCH_BYTES, codec=codec)
    for number, key in enumerate(keys):
        value = values[number % len(values)]
        while builder.append(value, key, TIMESTAMP_MS + number) is None:
            batch = builder.build()
            BatchView(batch).stamp(base_offset=offset, leader_epoch=0)
            piece += batch
            offset = number
            builder = BatchBuilder(BATCH_BYTES, codec=codec)
            if len(piece) >= READ_BYTES:
                pieces.append(bytes(piece))
                piece = bytearray()
    batch = builder.build()
    BatchView(batch).stamp(base_offset=offset, leader_epoch=0)
    return [*pieces, bytes(piece + batch)]


def compact(pieces: list[bytes], records: int) -> BatchCleaner:
    keys = KeyOffsets(0, MAP_LIMIT_BYTES)
    for piece in pieces:
        keys.add_all(iter_batches(piece))
    cleaner = BatchCleaner(keys, end_offset=records, now_ms=TIMESTAMP_MS, delete_retention_ms=0)
    for piece in pieces:
        b"".join(entry.data for entry in cleaner.clean(iter_batches(piece)))
    return cleaner


def run(records: int = RECORDS) -> list[Result]:
    logs = {codec: build_log(codec, records) for codec in (Codec.NONE, Codec.LZ4)}
    for pieces in logs.values():
        stats = compact(pieces, records).stats
        if (stats.records_read, stats.records_retained) != (records, records // RECORDS_PER_KEY):
            raise RuntimeError(f"compaction went wrong: {stats}")
    seconds = best_seconds(*(partial(compact, pieces, records) for pieces in logs.values()), rounds=ROUNDS)
    return [
        Result(
            f"compact 100-byte records, both passes, {codec.name.lower()} / 1 M/s",
            records / best / TARGET_RECORDS_PER_SECOND,
            1.0,
            f"{best / records * 1e9:.0f} ns a record",
        )
        for codec, best in zip(logs, seconds, strict=True)
    ]


def run_quickly() -> list[Result]:
    return run(QUICK_RECORDS)
