"""Logs for the tests of reading: batches as brokers keep them, and what a reader should see of them."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.base.ids import TopicPartition
from barnabas.client._kernel.receiving import Chunk
from barnabas.client.core.consuming.fetched import FetchedRecords
from barnabas.client.core.consuming.partition_state import FetchState, PartitionState
from barnabas.records import BatchBuilder, BatchView, Codec, TransactionMarker, build_marker
from barnabas.wire.messages.fetch import AbortedTransaction

T0 = TopicPartition("clicks", 0)
T1 = TopicPartition("clicks", 1)
TIME_MS = 1_700_000_000_000


def batch(
    base_offset: int,
    values: Iterable[bytes | None],
    *,
    epoch: int = 0,
    producer_id: int = -1,
    codec: Codec = Codec.NONE,
    deltas: Iterable[int] | None = None,
    key: bytes | None = None,
    headers: Iterable[tuple[str, bytes | None]] = (),
    log_append_time_ms: int | None = None,
) -> bytearray:
    """A batch in its place in the log. With `deltas` it looks as compaction leaves it."""
    values = list(values)
    is_transactional = producer_id >= 0
    builder = BatchBuilder(
        1 << 20,
        codec=codec,
        log_append_time_ms=log_append_time_ms,
        producer_id=producer_id,
        producer_epoch=0 if is_transactional else -1,
        base_sequence=0 if is_transactional else -1,
        transactional=is_transactional,
    )
    for number, (value, delta) in enumerate(zip(values, deltas or range(len(values)), strict=True)):
        builder.append(value, key, TIME_MS + base_offset + number, headers, delta)
    built = builder.build()
    BatchView(built).stamp(base_offset=base_offset, leader_epoch=epoch)
    return built


def marker(offset: int, producer_id: int, *, committed: bool, epoch: int = 0) -> bytearray:
    built = build_marker(TransactionMarker(producer_id, 0, 0, committed), TIME_MS)
    BatchView(built).stamp(base_offset=offset, leader_epoch=epoch)
    return built


def fetched(
    *entries: bytes | bytearray,
    at: int = 0,
    aborted: Iterable[tuple[int, int]] | None = None,
    check_crcs: bool = True,
) -> FetchedRecords:
    transactions = None
    if aborted is not None:
        transactions = [AbortedTransaction(producer_id=producer, first_offset=first) for producer, first in aborted]
    data = memoryview(b"".join(entries))
    return FetchedRecords(T0, data, at, aborted=transactions, check_crcs=check_crcs)


def chunk(*entries: bytes | bytearray, at: int = 0, **options: object) -> Chunk:
    deserializers = {name: options.pop(name) for name in list(options) if name.endswith("_deserializer")}
    source = fetched(*entries, at=at, **options)  # type: ignore[arg-type]
    return Chunk(T0.topic, T0.partition, source, sum(map(len, entries)), **deserializers)  # type: ignore[arg-type]


def fetch_state_of(state: PartitionState) -> FetchState:
    """Asked through a function, as it changes behind the back of whoever reads a test."""
    return state.fetch_state
