"""Batches as the reader makes them, for tests that need no topic."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pyarrow as pa

from barnabas.spark.schema import arrow_schema

AT = datetime(2026, 1, 31, 12, 0, 0, 123_000, tzinfo=UTC)
AT_MS = 1_769_860_800_123


def batch(
    values: Sequence[bytes | None],
    *,
    headers: Sequence[list[tuple[str, bytes]] | None] | None = None,
    topic: str = "clicks",
    partition: int = 3,
    first_offset: int = 100,
) -> pa.RecordBatch:
    """Keys are `k0`, `k1`, …; offsets count from `first_offset`."""
    count = len(values)
    columns = [
        pa.array([b"k%d" % row for row in range(count)], pa.binary()),
        pa.array(values, pa.binary()),
        pa.array([topic] * count, pa.string()),
        pa.array([partition] * count, pa.int32()),
        pa.array(range(first_offset, first_offset + count), pa.int64()),
        pa.array([AT] * count, pa.timestamp("us", tz="UTC")),
        pa.array([0] * count, pa.int32()),
    ]
    schema = arrow_schema(headers is not None)
    if headers is not None:
        rows = [None if row is None else [{"key": key, "value": value} for key, value in row] for row in headers]
        columns.append(pa.array(rows, schema.field("headers").type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
