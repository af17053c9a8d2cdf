"""Any range of any log reads as another client reads it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from random import Random

import pyarrow as pa
import pytest

from barnabas.records import Codec
from barnabas.spark import reading
from barnabas.spark.reading import RangePartition, ReadPlan, read_range
from barnabas.spark.schema import arrow_schema
from barnabas.testing import EmbeddedBroker
from tests.spark.reading.logs import Log, Row, random_log, seen_by_librdkafka, write

LOGS = 25


def rows_of(batches: Iterator[pa.RecordBatch]) -> list[Row]:
    rows: list[Row] = []
    for batch in batches:
        assert batch.schema == arrow_schema(True)
        batch.validate(full=True)
        assert batch.num_rows
        stamps = batch.column("timestamp").cast(pa.int64()).to_pylist()
        for row, stamp_us in zip(batch.to_pylist(), stamps, strict=True):
            headers = row["headers"]
            rows.append(
                (
                    row["key"],
                    row["value"],
                    row["offset"],
                    stamp_us // 1000,
                    row["timestampType"],
                    None if headers is None else [(each["key"], each["value"]) for each in headers],
                )
            )
    return rows


@pytest.fixture(scope="module")
def logs() -> dict[str, Log]:
    old = Log().old([b"a", b"b"], magic=0).old([b"c"], magic=1).old([b"d", b"e", b"f"], magic=1, codec=1).batch([b"g"])
    return {"old": old, **{f"log-{seed}": random_log(Random(seed)) for seed in range(LOGS)}}


#: What is left of the batch is more than a batch of Spark's may hold, and none of it is for who begins behind it.
TAIL_COMPACTED_AWAY = (
    Log().batch([b"v" * 1000] * 10, deltas=range(10), length=20, codec=Codec.ZSTD).batch([b"last"] * 5)
)


@pytest.fixture(scope="module")
def bootstrap(logs: dict[str, Log], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("logs")
    write(folder, {**logs, "tail": TAIL_COMPACTED_AWAY})
    with EmbeddedBroker(folder) as broker:
        yield broker.bootstrap_servers


@pytest.mark.parametrize("isolation_level", ["read_uncommitted", "read_committed"])
def test_every_range_holds_what_librdkafka_sees_there(
    isolation_level: str, logs: dict[str, Log], bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    randomness = Random(isolation_level)
    for topic, log in logs.items():
        expected = seen_by_librdkafka(bootstrap, topic, read_committed=isolation_level == "read_committed")
        client = {
            "bootstrap.servers": bootstrap,
            "isolation.level": isolation_level,
            "max.partition.fetch.bytes": str(randomness.choice([1, 500, 5000, 1 << 20])),
        }
        plan = ReadPlan(client, include_headers=True, poll_timeout_ms=10_000)
        monkeypatch.setattr(reading, "_BATCH_ROWS", randomness.choice([1, 7, 100, 65_536]))
        monkeypatch.setattr(reading, "_BATCH_BYTES", randomness.choice([1, 1000, 8 << 20]))
        cuts = sorted({0, log.end, *(randomness.randrange(log.end + 1) for _ in range(3))})
        for first, until in pairwise(cuts):
            found = rows_of(read_range(plan, RangePartition(topic, 0, first, until)))
            assert found == [row for row in expected if first <= row[2] < until], (topic, first, until)


@pytest.mark.parametrize("first", [0, 5, 12, 20])
def test_a_range_may_begin_where_the_tail_of_a_large_batch_was(
    first: int, bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_BATCH_BYTES", 5000)
    client = {"bootstrap.servers": bootstrap, "max.partition.fetch.bytes": "100"}
    plan = ReadPlan(client, include_headers=True, poll_timeout_ms=3000)
    rows = rows_of(read_range(plan, RangePartition("tail", 0, first, 25)))
    assert [row[2] for row in rows] == [*range(first, 10), *range(20, 25)]
