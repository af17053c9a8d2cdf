"""EndTxn: a transaction is committed or aborted.

Up to version 4 of the request a transaction keeps its epoch (`_end_v1`). From version 5 on, the epoch goes up with each
one (`_end_v2`), so that a request which comes late, or again, can be told from one that is about the next:

| state          | abort, epoch before | abort, own epoch | commit, epoch before | commit, own epoch |
|----------------|---------------------|------------------|----------------------|-------------------|
| Empty          | PRODUCER_FENCED     | bumped           | PRODUCER_FENCED      | INVALID_TXN_STATE |
| Ongoing        | PRODUCER_FENCED     | bumped           | PRODUCER_FENCED      | bumped            |
| Prepare…       | CONCURRENT_TRANSACTIONS, whatever it asks for                                       |
| CompleteAbort  | as answered         | bumped           | INVALID_TXN_STATE    | INVALID_TXN_STATE |
| CompleteCommit | INVALID_TXN_STATE   | bumped           | as answered          | INVALID_TXN_STATE |
"""

from __future__ import annotations

from barnabas.base.error_codes import ErrorCode
from barnabas.coordinator.results import CoordinatorResult, Now
from barnabas.coordinator.transactions.fencing import NO_PRODUCER_ID_LEFT
from barnabas.coordinator.transactions.metadata import (
    NO_EPOCH,
    TransactionMetadata,
    completed,
    prepared,
)
from barnabas.coordinator.transactions.shard import TransactionCoordinatorShard
from barnabas.coordinator.transactions.states import TransactionState
from barnabas.records.batch import MAX_PRODUCER_EPOCH, NO_PRODUCER_ID
from barnabas.records.control import EPOCH_PER_TRANSACTION
from barnabas.wire.messages.end_txn import EndTxnRequest, EndTxnResponse


def end_failed(error: ErrorCode) -> EndTxnResponse:
    return EndTxnResponse(error_code=error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)


def _ended(metadata: TransactionMetadata) -> EndTxnResponse:
    """What the producer goes on with."""
    return EndTxnResponse(producer_id=metadata.producer_id, producer_epoch=metadata.producer_epoch)


def end_txn(
    shard: TransactionCoordinatorShard, request: EndTxnRequest, client_version: int, now: Now
) -> CoordinatorResult:
    metadata = shard.stored.get(request.transactional_id)
    if metadata is None:
        outcome: CoordinatorResult | EndTxnResponse | ErrorCode = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    elif client_version >= EPOCH_PER_TRANSACTION:
        outcome = _end_v2(shard, metadata, request, client_version, now)
    else:
        outcome = _end_v1(shard, metadata, request, now)
    if isinstance(outcome, ErrorCode):
        outcome = end_failed(outcome)
    return outcome if isinstance(outcome, CoordinatorResult) else CoordinatorResult(response=outcome, after_writes=True)


def _outcome(request: EndTxnRequest) -> tuple[TransactionState, TransactionState]:
    if request.committed:
        return TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT
    return TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT


def _end_v1(
    shard: TransactionCoordinatorShard, metadata: TransactionMetadata, request: EndTxnRequest, now: Now
) -> CoordinatorResult | EndTxnResponse | ErrorCode:
    prepare, complete = _outcome(request)
    if metadata.producer_id != request.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if metadata.producer_epoch != request.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if metadata.state.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if metadata.state is TransactionState.ONGOING:
        after = prepared(metadata, prepare, 0, now.wall_ms, epoch=metadata.producer_epoch)
        return shard.written(request.transactional_id, after, _ended(after))
    # Asked again for what was done, it is done: the first answer may have got lost.
    return _ended(metadata) if metadata.state is complete else ErrorCode.INVALID_TXN_STATE


def _end_v2(
    shard: TransactionCoordinatorShard,
    metadata: TransactionMetadata,
    request: EndTxnRequest,
    client_version: int,
    now: Now,
) -> CoordinatorResult | EndTxnResponse | ErrorCode:
    prepare, complete = _outcome(request)
    if metadata.state.is_prepared:
        # Before the epoch, which has gone up already: or a producer that asks again would be fenced (KAFKA-18464).
        return ErrorCode.CONCURRENT_TRANSACTIONS
    is_overflow_again = _is_overflow_again(metadata, request)
    if metadata.producer_id != request.producer_id and not is_overflow_again:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    is_complete = metadata.state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
    is_again = metadata.producer_epoch == request.producer_epoch + 1 or is_overflow_again
    if is_complete and is_again:
        return _ended(metadata) if metadata.state is complete else ErrorCode.INVALID_TXN_STATE
    if metadata.producer_epoch != request.producer_epoch or request.producer_epoch == MAX_PRODUCER_EPOCH:
        return ErrorCode.PRODUCER_FENCED
    if metadata.state is not TransactionState.ONGOING and request.committed:
        return ErrorCode.INVALID_TXN_STATE
    return _prepare_v2(shard, metadata, request.transactional_id, prepare, client_version, now)


def _is_overflow_again(metadata: TransactionMetadata, request: EndTxnRequest) -> bool:
    """Whether it was answered with a new producer id, since the epochs of the old one were used up."""
    return (
        metadata.previous_producer_id == request.producer_id
        and request.producer_epoch == MAX_PRODUCER_EPOCH - 1
        and metadata.producer_epoch == 0
    )


def _prepare_v2(
    shard: TransactionCoordinatorShard,
    metadata: TransactionMetadata,
    transactional_id: str,
    prepare: TransactionState,
    client_version: int,
    now: Now,
) -> CoordinatorResult | ErrorCode:
    next_producer_id = NO_PRODUCER_ID
    if metadata.is_epoch_exhausted:
        taken = shard.new_producer_id()
        if taken is None:
            return NO_PRODUCER_ID_LEFT
        next_producer_id = taken
    after = prepared(
        metadata,
        prepare,
        client_version,
        now.wall_ms,
        epoch=metadata.producer_epoch + 1,
        next_producer_id=next_producer_id,
    )
    # The producer goes on with what it will have when this is complete (KAFKA-18660).
    response = _ended(completed(after, now.wall_ms))
    return shard.written(transactional_id, after, response, metadata.producer_epoch)
