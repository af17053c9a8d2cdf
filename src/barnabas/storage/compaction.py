"""Compaction of a log's batches: of every key the newest record stays. Pure: batches in, batches out.

A round has two passes over the same log. The first notes, in `KeyOffsets`, the newest offset of every key in the dirty
part. The second, `BatchCleaner`, goes over the log from its start up to where the first came, and leaves out what is
superseded. What must hold for a reader at any time:

- Offsets never change. A batch that loses records keeps its first and last offset, its sequence numbers, its producer,
  its leader epoch and its codec, so that duplicates are still found and offsets still located.
- A tombstone, which says that a key is gone, stays long enough to be seen: the first round that meets it writes into
  its batch when it may go (the delete horizon), and a round after that time drops it. The same goes for the marker of
  a transaction, whose time begins once no batch of the transaction is left.
- What a transaction wrote and then aborted goes at once, for nobody may read it.
- The newest batch of a producer that is still known, and the last batch of a round, stay as bare headers at least:
  with them the producer's sequence number and the end of the log would be lost.

Messages of the formats before 2 are passed on as they are while all their records stay; if some must go, or a
tombstone needs its horizon, the rest goes on as an uncompressed batch of format 2. (Apache Kafka keeps the old format
and lets its tombstones go by the age of the file.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from barnabas.records._kernel.compact import rebase_timestamps, retain
from barnabas.records._kernel.keymap import KeyMap
from barnabas.records.batch import (
    APPEND_TIME_BIT,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER,
    TRANSACTIONAL_BIT,
    BatchView,
)
from barnabas.records.builder import emptied, rebuilt
from barnabas.records.compression import compress
from barnabas.records.control import ControlType, control_type
from barnabas.records.legacy import LegacyMessage, as_batch
from barnabas.storage.aborted import AbortedTransaction
from barnabas.storage.producer_state import LastBatch

Entry = BatchView | LegacyMessage

_MAX_TIMESTAMP_MS: Final = 2**63 - 1
_FIRST_OFFSET: Final = attrgetter("first_offset")


class TransactionView:
    """Tells, batch by batch in the order of the log, what became of the transaction that it belongs to.

    `aborted` are the aborted transactions that reach into what will be read, also those whose markers lie beyond it.
    The log must be read below its last stable offset only: what is not known as aborted there was committed.
    """

    __slots__ = ("_aborted_with_data", "_committed", "_open", "_waiting", "retained")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._waiting = sorted(aborted, key=_FIRST_OFFSET, reverse=True)
        self._open: dict[int, AbortedTransaction] = {}
        # Producers of which batches were met since their last marker.
        self._aborted_with_data: set[int] = set()
        self._committed: set[int] = set()
        #: The aborted transactions of which batches were met, and their markers: readers still must be told of them.
        self.retained: list[AbortedTransaction] = []

    def is_aborted(self, batch: BatchView) -> bool:
        """For a batch of data."""
        self._begin_up_to(batch.last_offset)
        if not batch.attributes & TRANSACTIONAL_BIT:
            return False
        producer_id = batch.producer_id
        transaction = self._open.get(producer_id)
        if transaction is None or batch.base_offset > transaction.last_offset:
            self._committed.add(producer_id)
            return False
        self._aborted_with_data.add(producer_id)
        return True

    def is_spent(self, batch: BatchView) -> bool:
        """For a control batch: whether it is a marker, and no batch of its transaction is left."""
        self._begin_up_to(batch.last_offset)
        record = next(batch.records(), None)
        if record is None:
            return True  # emptied by an earlier round
        kind = control_type(record)
        if kind is ControlType.COMMIT:
            had_data = batch.producer_id in self._committed
            self._committed.discard(batch.producer_id)
            return not had_data
        if kind is ControlType.ABORT:
            transaction = self._open.pop(batch.producer_id, None)
            had_data = batch.producer_id in self._aborted_with_data
            self._aborted_with_data.discard(batch.producer_id)
            if had_data and transaction is not None:
                self.retained.append(transaction)
            return not had_data
        return False

    def _begin_up_to(self, offset: int) -> None:
        while self._waiting and self._waiting[-1].first_offset <= offset:
            transaction = self._waiting.pop()
            self._open[transaction.producer_id] = transaction


class KeyOffsets:
    """The first pass: the newest offset of every key from `first_dirty_offset` on, within `limit_bytes` of memory.

    Give it the batches of the dirty part in order, from the one that holds `first_dirty_offset` (or any earlier) on.
    When the memory is used up, `add` says so and the pass ends early: the map is complete below `end_offset`, up to
    which the log is clean after the second pass. At least one key always fits.
    """

    __slots__ = ("_transactions", "end_offset", "first_dirty_offset", "is_full", "map", "records_read")

    def __init__(self, first_dirty_offset: int, limit_bytes: int, aborted: Iterable[AbortedTransaction] = ()) -> None:
        self.map = KeyMap(limit_bytes)
        self.first_dirty_offset = first_dirty_offset
        self.end_offset = first_dirty_offset
        self.is_full = False
        self.records_read = 0
        self._transactions = TransactionView(aborted)

    def add(self, entry: Entry) -> bool:
        """Take the keys of a batch; False once the map is full."""
        if self.is_full:
            return False
        refused_offset = None
        if isinstance(entry, LegacyMessage):
            if entry.next_offset > self.first_dirty_offset:
                entry.check_crc()
                refused_offset = self._collect(as_batch(entry))
        elif entry.attributes & CONTROL_BIT:
            self._transactions.is_spent(entry)
        elif not self._transactions.is_aborted(entry) and entry.next_offset > self.first_dirty_offset:
            entry.check_crc()
            refused_offset = self._collect(entry)
        if refused_offset is not None:
            self.end_offset = max(self.end_offset, refused_offset)
            self.is_full = True
            return False
        self.end_offset = max(self.end_offset, entry.next_offset)
        return True

    def add_all(self, entries: Iterable[Entry]) -> bool:
        return all(map(self.add, entries))

    def pass_to(self, offset: int) -> None:
        """All batches below `offset` were given: call it at the end of a segment with the base of the next one."""
        if not self.is_full:
            self.end_offset = max(self.end_offset, offset)

    def _collect(self, batch: BatchView) -> int | None:
        self.records_read += batch.record_count
        return self.map.add(
            batch.payload(), batch.record_count, batch.base_offset, batch.last_offset_delta, self.first_dirty_offset
        )


@dataclass(slots=True)
class CleaningStats:
    """What the second pass read, and what it left."""

    bytes_read: int = 0
    batches_read: int = 0
    records_read: int = 0
    bytes_retained: int = 0
    batches_retained: int = 0
    records_retained: int = 0
    keyless_records: int = 0


class BatchCleaner:
    """The second pass: batches in the order of the log, each as it is to be from now on, or gone.

    One cleaner serves a whole round, over all groups of segments. `end_offset` is the first offset that the round
    could not have cleaned (the end of the cleanable range, not of the map). `last_batches` are the newest traces of
    the producers that are still known. A batch that does not change is handed back as it came, over the same bytes.
    """

    __slots__ = ("_delete_horizon_ms", "_end_offset", "_keys", "_last_batches", "_now_ms", "_transactions", "stats")

    def __init__(
        self,
        keys: KeyOffsets,
        *,
        end_offset: int,
        now_ms: int,
        delete_retention_ms: int,
        last_batches: Mapping[int, LastBatch] | None = None,
        aborted: Iterable[AbortedTransaction] = (),
    ) -> None:
        self._keys = keys
        self._end_offset = end_offset
        self._now_ms = now_ms
        self._delete_horizon_ms = min(now_ms + delete_retention_ms, _MAX_TIMESTAMP_MS)
        self._last_batches = last_batches or {}
        self._transactions = TransactionView(aborted)
        self.stats = CleaningStats()

    def clean(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """What is left of the batches. It lies in the buffers that the entries lie in, or in new ones."""
        for entry in entries:
            kept = self.clean_entry(entry)
            if kept is not None:
                yield kept

    def clean_entry(self, entry: Entry) -> Entry | None:
        stats = self.stats
        stats.bytes_read += entry.size_bytes
        stats.batches_read += 1
        if isinstance(entry, LegacyMessage):
            kept, record_count = self._clean_legacy(entry)
        else:
            stats.records_read += entry.record_count
            kept = self._clean_control(entry) if entry.attributes & CONTROL_BIT else self._clean_data(entry)
            record_count = 0 if kept is None else kept.record_count
        if kept is not None:
            stats.bytes_retained += kept.size_bytes
            stats.batches_retained += 1
            stats.records_retained += record_count
        return kept

    def take_aborted(self) -> list[AbortedTransaction]:
        """The aborted transactions whose markers were met since the last call and of which batches had been met.

        They belong into the transaction index of the segment that the batches since the last call went to.
        """
        retained, self._transactions.retained = self._transactions.retained, []
        return retained

    def _clean_control(self, batch: BatchView) -> BatchView | None:
        batch.check_crc()
        is_spent = self._transactions.is_spent(batch)
        horizon_ms = batch.delete_horizon_ms
        if not batch.record_count or (is_spent and horizon_ms is not None and horizon_ms <= self._now_ms):
            return self._without_records(batch)
        if is_spent and horizon_ms is None:
            return self._with_horizon(batch, batch.payload(), batch.record_count, batch.max_timestamp_ms)
        return batch

    def _clean_data(self, batch: BatchView) -> BatchView | None:
        if self._transactions.is_aborted(batch) or not batch.record_count:
            return self._without_records(batch)
        batch.check_crc()
        payload = batch.payload()
        horizon_ms = batch.delete_horizon_ms
        left = retain(
            self._keys.map,
            payload,
            batch.record_count,
            batch.base_offset,
            batch.last_offset_delta,
            batch.base_timestamp_ms,
            end_offset=self._keys.end_offset,
            keep_tombstones=horizon_ms is None or self._now_ms < horizon_ms,
            head_bytes=HEADER.size,
        )
        self.stats.keyless_records += left.keyless_count
        if not left.record_count:
            return self._without_records(batch)
        has_append_time = batch.attributes & APPEND_TIME_BIT
        if left.tombstone_count and horizon_ms is None:
            records = payload if left.records is None else memoryview(left.records)[HEADER.size :]
            max_timestamp_ms = batch.max_timestamp_ms if has_append_time else left.max_timestamp_ms
            return self._with_horizon(batch, records, left.record_count, max_timestamp_ms)
        if left.records is None:
            return batch
        return _with_records(
            batch,
            left.records,
            left.record_count,
            max_timestamp_ms=batch.max_timestamp_ms if has_append_time else left.max_timestamp_ms,
        )

    def _clean_legacy(self, message: LegacyMessage) -> tuple[Entry | None, int]:
        message.check_crc()
        batch = as_batch(message)
        self.stats.records_read += batch.record_count
        kept = self._clean_data(batch)
        return (message if kept is batch else kept), 0 if kept is None else kept.record_count

    def _with_horizon(
        self, batch: BatchView, records: memoryview, record_count: int, max_timestamp_ms: int
    ) -> BatchView:
        """Note in the batch when its tombstones or its marker may go. The base of its timestamps holds that time."""
        horizon_ms = self._delete_horizon_ms
        return _with_records(
            batch,
            rebase_timestamps(records, record_count, batch.base_timestamp_ms, horizon_ms, head_bytes=HEADER.size),
            record_count,
            max_timestamp_ms=max_timestamp_ms,
            horizon_ms=horizon_ms,
        )

    def _without_records(self, batch: BatchView) -> BatchView | None:
        if not self._must_stay(batch):
            return None
        if not batch.record_count:
            return batch
        return BatchView(emptied(batch))

    def _must_stay(self, batch: BatchView) -> bool:
        if batch.next_offset == self._end_offset:
            return True
        last = self._last_batches.get(batch.producer_id) if batch.has_producer_id else None
        if last is None:
            return False
        if last.offset >= 0:
            return batch.last_offset == last.offset
        # Of a producer that is known by its markers alone, the marker of its epoch is what still fences older ones.
        return batch.is_control and batch.producer_epoch == last.epoch


def _with_records(
    batch: BatchView, room: bytearray, record_count: int, *, max_timestamp_ms: int, horizon_ms: int | None = None
) -> BatchView:
    """The batch with other records, which lie in `room` behind the place of the header."""
    base_timestamp_ms, attributes = batch.base_timestamp_ms, batch.attributes
    if horizon_ms is not None:
        base_timestamp_ms, attributes = horizon_ms, attributes | DELETE_HORIZON_BIT
    if attributes & CODEC_MASK:
        compressed = memoryview(compress(batch.codec, memoryview(room)[HEADER.size :]))
        room = bytearray(HEADER.size) + compressed
    return BatchView(
        rebuilt(
            batch,
            room,
            record_count,
            attributes=attributes,
            base_timestamp_ms=base_timestamp_ms,
            max_timestamp_ms=max_timestamp_ms,
        )
    )
