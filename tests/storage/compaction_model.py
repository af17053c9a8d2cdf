"""Compaction in the plainest Python there is, over lists of records, and logs for hypothesis to draw."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

from barnabas.storage.aborted import AbortedTransaction
from barnabas.storage.producer_state import LastBatch
from tests.records import naive

APPEND_TIME, TRANSACTIONAL, CONTROL, HORIZON = 0x08, 0x10, 0x20, 0x40
START_MS = 1_700_000_000_000
ABORT, COMMIT = 0, 1
Parts = tuple[int, bytes | None, bytes | None, naive.Headers]  # timestamp, key, value, headers
STEPS = ["plain", "idempotent", "transactional", "transactional", "end"]


@dataclass(frozen=True)
class Kept:
    """A record: offset, timestamp, key, value, headers."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: naive.Headers = ()


@dataclass(frozen=True)
class Batch:
    """A batch as its readers see it. The base of the timestamps shows only as the delete horizon."""

    base_offset: int
    last_offset: int
    attributes: int
    max_timestamp_ms: int
    records: tuple[Kept, ...]
    producer: tuple[int, int, int] = (-1, -1, -1)  # id, epoch, base sequence
    horizon_ms: int | None = None
    leader_epoch: int = 7

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional_data(self) -> bool:
        return self.attributes & (CONTROL | TRANSACTIONAL) == TRANSACTIONAL

    def encode(self) -> bytes:
        return naive.encode(
            naive.NaiveBatch(
                [
                    naive.NaiveRecord(
                        record.timestamp_ms, record.key, record.value, record.headers, record.offset - self.base_offset
                    )
                    for record in self.records
                ],
                self.base_offset,
                self.leader_epoch,
                self.attributes,
                self.last_offset - self.base_offset,
                self.horizon_ms,
                self.max_timestamp_ms,
                *self.producer,
            )
        )


def batch(base_offset: int, *records: tuple[bytes | None, bytes | None], attributes: int = 0) -> Batch:
    kept = tuple(Kept(base_offset + i, START_MS + i, key, value) for i, (key, value) in enumerate(records))
    return Batch(base_offset, base_offset + len(kept) - 1, attributes, kept[-1].timestamp_ms, kept)


def split(data: bytes) -> list[bytes]:
    batches = []
    while data:
        size = int.from_bytes(data[8:12], "big") + 12
        batches.append(data[:size])
        data = data[size:]
    return batches


def decode(data: bytes) -> Batch:
    found = naive.decode(data)
    assert found.last_offset_delta is not None
    assert found.max_timestamp_ms is not None
    max_ms = found.max_timestamp_ms
    return Batch(
        found.base_offset,
        found.base_offset + found.last_offset_delta,
        found.attributes,
        max_ms,
        tuple(
            Kept(
                found.base_offset + record.offset_delta,
                max_ms if found.attributes & APPEND_TIME else record.timestamp_ms,
                record.key,
                record.value,
                record.headers,
            )
            for record in found.records
        ),
        (found.producer_id, found.producer_epoch, found.base_sequence),
        found.base_timestamp_ms if found.attributes & HORIZON else None,
        found.leader_epoch,
    )


@dataclass
class Log:
    batches: list[Batch] = field(default_factory=list)
    aborted: list[AbortedTransaction] = field(default_factory=list)
    last_batches: dict[int, LastBatch] = field(default_factory=dict)
    end_offset: int = 0
    #: The bytes that the batches were read from; without them they are encoded.
    data: bytes | None = None

    def encode(self) -> bytes:
        return b"".join(batch.encode() for batch in self.batches) if self.data is None else self.data


@dataclass(frozen=True)
class Round:
    """What a round of compaction goes by."""

    first_dirty_offset: int
    map_end_offset: int
    now_ms: int
    delete_retention_ms: int


def clean(log: Log, by: Round) -> Log:
    """The rules, with a list for everything."""

    def transaction_of(batch: Batch) -> AbortedTransaction | None:
        mine = [each for each in log.aborted if each.producer_id == batch.producer[0] and batch.is_transactional_data]
        return next((each for each in mine if each.first_offset <= batch.base_offset < each.last_offset), None)

    def has_data(marker: Batch) -> bool:
        mine = [each for each in log.batches if each.producer[0] == marker.producer[0]]
        before = mine[: mine.index(marker)]
        return bool(before) and before[-1].is_transactional_data

    def stays_empty(batch: Batch) -> bool:
        last = log.last_batches.get(batch.producer[0])
        if batch.last_offset + 1 == log.end_offset:
            return True
        if last is None or batch.producer[0] < 0:
            return False
        if last.offset < 0:
            return batch.is_control and batch.producer[1] == last.epoch
        return batch.last_offset == last.offset

    newest = {
        record.key: record.offset
        for batch in log.batches
        for record in batch.records
        if not batch.is_control and transaction_of(batch) is None
        if by.first_dirty_offset <= record.offset < by.map_end_offset and record.key is not None
    }
    cleaned = Log([], [], log.last_batches, log.end_offset)
    for batch in log.batches:
        is_expired = batch.horizon_ms is not None and batch.horizon_ms <= by.now_ms
        is_spent = batch.is_control and not has_data(batch)
        if batch.is_control:
            records = [] if is_spent and is_expired else list(batch.records)
        elif transaction_of(batch):
            records = []
        else:
            records = [
                record
                for record in batch.records
                if record.offset >= by.map_end_offset
                or (
                    record.key is not None
                    and record.offset >= newest.get(record.key, -1)
                    and not (record.value is None and is_expired)
                )
            ]
        if not records and not stays_empty(batch):
            continue
        if batch.is_control and not is_spent:
            cleaned.aborted += [each for each in log.aborted if each.last_offset == batch.base_offset]
        new = replace(batch, records=tuple(records))
        if not records:
            new = replace(new, attributes=batch.attributes & (APPEND_TIME | TRANSACTIONAL | CONTROL), horizon_ms=None)
        elif not batch.attributes & APPEND_TIME and len(records) < len(batch.records):
            new = replace(new, max_timestamp_ms=max(record.timestamp_ms for record in records))
        if records and batch.horizon_ms is None and (is_spent or any(record.value is None for record in records)):
            horizon_ms = by.now_ms + by.delete_retention_ms
            new = replace(new, attributes=new.attributes | HORIZON, horizon_ms=horizon_ms)
        cleaned.batches.append(new)
    return cleaned


def state(log: Log) -> dict[bytes, bytes]:
    """What a reader of committed data ends up with."""
    found: dict[bytes, bytes] = {}
    for batch in log.batches:
        is_aborted = any(
            each.producer_id == batch.producer[0] and each.first_offset <= batch.base_offset < each.last_offset
            for each in log.aborted
        )
        if batch.is_control or (batch.is_transactional_data and is_aborted):
            continue
        for record in batch.records:
            if record.key is not None and record.value is not None:
                found[record.key] = record.value
            elif record.key is not None:
                found.pop(record.key, None)
    return found


KEYS = [None, b"", b"a", b"b", b"c", b"k" * 200]
keys = st.sampled_from(KEYS)
values = st.sampled_from([None, b"", b"v", b"value " * 20, None])
headers = st.sampled_from([(), (), (("h", b"1"), ("n", None))])
delays_ms = st.one_of(st.integers(-1000, 1000), st.sampled_from([0, 0, 200_000_000]))
producer_ids = st.integers(1, 3)


class Writer:
    """Appends to a log as producers and a coordinator would."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw
        self.log = Log()
        self.first_offsets: dict[int, int] = {}
        self.sequences: dict[int, int] = {}

    def append(self, attributes: int, records: Sequence[Parts], *, producer: tuple[int, int, int]) -> None:
        base_offset = self.log.end_offset
        max_ms = max(timestamp_ms for timestamp_ms, _, _, _ in records)
        kept = [
            Kept(base_offset + i, max_ms if attributes & APPEND_TIME else record[0], *record[1:])
            for i, record in enumerate(records)
        ]
        last_offset = base_offset + len(records) - 1
        batch = Batch(base_offset, last_offset, attributes, max_ms, tuple(kept), producer)
        self.log.batches.append(batch)
        self.log.end_offset = last_offset + 1

    def data(self, producer_id: int, *, transactional: bool) -> None:
        draw = self.draw
        drawn = draw(st.lists(st.tuples(delays_ms, keys, values, headers), min_size=1, max_size=6))
        records = [(START_MS + delay_ms, key, value, some) for delay_ms, key, value, some in drawn]
        attributes = draw(st.integers(0, 4)) | draw(st.sampled_from([0, 0, APPEND_TIME]))
        base_offset = self.log.end_offset
        if transactional:
            attributes |= TRANSACTIONAL
            self.first_offsets.setdefault(producer_id, base_offset)
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + len(records)
        self.append(attributes, records, producer=(producer_id, 5, sequence) if producer_id > 0 else (-1, -1, -1))
        if producer_id > 0:
            self.log.last_batches[producer_id] = LastBatch(self.log.end_offset - 1, 5)

    def end(self, producer_id: int, kind: int) -> None:
        marker = (START_MS, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 9), ())
        offset = self.log.end_offset
        self.append(TRANSACTIONAL | CONTROL, [marker], producer=(producer_id, 5, -1))
        first_offset = self.first_offsets.pop(producer_id, None)
        if kind == ABORT and first_offset is not None:
            self.log.aborted.append(AbortedTransaction(producer_id, first_offset, offset, offset + 1))
        self.log.last_batches.setdefault(producer_id, LastBatch(-1, 5))


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """A log whose transactions are all decided."""
    writer = Writer(draw)
    for step in draw(st.lists(st.sampled_from(STEPS), max_size=14)):
        producer_id = draw(producer_ids)
        if step == "end":
            writer.end(producer_id, draw(st.sampled_from([ABORT, COMMIT])))
        elif step == "transactional" or producer_id in writer.first_offsets:
            writer.data(producer_id, transactional=True)
        else:
            writer.data(producer_id if step == "idempotent" else -1, transactional=False)
    for producer_id in sorted(writer.first_offsets):
        writer.end(producer_id, draw(st.sampled_from([ABORT, COMMIT])))
    for producer_id in draw(st.sets(producer_ids)):
        writer.log.last_batches.pop(producer_id, None)
    return writer.log
