"""How fast batches are built and read, against the compiled codec of aiokafka. One core, one run, CRC included."""

from __future__ import annotations

import pyarrow as pa
from aiokafka.record._crecords import DefaultRecordBatch, DefaultRecordBatchBuilder

from barnabas.records import BatchBuilder, BatchView
from barnabas.records.arrow import fill_builders, to_arrow
from bench.measure import Result, best_seconds

RECORDS = 10_000
RECORDS_PER_BATCH = 1_000
VALUE_BYTES = 100
LIMIT_BYTES = 1024 * 1024
TIMESTAMP_MS = 1_700_000_000_000
ROUNDS = 40

VALUES = [index.to_bytes(4, "big") * (VALUE_BYTES // 4) for index in range(RECORDS)]
VALUES_BY_BATCH = [VALUES[start : start + RECORDS_PER_BATCH] for start in range(0, RECORDS, RECORDS_PER_BATCH)]
TABLE = pa.record_batch({"value": pa.array(VALUES, pa.binary())})


def build_with_aiokafka() -> list[bytes]:
    batches = []
    for values in VALUES_BY_BATCH:
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, LIMIT_BYTES)
        for offset, value in enumerate(values):
            builder.append(offset, TIMESTAMP_MS, None, value, [])
        batches.append(builder.build())
    return batches


def build_with_builder() -> list[bytearray]:
    batches = []
    for values in VALUES_BY_BATCH:
        builder = BatchBuilder(LIMIT_BYTES)
        for value in values:
            builder.append(value, None, TIMESTAMP_MS)
        batches.append(builder.build())
    return batches


def build_from_arrow() -> list[bytearray]:
    filled = fill_builders(TABLE, lambda: BatchBuilder(BATCH_BYTES), default_timestamp_ms=TIMESTAMP_MS)
    return [builder.build() for builder in filled]


BATCHES = [bytes(batch) for batch in build_with_builder()]
BATCH_BYTES = max(len(batch) for batch in BATCHES)


def read_with_aiokafka() -> int:
    count = 0
    for data in BATCHES:
        batch = DefaultRecordBatch(data)
        if not batch.validate_crc():
            raise RuntimeError("aiokafka finds our CRC wrong")
        for _record in batch:
            count += 1
    return count


def read_records() -> int:
    count = 0
    for data in BATCHES:
        batch = BatchView(data)
        batch.check_crc()
        for _record in batch:
            count += 1
    return count


def read_to_arrow() -> int:
    batches = [BatchView(data) for data in BATCHES]
    for batch in batches:
        batch.check_crc()
    return int(to_arrow(batches).num_rows)


def check_records() -> int:
    count = 0
    for data in BATCHES:
        batch = BatchView(data)
        batch.check_crc()
        count += batch.summarise().record_count
    return count


def run() -> list[Result]:
    build_times = best_seconds(build_with_aiokafka, build_with_builder, build_from_arrow, rounds=ROUNDS)
    read_times = best_seconds(read_with_aiokafka, read_records, read_to_arrow, check_records, rounds=ROUNDS)
    return [
        _result("builder", build_times[1], build_times[0], 1.5),
        _result("Arrow encode", build_times[2], build_times[0], 5.0),
        _result("iteration", read_times[1], read_times[0], 1.0),
        _result("Arrow decode", read_times[2], read_times[0], 5.0),
        _result("check of every record", read_times[3], read_times[0], None),
    ]


def _result(name: str, our_seconds: float, their_seconds: float, target: float | None) -> Result:
    ours_ns, theirs_ns = (seconds / RECORDS * 1e9 for seconds in (our_seconds, their_seconds))
    detail = f"{ours_ns:.0f} ns a record, aiokafka {theirs_ns:.0f} ns"
    return Result(f"records: {name}, {VALUE_BYTES} B / aiokafka", theirs_ns / ours_ns, target, detail)
