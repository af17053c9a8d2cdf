"""Usual batches are stepped through in the kernel, all others by the source: nobody can see which did it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from barnabas.client._kernel.receiving import Chunk
from barnabas.client.core.consuming.fetched import FetchedRecords
from barnabas.client.errors import ClientError
from barnabas.records import BatchView, Codec
from barnabas.records._kernel.collect import RecordColumns
from barnabas.records.arrow import record_arrays
from tests.client.core.consuming.logs import T0, batch, chunk, fetched, marker


class AskedEachTime:
    """A source that shows nobody its entries."""

    def __init__(self, source: FetchedRecords) -> None:
        self._source = source

    @property
    def next_offset(self) -> int:
        return self._source.next_offset

    @property
    def next_epoch(self) -> int:
        return self._source.next_epoch

    @property
    def timestamp_type(self) -> int:
        return self._source.timestamp_type

    def next_batch(self) -> BatchView | None:
        return self._source.next_batch()

    def spoil(self, offset: int, reason: str) -> None:
        self._source.spoil(offset, reason)


def entries(randomness: Random) -> list[bytearray]:
    made: list[bytearray] = []
    at = randomness.randrange(3)
    for _ in range(randomness.randrange(1, 12)):
        count = randomness.randrange(1, 6)
        producer_id = randomness.choice([-1, -1, 7])
        made.append(
            batch(
                at,
                [b"v" * randomness.choice([0, 3, 100]) for _ in range(count)],
                producer_id=producer_id,
                codec=randomness.choice([Codec.NONE, Codec.NONE, Codec.GZIP]),
                epoch=randomness.randrange(3),
                headers=randomness.choice([(), [("h", None)]]),
                log_append_time_ms=randomness.choice([None, None, 5]),
            )
        )
        at += count + randomness.choice([0, 0, 4])
        if producer_id >= 0 and randomness.random() < 0.5:
            made.append(marker(at, producer_id, committed=randomness.random() < 0.5))
            at += 1
    return made


def told(reading: Chunk, randomness: Random, as_columns: bool) -> list[Any]:
    """Everything that can be seen of a chunk, to its end or its first error that stays."""
    seen: list[Any] = []
    try:
        while reading.has_more():
            limit = randomness.randrange(1, 9)
            if as_columns:
                columns = RecordColumns()
                while limit > columns.row_count and reading.add_to(columns, limit - columns.row_count, 1 << 20):
                    seen.append(reading.added_timestamp_type)
                seen += [array.to_pylist() for array in record_arrays(columns.take())]
            else:
                seen += [(each, each.timestamp_type, each.leader_epoch) for each in reading.take(limit)]
            seen.append((reading.next_offset, reading.next_epoch, reading.record_count))
    except ClientError as error:
        seen.append(str(error))
    seen.append((reading.next_offset, reading.next_epoch, reading.is_exhausted))
    return seen


@pytest.mark.parametrize("as_columns", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_both_ways_give_the_same(seed: int, as_columns: bool) -> None:
    randomness = Random(seed)
    data = bytearray(b"".join(entries(randomness)))
    at = randomness.randrange(6)
    aborted = randomness.choice([None, [(7, 0)], []])
    check_crcs = randomness.random() < 0.7
    if randomness.random() < 0.5:
        data[randomness.randrange(len(data))] ^= 1 << randomness.randrange(8)
    if randomness.random() < 0.3:
        del data[randomness.randrange(len(data)) :]

    def source() -> FetchedRecords:
        return fetched(data, at=at, aborted=aborted, check_crcs=check_crcs)

    stepped = told(Chunk(T0.topic, T0.partition, source(), 1), Random(seed), as_columns)
    asked = told(Chunk(T0.topic, T0.partition, AskedEachTime(source()), 1), Random(seed), as_columns)
    assert stepped == asked


def test_a_run_ends_where_the_type_of_timestamps_changes() -> None:
    reading = chunk(batch(0, [b"a"]), batch(1, [b"b"]), batch(2, [b"c", b"d"], log_append_time_ms=9), batch(4, [b"e"]))
    columns = RecordColumns()
    runs = []
    while added := reading.add_to(columns, 100, 1 << 20):
        runs.append((reading.added_timestamp_type, added))
    assert runs == [(0, 2), (1, 2), (0, 1)]


def test_a_run_ends_before_a_batch_that_has_no_room() -> None:
    reading = chunk(*(batch(base, [b"x" * 100] * 10) for base in (0, 10, 20)))
    columns = RecordColumns()
    assert reading.add_to(columns, 100, 2500) == 20
    assert reading.add_to(columns, 100, 2500) == 0
    assert reading.has_more()
    columns.take()
    assert reading.add_to(columns, 100, 1) == 10, "a batch that is too large goes in alone"
