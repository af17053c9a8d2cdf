"""What a partition knows of its producers: which batch each may send next, and which transactions are open.

A batch is judged by `check`, which changes nothing, then written, then `apply` takes note of it. Batches that were
accepted before, by a leader or before a restart, are only applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.records.batch import (
    CONTROL_BIT,
    MAX_PRODUCER_EPOCH,
    MAX_SEQUENCE,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchView,
)
from barnabas.records.control import EPOCH_PER_TRANSACTION, TransactionMarker, read_marker
from barnabas.storage._kernel.appending import ProducerStateEntry, ProducerTable
from barnabas.storage.errors import AppendRefusedError
from barnabas.wire.stored.producer_snapshot import ProducerEntry

WINDOW_BATCHES: Final = 5
NO_OFFSET: Final = -1
NO_COORDINATOR_EPOCH: Final = -1


class DuplicateBatch(NamedTuple):
    """Where a batch that came again is in the log already."""

    first_offset: int
    last_offset: int
    timestamp_ms: int


class CompletedTransaction(NamedTuple):
    """A transaction whose marker, at `last_offset`, is written. `last_stable_offset` is where the next open one begins,
    or the offset after the marker: what the index of aborted transactions notes."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool
    last_stable_offset: int


class LastBatch(NamedTuple):
    """The newest trace of a producer: `offset` is the last of its newest batch, or -1 if only markers are known."""

    offset: int
    epoch: int


class RememberedBatch(NamedTuple):
    """A batch by which another is known to be the same."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int


class ProducerStates(ProducerTable):
    """The producers of one partition.

    `first_unstable_offset` is the first one that a reader of committed data must not see yet: of the oldest transaction
    that is open, or whose marker is not replicated; None if there is no such transaction.
    """

    __slots__ = ("_first_unreplicated", "_open", "_partition", "first_unstable_offset", "restored_at")

    def __init__(self, partition: TopicPartition) -> None:
        self._partition = partition
        # First offset to producer id, in the order of first offsets, which is that of arrival.
        self._open: dict[int, int] = {}
        self._first_unreplicated: int | None = None
        self.first_unstable_offset: int | None = None
        #: The offset of the snapshot that it was restored from, as long as `recall` may have to add to that.
        self.restored_at: int | None = None

    @property
    def count(self) -> int:
        """How many producers are remembered."""
        return len(self._producers)

    def has_open_since(self, before_ms: int) -> bool:
        """Whether a transaction is open whose producer has not written since then."""
        producers = self._producers
        return any(
            producer_id in producers and producers[producer_id].timestamp_ms < before_ms
            for producer_id in self._open.values()
        )

    # Deciding

    def check(self, batch: BatchView) -> DuplicateBatch | None:
        """May a client append this batch? Says where it is if it is in the log already; raises if it may not."""
        producer = self._producers.get(batch.producer_id)
        if producer is None:
            return None  # its state may have expired or been truncated away, so any sequence has to do
        if (
            batch.producer_epoch == producer.epoch
            and batch.base_sequence == producer.next_sequence
            and (producer.transaction_offset < 0 or batch.attributes & TRANSACTIONAL_BIT)
        ):
            return None
        return self._check_unexpected(batch, producer)

    def missing_before(self, batch: BatchView) -> int | None:
        """The sequence that has to come before a batch, by what is known of its producer; None if none has to."""
        producer = self._producers.get(batch.producer_id)
        if producer is not None and batch.producer_epoch < producer.epoch:
            return None
        expected = 0
        if producer is not None and producer.batches and batch.producer_epoch == producer.epoch:
            expected = (producer.batches[-1][1] + 1) & MAX_SEQUENCE
        return expected if 0 < (batch.base_sequence - expected) & MAX_SEQUENCE <= MAX_SEQUENCE // 2 else None

    def may_be_next(self, batch: BatchView) -> bool:
        """Whether a client may append a batch, and it is not in the log yet."""
        try:
            return self.check(batch) is None
        except AppendRefusedError:
            return False

    def is_fenced(self, batch: BatchView) -> bool:
        """Whether a batch is of an older epoch of its producer."""
        producer = self._producers.get(batch.producer_id)
        return producer is not None and batch.producer_epoch < producer.epoch

    def is_duplicate(self, batch: BatchView) -> bool:
        """Whether a client's batch is in the log already, as far as that is remembered."""
        producer = self._producers.get(batch.producer_id)
        if producer is None or batch.producer_epoch != producer.epoch:
            return False
        first, last = batch.base_sequence, batch.last_sequence
        return any(known[0] == first and known[1] == last for known in producer.batches)

    def may_be_forgotten(self, batch: BatchView) -> bool:
        """Whether a batch that is refused may have been written before those that are known: a snapshot keeps only the
        newest of a producer."""
        producer = self._producers.get(batch.producer_id)
        if self.restored_at is None or producer is None or batch.producer_epoch != producer.epoch:
            return False
        known = producer.batches
        is_older = bool(known) and (known[0][0] - batch.base_sequence) & MAX_SEQUENCE <= MAX_SEQUENCE // 2
        return is_older and len(known) < WINDOW_BATCHES

    def check_from_coordinator(self, batch: BatchView, transaction_version: int = 0) -> None:
        """May a coordinator append this batch: a marker, or offsets committed in a transaction? These have no sequence.

        `transaction_version` is the feature level under which the marker was sent.
        """
        producer = self._producers.get(batch.producer_id)
        if producer is None:
            return
        if not batch.attributes & CONTROL_BIT:
            if batch.producer_epoch < producer.epoch:
                raise self._fenced(batch, producer)
            self._check_transaction(batch, producer)
        elif (marker := read_marker(batch)) is not None:
            self._check_marker(batch, producer, marker, transaction_version)

    def _check_unexpected(self, batch: BatchView, producer: ProducerStateEntry) -> DuplicateBatch | None:
        epoch = batch.producer_epoch
        first_sequence = batch.base_sequence
        if epoch == producer.epoch:
            last_sequence = batch.last_sequence
            for first, last, first_offset, last_offset, timestamp_ms in producer.batches:
                if first == first_sequence and last == last_sequence:
                    return DuplicateBatch(first_offset, last_offset, timestamp_ms)
            expected = (producer.batches[-1][1] + 1) & MAX_SEQUENCE if producer.batches else 0
        elif epoch < producer.epoch:
            raise self._fenced(batch, producer)
        else:
            expected = 0
        if first_sequence != expected and producer.epoch != NO_PRODUCER_EPOCH:
            raise AppendRefusedError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"{self._partition}: producer {batch.producer_id}, epoch {epoch}, sent sequence {first_sequence} "
                f"where {expected} comes next"
                + ("" if epoch == producer.epoch else f"; its epoch was {producer.epoch} before"),
            )
        self._check_transaction(batch, producer)
        return None

    def _check_transaction(self, batch: BatchView, producer: ProducerStateEntry) -> None:
        if producer.transaction_offset >= 0 and not batch.attributes & TRANSACTIONAL_BIT:
            raise AppendRefusedError(
                ErrorCode.INVALID_TXN_STATE,
                f"{self._partition}: producer {batch.producer_id} sent a batch outside of its transaction, "
                f"which is open since offset {producer.transaction_offset}",
            )

    def _check_marker(
        self, batch: BatchView, producer: ProducerStateEntry, marker: TransactionMarker, transaction_version: int
    ) -> None:
        if batch.producer_epoch < producer.epoch:
            raise self._fenced(batch, producer)
        if (
            transaction_version >= EPOCH_PER_TRANSACTION
            and batch.producer_epoch == producer.epoch
            # A marker that is sent again finds no transaction open, and does no harm. The last epoch of a producer id
            # cannot be raised any more.
            and producer.transaction_offset >= 0
            and batch.producer_epoch != MAX_PRODUCER_EPOCH
        ):
            raise AppendRefusedError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"{self._partition}: the marker with epoch {batch.producer_epoch} of producer {batch.producer_id} "
                f"is late: the transaction that is open since offset {producer.transaction_offset} has that epoch",
            )
        if marker.coordinator_epoch < producer.coordinator_epoch:
            raise AppendRefusedError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"{self._partition}: the marker for producer {batch.producer_id} comes from a coordinator "
                f"with epoch {marker.coordinator_epoch}, which one with epoch {producer.coordinator_epoch} replaced",
            )

    def _fenced(self, batch: BatchView, producer: ProducerStateEntry) -> AppendRefusedError:
        return AppendRefusedError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"{self._partition}: producer {batch.producer_id} has epoch {producer.epoch} by now, "
            f"and a batch came with epoch {batch.producer_epoch}",
        )

    # Taking note

    def apply(self, batch: BatchView) -> CompletedTransaction | None:
        """Take note of a batch that is in the log, stamped; returns the transaction that it ended, if it did.

        Batches come in the order of the log. Those without a producer may be left out.
        """
        producer_id = batch.producer_id
        if producer_id < 0:
            return None
        attributes = batch.attributes
        if attributes & CONTROL_BIT:
            return self._apply_control(batch)
        producer = self._producers.get(producer_id)
        epoch = batch.producer_epoch
        if producer is None:
            producer = self._producers[producer_id] = ProducerStateEntry(epoch)
        elif epoch != producer.epoch:
            producer.start_epoch(epoch)
        first_offset = batch.base_offset
        delta = batch.last_offset_delta
        timestamp_ms = batch.max_timestamp_ms
        first_sequence = batch.base_sequence
        last_sequence = NO_SEQUENCE if first_sequence < 0 else (first_sequence + delta) & MAX_SEQUENCE
        producer.remember(first_sequence, last_sequence, first_offset, first_offset + delta, timestamp_ms)
        if attributes & TRANSACTIONAL_BIT and producer.transaction_offset < 0:
            producer.transaction_offset = first_offset
            self._open[first_offset] = producer_id
            if self.first_unstable_offset is None:
                self.first_unstable_offset = first_offset
        return None

    def _apply_control(self, batch: BatchView) -> CompletedTransaction | None:
        marker = read_marker(batch)
        if marker is None:
            return None  # emptied by compaction, and its transaction with it
        producer = self._producers.get(batch.producer_id)
        if producer is None:
            producer = self._producers[batch.producer_id] = ProducerStateEntry(batch.producer_epoch)
        elif batch.producer_epoch != producer.epoch:
            producer.start_epoch(batch.producer_epoch)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.timestamp_ms = batch.max_timestamp_ms
        first_offset = producer.transaction_offset
        if first_offset < 0:
            return None  # a transaction that wrote nothing here holds nobody back
        producer.transaction_offset = NO_OFFSET
        del self._open[first_offset]
        offset = batch.base_offset
        self._unreplicated[first_offset] = offset
        if self._first_unreplicated is None or first_offset < self._first_unreplicated:
            self._first_unreplicated = first_offset
        self._find_first_unstable()
        stable = next(iter(self._open), offset + 1)
        return CompletedTransaction(batch.producer_id, first_offset, offset, not marker.committed, stable)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Let go of the transactions whose markers are replicated."""
        if self._unreplicated:
            self._forget_markers_below(high_watermark)

    def on_log_start(self, log_start_offset: int) -> None:
        """The records below are gone. Producers stay known, and so do open transactions: their markers will come."""
        if self._unreplicated:
            self._forget_markers_below(log_start_offset)

    def _forget_markers_below(self, offset: int) -> None:
        # A dict keeps its order, which is that of the markers.
        replicated = []
        for first_offset, marker_offset in self._unreplicated.items():
            if marker_offset >= offset:
                break
            replicated.append(first_offset)
        if replicated:
            for first_offset in replicated:
                del self._unreplicated[first_offset]
            self._first_unreplicated = min(self._unreplicated, default=None)
            self._find_first_unstable()

    def _find_first_unstable(self) -> None:
        first_open = next(iter(self._open), None)
        first_unreplicated = self._first_unreplicated
        if first_open is None or (first_unreplicated is not None and first_unreplicated < first_open):
            self.first_unstable_offset = first_unreplicated
        else:
            self.first_unstable_offset = first_open

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget the producers that have been silent for `expiration_ms` and have nothing open; says how many."""
        expired = [
            producer_id
            for producer_id, producer in self._producers.items()
            if producer.transaction_offset < 0 and now_ms - producer.timestamp_ms >= expiration_ms
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        return len(expired)

    # Asking

    def last_stable_offset(self, high_watermark: int, log_start_offset: int = 0) -> int:
        """Up to where all is decided and replicated. Of a transaction that is partly deleted only the rest counts."""
        unstable = self.first_unstable_offset
        if unstable is None or unstable >= high_watermark:
            return high_watermark
        return min(max(unstable, log_start_offset), high_watermark)

    @property
    def first_open_offset(self) -> int | None:
        """Of the oldest open transaction, whatever is replicated."""
        return next(iter(self._open), None)

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        producer = self._producers.get(producer_id)
        return producer is not None and producer.transaction_offset >= 0 and producer.epoch == epoch

    def oldest_transaction_timestamp_ms(self) -> int | None:
        """When the producer of the oldest open transaction last wrote, which tells whether it was left hanging."""
        producer_id = next(iter(self._open.values()), None)
        producer = self._producers.get(producer_id) if producer_id is not None else None
        return producer.timestamp_ms if producer is not None else None

    def last_batches(self) -> dict[int, LastBatch]:
        """The newest trace of each producer, by its id: compaction must not remove it."""
        return {
            producer_id: LastBatch(producer.batches[-1][3] if producer.batches else NO_OFFSET, producer.epoch)
            for producer_id, producer in self._producers.items()
        }

    def remembered(self, producer_id: int) -> Sequence[RememberedBatch]:
        """The newest batches of a producer in its present epoch, by which one that comes again is known."""
        producer = self._producers.get(producer_id)
        return [] if producer is None else [RememberedBatch(*each[:4]) for each in producer.batches]

    def __len__(self) -> int:
        return len(self._producers)

    def __contains__(self, producer_id: object) -> bool:
        return producer_id in self._producers

    # Keeping

    def entries(self) -> list[ProducerEntry]:
        """What a snapshot keeps: of the last batches only the newest. Sorted by producer id."""
        return [_entry(producer_id, producer) for producer_id, producer in sorted(self._producers.items())]

    def ids(self) -> list[int]:
        """Of all producers, in the order in which they came. Cheap, also for very many: a copy of the keys."""
        return list(self._producers)

    def entry(self, producer_id: int) -> ProducerEntry | None:
        """What is known of one of them, if it still is."""
        producer = self._producers.get(producer_id)
        return None if producer is None else _entry(producer_id, producer)

    def restore(self, entries: Iterable[ProducerEntry]) -> None:
        """Forget everything, then know what a snapshot kept."""
        self.clear()
        for entry in sorted(entries, key=lambda entry: entry.current_txn_first_offset):
            producer = self._producers[entry.producer_id] = ProducerStateEntry(entry.epoch)
            producer.coordinator_epoch = entry.coordinator_epoch
            producer.timestamp_ms = entry.timestamp
            if entry.last_offset >= 0:
                last_sequence = entry.last_sequence
                first_sequence = (last_sequence - entry.offset_delta) & MAX_SEQUENCE
                first_offset = entry.last_offset - entry.offset_delta
                producer.batches.append(
                    (first_sequence, last_sequence, first_offset, entry.last_offset, entry.timestamp)
                )
                producer.next_sequence = (last_sequence + 1) & MAX_SEQUENCE
            if entry.current_txn_first_offset >= 0:
                producer.transaction_offset = entry.current_txn_first_offset
                self._open[entry.current_txn_first_offset] = entry.producer_id
        self._find_first_unstable()

    def recall(self, batches: Iterable[BatchView]) -> None:
        """Learn of batches that were written before the snapshot, which did not keep them; in the order of the log."""
        self.restored_at = None
        found: dict[int, list[tuple[int, int, int, int, int]]] = {}
        for batch in batches:
            producer = self._producers.get(batch.producer_id)
            is_data = batch.base_sequence >= 0 and not batch.attributes & CONTROL_BIT
            if producer is None or batch.producer_epoch != producer.epoch or not is_data or not producer.batches:
                continue
            if batch.last_offset < producer.batches[0][2]:
                found.setdefault(batch.producer_id, []).append(
                    (
                        batch.base_sequence,
                        batch.last_sequence,
                        batch.base_offset,
                        batch.last_offset,
                        batch.max_timestamp_ms,
                    )
                )
        for producer_id, older in found.items():
            known = self._producers[producer_id].batches
            known[:0] = older[len(known) - WINDOW_BATCHES :] if len(known) < WINDOW_BATCHES else []

    def clear(self) -> None:
        self._producers.clear()
        self._open.clear()
        self._unreplicated.clear()
        self._first_unreplicated = None
        self.first_unstable_offset = None
        self.restored_at = None


def _entry(producer_id: int, producer: ProducerStateEntry) -> ProducerEntry:
    _, sequence, first_offset, last_offset, _ = (
        producer.batches[-1] if producer.batches else (0, NO_SEQUENCE, NO_OFFSET, NO_OFFSET, 0)
    )
    return ProducerEntry(
        producer_id=producer_id,
        epoch=producer.epoch,
        last_sequence=sequence,
        last_offset=last_offset,
        offset_delta=last_offset - first_offset,
        timestamp=producer.timestamp_ms,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_first_offset=producer.transaction_offset,
    )
