"""An open transaction is aborted without its producer, which the same record fences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.base.error_codes import ErrorCode
from barnabas.coordinator.results import CoordinatorResult, Now
from barnabas.coordinator.transactions.metadata import (
    NO_EPOCH,
    TransactionMetadata,
    prepared,
)
from barnabas.coordinator.transactions.states import TransactionState
from barnabas.records.batch import MAX_PRODUCER_EPOCH, NO_PRODUCER_ID
from barnabas.records.control import EPOCH_PER_TRANSACTION
from barnabas.wire.schema import Struct

if TYPE_CHECKING:
    from barnabas.coordinator.transactions.shard import TransactionCoordinatorShard

#: What Kafka says where there is no producer id at the moment: clients of all ages ask again.
NO_PRODUCER_ID_LEFT = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def abort_and_fence(
    shard: TransactionCoordinatorShard,
    transactional_id: str,
    metadata: TransactionMetadata,
    response: Struct | None,
    now: Now,
) -> CoordinatorResult | ErrorCode:
    """Once: to fence and to abort does not take two epochs, or the last one would be passed (KAFKA-19367)."""
    epoch = min(metadata.producer_epoch + 1, MAX_PRODUCER_EPOCH)
    if shard.config.transaction_version < EPOCH_PER_TRANSACTION:
        aborted = prepared(metadata, TransactionState.PREPARE_ABORT, 0, now.wall_ms, epoch=epoch)
        return shard.written(transactional_id, aborted, response, NO_EPOCH)
    next_producer_id = NO_PRODUCER_ID
    if metadata.is_epoch_exhausted:
        # Also here, or it would stay at an epoch that nobody may have (KAFKA-20090).
        taken = shard.new_producer_id()
        if taken is None:
            return NO_PRODUCER_ID_LEFT
        next_producer_id = taken
    aborted = prepared(
        metadata,
        TransactionState.PREPARE_ABORT,
        shard.config.transaction_version,
        now.wall_ms,
        epoch=epoch,
        next_producer_id=next_producer_id,
    )
    return shard.written(transactional_id, aborted, response, metadata.producer_epoch)
