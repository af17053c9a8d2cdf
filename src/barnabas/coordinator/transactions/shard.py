"""One partition of `__transaction_state`, and all transactional ids that belong to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import RemoteProtocolError
from barnabas.coordinator.results import (
    NO_RECORDS,
    CoordinatorResult,
    Now,
    Operation,
    Records,
    Reply,
    WriteCallback,
)
from barnabas.coordinator.skipped import Oddity, SkippedRecordError
from barnabas.coordinator.timeline import SnapshotRegistry, TimelineDict
from barnabas.coordinator.timer import CoordinatorTimer
from barnabas.coordinator.transactions import timeouts
from barnabas.coordinator.transactions.config import TransactionCoordinatorConfig
from barnabas.coordinator.transactions.metadata import (
    NO_EPOCH,
    TransactionMetadata,
    completed,
    metadata_of,
    record_of,
)
from barnabas.records.batch import NO_PRODUCER_ID
from barnabas.wire.schema import Struct
from barnabas.wire.stored.transaction_state import (
    TransactionKey,
    TransactionLogKey,
    TransactionLogValue,
    TransactionValue,
)

#: How long after a write that was late, or failed, it is looked whether a transaction can go on.
_AGAIN_MS: Final = 500


class Markers(Protocol):
    """Whoever writes the markers of a shard's transactions, and then has them completed (`complete`)."""

    def send(self, transactional_id: str, metadata: TransactionMetadata) -> None:
        """Write its markers, however long that takes."""
        ...

    def cancel_all(self) -> None:
        """The shard is not coordinated here any more, or begins anew."""
        ...


class TransactionCoordinatorShard:
    """The transactional ids of one partition, for `CoordinatorRuntime`. `new_producer_id` gives one that nobody has
    had, or None if there is none at the moment."""

    def __init__(
        self, config: TransactionCoordinatorConfig, new_producer_id: Callable[[], int | None], markers: Markers
    ) -> None:
        self.config = config
        self.new_producer_id = new_producer_id
        self.markers = markers
        self.snapshots = SnapshotRegistry()
        #: Replayed: every transactional id, as its last record has it. It changes in `replay` only.
        self.stored: TimelineDict[str, TransactionMetadata] = TimelineDict(self.snapshots)
        #: Those of them whose transaction may run out of time, as far as the log goes.
        self.ongoing: dict[str, None] = {}
        # Soft, from here on.
        self.timer = CoordinatorTimer()
        self.replies: list[Reply] = []
        #: Producer id and epoch of an id, and the epoch that its producer had before: whoever comes with that one asks
        #: again for what it was given. In no record; Kafka forgets it with the coordinator, too.
        self._last_epochs: dict[str, tuple[int, int, int]] = {}
        #: Whose markers are being written.
        self._sending: set[str] = set()

    def __str__(self) -> str:
        return f"{len(self.stored)} transactional ids"

    # Replay

    def deserialize(self, key: bytes, value: bytes | None) -> tuple[Struct, Struct | None]:
        try:
            decoded = TransactionKey.decode_key(key)
        except RemoteProtocolError as reason:
            raise SkippedRecordError(Oddity.KEY, reason) from None
        if decoded is None:
            raise SkippedRecordError(Oddity.TYPE, f"type {int.from_bytes(key[:2], 'big', signed=True)}")
        if value is None:
            return decoded, None
        try:
            stored = TransactionValue.decode_value(TransactionLogKey.TYPE, value)
        except RemoteProtocolError as reason:
            raise SkippedRecordError(Oddity.VALUE, f"{decoded.transactional_id!r:.40}: {reason}") from None
        if metadata_of(stored) is None:
            why = f"{decoded.transactional_id!r:.40}: status {stored.transaction_status}"
            raise SkippedRecordError(Oddity.VALUE, why)
        return decoded, stored

    def replay(self, key: Struct, value: Struct | None, offset: int, producer_id: int = NO_PRODUCER_ID) -> None:
        assert isinstance(key, TransactionLogKey)
        assert value is None or isinstance(value, TransactionLogValue)
        metadata = None if value is None else metadata_of(value)
        if metadata is None:
            self.stored.delete(key.transactional_id)
        else:
            self.stored.set(key.transactional_id, metadata)
        if metadata is not None and metadata.is_timed:
            self.ongoing[key.transactional_id] = None
        else:
            self.ongoing.pop(key.transactional_id, None)

    def replay_end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Nothing is written to this topic within a transaction."""

    # Soft state

    def loaded(self, now: Now) -> Sequence[Operation]:
        """What was decided before is carried out."""
        for transactional_id, metadata in self.stored.latest().items():
            if metadata.state.is_prepared:
                self._send_markers(transactional_id, metadata)
        timeouts.schedule(self, now)
        return ()

    def unloaded(self, error: ErrorCode) -> None:
        self.markers.cancel_all()

    def last_epoch(self, transactional_id: str) -> int:
        """The epoch before the present one, if the producer that had it may ask again."""
        metadata = self.stored.get(transactional_id)
        noted = self._last_epochs.get(transactional_id)
        if metadata is None or noted is None or noted[:2] != (metadata.producer_id, metadata.producer_epoch):
            return NO_EPOCH
        return noted[2]

    def note_last_epoch(self, transactional_id: str, last_epoch: int) -> None:
        """Of the present metadata."""
        metadata = self.stored.get(transactional_id)
        if metadata is None or last_epoch == NO_EPOCH:
            self._last_epochs.pop(transactional_id, None)
        else:
            self._last_epochs[transactional_id] = metadata.producer_id, metadata.producer_epoch, last_epoch

    # Writing

    def written(
        self,
        transactional_id: str,
        metadata: TransactionMetadata,
        response: Struct | None,
        last_epoch: int | None = None,
    ) -> CoordinatorResult:
        """The metadata goes to the log, and the answer follows. `last_epoch`: None leaves it as it is."""
        keeps = self.last_epoch(transactional_id) if last_epoch is None else last_epoch
        record = record_of(transactional_id, metadata, self.config.transaction_version)
        return CoordinatorResult([record], response, _Written(self, transactional_id, metadata, keeps))

    def markers_due(self, transactional_id: str, now: Now) -> CoordinatorResult:
        """Send the markers of a transaction whose outcome was late to be committed, once it is."""
        metadata = self.stored.get(transactional_id)
        if metadata is not None and metadata.state.is_prepared and transactional_id not in self._sending:
            if self.stored.committed.get(transactional_id) is metadata:
                self._send_markers(transactional_id, metadata)
            else:
                self.look_again(transactional_id, now)
        return CoordinatorResult()

    def look_again(self, transactional_id: str, now: Now) -> None:
        operation = Operation(transactional_id, partial(self.markers_due, transactional_id))
        self.timer.schedule(("markers", transactional_id), now.monotonic_ms + _AGAIN_MS, operation)

    def send_committed_markers(self, transactional_id: str) -> None:
        """Its outcome cannot get lost any more."""
        metadata = self.stored.get(transactional_id)
        if metadata is not None and metadata.state.is_prepared:
            self._send_markers(transactional_id, metadata)

    def _send_markers(self, transactional_id: str, metadata: TransactionMetadata) -> None:
        if transactional_id not in self._sending:
            self._sending.add(transactional_id)
            self.markers.send(transactional_id, metadata)

    # Completing

    def complete(self, transactional_id: str, metadata: TransactionMetadata) -> Operation:
        """All its markers are written."""
        return Operation(transactional_id, partial(self._complete, transactional_id, metadata))

    def _complete(self, transactional_id: str, sent: TransactionMetadata, now: Now) -> CoordinatorResult:
        metadata = self.stored.get(transactional_id)
        if metadata is None or metadata != sent:
            return CoordinatorResult()
        last_epoch = self.last_epoch(transactional_id)
        record = record_of(transactional_id, completed(metadata, now.wall_ms), self.config.transaction_version)
        return CoordinatorResult([record], callback=_Completed(self, transactional_id, metadata, last_epoch))

    def completed(self, transactional_id: str, last_epoch: int) -> None:
        self._sending.discard(transactional_id)
        self.note_last_epoch(transactional_id, last_epoch)

    def complete_again(self, transactional_id: str, metadata: TransactionMetadata, now: Now) -> None:
        """The record was not written: the partition may lack replicas for a while."""
        deadline_ms = now.monotonic_ms + _AGAIN_MS
        self.timer.schedule(("complete", transactional_id), deadline_ms, self.complete(transactional_id, metadata))


class _Written(WriteCallback):
    """What follows from metadata that is in the log."""

    __slots__ = ("_last_epoch", "_metadata", "_shard", "_transactional_id")

    def __init__(
        self, shard: TransactionCoordinatorShard, transactional_id: str, metadata: TransactionMetadata, last_epoch: int
    ) -> None:
        self._shard = shard
        self._transactional_id = transactional_id
        self._metadata = metadata
        self._last_epoch = last_epoch

    def appended(self, now: Now) -> Records:
        self._shard.note_last_epoch(self._transactional_id, self._last_epoch)
        return NO_RECORDS

    def committed(self, now: Now) -> Records:
        if self._metadata.state.is_prepared:
            self._shard.send_committed_markers(self._transactional_id)
        return NO_RECORDS

    def failed(self, error: ErrorCode, now: Now) -> Records:
        if self._metadata.state.is_prepared:
            # It may be in the log nevertheless, and then it counts.
            self._shard.look_again(self._transactional_id, now)
        return NO_RECORDS


class _Completed(WriteCallback):
    """The same for the end of a transaction, which is tried until it is in the log."""

    __slots__ = ("_last_epoch", "_prepared", "_shard", "_transactional_id")

    def __init__(
        self, shard: TransactionCoordinatorShard, transactional_id: str, prepared: TransactionMetadata, last_epoch: int
    ) -> None:
        self._shard = shard
        self._transactional_id = transactional_id
        self._prepared = prepared
        self._last_epoch = last_epoch

    def appended(self, now: Now) -> Records:
        self._shard.completed(self._transactional_id, self._last_epoch)
        return NO_RECORDS

    def failed(self, error: ErrorCode, now: Now) -> Records:
        self._shard.complete_again(self._transactional_id, self._prepared, now)
        return NO_RECORDS
