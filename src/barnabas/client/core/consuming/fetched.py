"""What one fetch has brought of one partition, batch by batch, and which of its batches are for the program.

Of a compressed batch nothing is unpacked before its turn. A batch that cannot be read is reported every time it is
asked for, so that nothing behind it is taken for the next record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from barnabas.base.errors import RemoteProtocolError
from barnabas.base.ids import TopicPartition
from barnabas.client.core.consuming.offsets import NO_EPOCH
from barnabas.client.errors import CorruptRecordsError
from barnabas.records.batch import BatchView
from barnabas.records.control import ControlType, control_type
from barnabas.records.legacy import LegacyMessage, as_batch
from barnabas.records.reading import iter_entries
from barnabas.wire.messages.fetch import AbortedTransaction

_CONTROL_LIMIT_BYTES: Final = 1 << 20


class FetchedRecords:
    """The entries of an answer, from `fetch_offset` on.

    With `aborted`, the transactions that were aborted in the range of the answer, their records are left out: a
    producer's records from where its transaction began up to its abort marker. None means that all is to be seen.
    """

    __slots__ = (
        "_aborted",
        "_aborted_producers",
        "_failure",
        "check_crcs",
        "entries",
        "next_epoch",
        "next_offset",
        "partition",
        "timestamp_type",
    )

    def __init__(
        self,
        partition: TopicPartition,
        records: memoryview,
        fetch_offset: int,
        *,
        aborted: Iterable[AbortedTransaction] | None = None,
        check_crcs: bool = True,
        fetch_epoch: int = NO_EPOCH,
    ) -> None:
        self.partition = partition
        #: What lies behind the last batch. A reader that steps on in it by itself says so with `passed`.
        self.entries = iter_entries(records)
        #: Behind what `next_batch` gave or passed over; the batch that it gave last is behind this already.
        self.next_offset = fetch_offset
        self.next_epoch = fetch_epoch
        #: Of the batch given last.
        self.timestamp_type = 0
        self.check_crcs = check_crcs
        self._aborted = (
            None if aborted is None else deque(sorted(aborted, key=lambda transaction: transaction.first_offset))
        )
        self._aborted_producers: set[int] = set()
        self._failure: str | None = None

    @property
    def sees_all(self) -> bool:
        """Whether records of transactions are for the program, however these end."""
        return self._aborted is None

    def next_batch(self) -> BatchView | None:
        """The next batch with records for the program, None if there is none.

        The batch may begin below the offset that was asked for: brokers do not split batches.
        """
        if self._failure is not None:
            raise CorruptRecordsError(self.partition, self.next_offset, self._failure)
        try:
            return self._next_batch()
        except RemoteProtocolError as error:
            self._failure = str(error)
        except BaseException:
            # An entry may have been begun, and none must be passed over: this ends here, and the rest is fetched again.
            self.entries = iter_entries(memoryview(b""))
            raise
        raise CorruptRecordsError(self.partition, self.next_offset, self._failure)

    def passed(self, next_offset: int, next_epoch: int, timestamp_type: int) -> None:
        """A reader has stepped over a batch in `entries` that has records for it, whatever was aborted."""
        self.next_offset = next_offset
        self.next_epoch = next_epoch
        self.timestamp_type = timestamp_type

    def spoil(self, offset: int, reason: str) -> None:
        """The batch given last cannot be read from `offset` on. Nothing behind it is given either."""
        self.next_offset = offset
        self._failure = reason

    def _next_batch(self) -> BatchView | None:
        for entry in self.entries:
            if self.check_crcs and entry.next_offset > self.next_offset:
                _check_crc(entry)
            batch = entry if isinstance(entry, BatchView) else None
            is_wanted = batch is None or self._is_wanted(batch)
            next_offset = entry.next_offset
            if next_offset <= self.next_offset:
                continue  # compaction, or a seek into the middle: the broker sends whole batches
            if is_wanted and batch is None:
                batch = self._modern(entry)
            has_records = is_wanted and batch is not None and batch.record_count
            if batch is not None:
                self.next_epoch = batch.leader_epoch
            # From here on nothing is called that could raise: the batch counts as given.
            self.next_offset = next_offset
            if has_records:
                return batch
        return None

    def _modern(self, message: BatchView | LegacyMessage) -> BatchView:
        assert isinstance(message, LegacyMessage)
        self.timestamp_type = int(message.timestamp_type)
        return as_batch(message)

    def _is_wanted(self, batch: BatchView) -> bool:
        self.timestamp_type = 1 if batch.attributes & 0x08 else 0
        if self._aborted is not None and batch.producer_id >= 0:
            return self._is_committed(batch, self._aborted)
        return not batch.is_control

    def _is_committed(self, batch: BatchView, aborted: deque[AbortedTransaction]) -> bool:
        producers = self._aborted_producers
        last_offset = batch.last_offset
        while aborted and aborted[0].first_offset <= last_offset:
            producers.add(aborted.popleft().producer_id)
        if batch.is_control:
            if batch.producer_id in producers and _is_abort(batch):
                producers.remove(batch.producer_id)
            return False
        return not (batch.is_transactional and batch.producer_id in producers)


def _check_crc(entry: BatchView | LegacyMessage) -> None:
    try:
        entry.check_crc()
    except RemoteProtocolError as error:
        # Seeking helps only behind the whole batch, since brokers do not split it.
        raise RemoteProtocolError(f"{error}; the batch reaches to offset {entry.last_offset}") from error


def _is_abort(batch: BatchView) -> bool:
    record = next(batch.records(limit_bytes=_CONTROL_LIMIT_BYTES), None)
    # Compaction may leave a batch without its marker, when nothing of the transaction is left either.
    return record is not None and control_type(record) is ControlType.ABORT
