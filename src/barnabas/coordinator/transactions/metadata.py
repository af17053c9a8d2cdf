"""What is known of a transactional id: immutable, as one record of `__transaction_state` has it. Kafka's
TransactionMetadata, whose `prepare…` methods are the functions here that make the next one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from barnabas.base.errors import check
from barnabas.base.ids import TopicPartition
from barnabas.coordinator.results import CoordinatorRecord, Record
from barnabas.coordinator.transactions.states import NEXT_STATES, TransactionState, state_of
from barnabas.records.batch import MAX_PRODUCER_EPOCH, NO_PRODUCER_ID
from barnabas.records.control import EPOCH_PER_TRANSACTION
from barnabas.wire.stored.transaction_state import PartitionsSchema, TransactionLogKey, TransactionLogValue

NO_EPOCH: Final = -1
NO_TIME_MS: Final = -1
#: From this level on, records are flexible and say more.
_FLEXIBLE_RECORDS: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMetadata:
    producer_id: int
    #: Before the last change; it differs from `producer_id` only just after the id was changed.
    previous_producer_id: int = NO_PRODUCER_ID
    #: That it will have when it is complete, if its epochs are used up.
    next_producer_id: int = NO_PRODUCER_ID
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIME_MS
    last_update_ms: int
    #: By which version of transactions its producer works: 0 or 2.
    client_version: int = 0

    @property
    def is_epoch_exhausted(self) -> bool:
        return is_exhausted(self.producer_epoch)

    @property
    def is_timed(self) -> bool:
        return self.state is TransactionState.ONGOING


def is_exhausted(epoch: int) -> bool:
    """Whether no producer can have the epoch after this one."""
    return epoch >= MAX_PRODUCER_EPOCH - 1


def new_metadata(producer_id: int, timeout_ms: int, now_ms: int) -> TransactionMetadata:
    """Of an id that nobody has used; not in the log, and without an epoch, until a producer has one."""
    return TransactionMetadata(
        producer_id=producer_id,
        producer_epoch=NO_EPOCH,
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
        last_update_ms=now_ms,
    )


def _moved(metadata: TransactionMetadata, state: TransactionState, **changes: object) -> TransactionMetadata:
    check(state in NEXT_STATES[metadata.state], f"no transaction goes from {metadata.state.value} to {state.value}")
    return replace(metadata, state=state, previous_producer_id=metadata.producer_id, **changes)  # type: ignore[arg-type]


def begun(
    metadata: TransactionMetadata, producer_id: int, epoch: int, timeout_ms: int, now_ms: int
) -> TransactionMetadata:
    """A producer has it from now on."""
    return _moved(
        metadata,
        TransactionState.EMPTY,
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        start_ms=NO_TIME_MS,
        last_update_ms=now_ms,
    )


def with_partitions(
    metadata: TransactionMetadata, added: Iterable[TopicPartition], client_version: int, now_ms: int
) -> TransactionMetadata:
    """Partitions belong to the transaction, which begins with the first ones."""
    return _moved(
        metadata,
        TransactionState.ONGOING,
        partitions=metadata.partitions.union(added),
        start_ms=metadata.start_ms if metadata.state is TransactionState.ONGOING else now_ms,
        last_update_ms=now_ms,
        client_version=client_version,
    )


def prepared(
    metadata: TransactionMetadata,
    state: TransactionState,
    client_version: int,
    now_ms: int,
    *,
    epoch: int,
    next_producer_id: int = NO_PRODUCER_ID,
) -> TransactionMetadata:
    """It is decided how the transaction ends. Its markers have this epoch."""
    return _moved(
        metadata,
        state,
        producer_epoch=epoch,
        next_producer_id=next_producer_id,
        # One without partitions has no begin.
        start_ms=metadata.start_ms if metadata.state is TransactionState.ONGOING else now_ms,
        last_update_ms=now_ms,
        client_version=client_version,
    )


def completed(metadata: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """All markers are written."""
    is_rotated = metadata.client_version >= EPOCH_PER_TRANSACTION and metadata.next_producer_id != NO_PRODUCER_ID
    is_commit = metadata.state is TransactionState.PREPARE_COMMIT
    return _moved(
        metadata,
        TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
        producer_id=metadata.next_producer_id if is_rotated else metadata.producer_id,
        producer_epoch=0 if is_rotated else metadata.producer_epoch,
        next_producer_id=NO_PRODUCER_ID,
        partitions=frozenset(),
        last_update_ms=now_ms,
    )


# Records


def record_of(transactional_id: str, metadata: TransactionMetadata, transaction_version: int) -> CoordinatorRecord:
    """The record at this level of transaction.version."""
    is_flexible = transaction_version >= _FLEXIBLE_RECORDS
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state.status,
        transaction_partitions=None if metadata.state is TransactionState.EMPTY else _by_topic(metadata.partitions),
        transaction_last_update_timestamp_ms=metadata.last_update_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
    )
    if is_flexible:
        # What the older version cannot say is not replayed either.
        value.previous_producer_id = metadata.previous_producer_id
        value.next_producer_id = metadata.next_producer_id
        value.client_transaction_version = metadata.client_version
    key = TransactionLogKey(transactional_id=transactional_id)
    return CoordinatorRecord(key, value, Record(key.encode_key(), value.encode_value(1 if is_flexible else 0)))


def tombstone_of(transactional_id: str) -> CoordinatorRecord:
    key = TransactionLogKey(transactional_id=transactional_id)
    return CoordinatorRecord(key, None, Record(key.encode_key(), None))


def metadata_of(value: TransactionLogValue) -> TransactionMetadata | None:
    """What a record says; None if its status is not known."""
    state = state_of(value.transaction_status)
    if state is None or state is TransactionState.PREPARE_EPOCH_FENCE:
        return None
    return TransactionMetadata(
        producer_id=value.producer_id,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            TopicPartition(each.topic, index)
            for each in value.transaction_partitions or ()
            for index in each.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        last_update_ms=value.transaction_last_update_timestamp_ms,
        client_version=value.client_transaction_version,
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> list[PartitionsSchema]:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return [PartitionsSchema(topic=topic, partition_ids=indexes) for topic, indexes in topics.items()]
