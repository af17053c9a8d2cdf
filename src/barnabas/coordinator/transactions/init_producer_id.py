"""InitProducerId with a transactional id: a producer gets the id and an epoch with which it alone can write."""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.base.error_codes import ErrorCode
from barnabas.coordinator.results import CoordinatorResult, Now
from barnabas.coordinator.transactions.config import TransactionCoordinatorConfig
from barnabas.coordinator.transactions.fencing import NO_PRODUCER_ID_LEFT, abort_and_fence
from barnabas.coordinator.transactions.metadata import (
    NO_EPOCH,
    TransactionMetadata,
    begun,
    is_exhausted,
    new_metadata,
)
from barnabas.coordinator.transactions.shard import TransactionCoordinatorShard
from barnabas.coordinator.transactions.states import TransactionState
from barnabas.records.batch import NO_PRODUCER_ID
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

#: Older clients do not know PRODUCER_FENCED.
FIRST_WITH_FENCED: Final = 4


class _Expected(NamedTuple):
    """Who the producer takes itself for."""

    producer_id: int
    epoch: int


def refusal(config: TransactionCoordinatorConfig, request: InitProducerIdRequest) -> ErrorCode:
    if (request.producer_id == NO_PRODUCER_ID) is not (request.producer_epoch == NO_EPOCH):
        return ErrorCode.INVALID_REQUEST
    if not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if not 0 < request.transaction_timeout_ms <= config.max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NONE


def init_failed(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)


def init_producer_id(shard: TransactionCoordinatorShard, request: InitProducerIdRequest, now: Now) -> CoordinatorResult:
    outcome = _init(shard, request, now)
    if isinstance(outcome, ErrorCode):
        return CoordinatorResult(response=init_failed(outcome), after_writes=True)
    return outcome


def _init(
    shard: TransactionCoordinatorShard, request: InitProducerIdRequest, now: Now
) -> CoordinatorResult | ErrorCode:
    transactional_id = request.transactional_id or ""
    expected = None
    if request.producer_id != NO_PRODUCER_ID:
        expected = _Expected(request.producer_id, request.producer_epoch)
    metadata = shard.stored.get(transactional_id)
    if metadata is None:
        producer_id = shard.new_producer_id()
        if producer_id is None:
            return NO_PRODUCER_ID_LEFT
        metadata = new_metadata(producer_id, request.transaction_timeout_ms, now.wall_ms)
    if metadata.state.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if expected is not None and not _may_be(metadata, expected):
        return ErrorCode.PRODUCER_FENCED
    if metadata.state is TransactionState.ONGOING:
        # The producer comes back when that is done, and gets an epoch then.
        again = init_failed(ErrorCode.CONCURRENT_TRANSACTIONS)
        return abort_and_fence(shard, transactional_id, metadata, again, now)
    return _begin(shard, request, metadata, expected, now)


def _may_be(metadata: TransactionMetadata, expected: _Expected) -> bool:
    """Whether the producer may go on: the id is new; it is its own; or it was, and its epochs were used up, so that
    this asks again for what was answered."""
    return (
        metadata.producer_epoch == NO_EPOCH
        or expected.producer_id == metadata.producer_id
        or (expected.producer_id == metadata.previous_producer_id and is_exhausted(expected.epoch))
    )


def _begin(
    shard: TransactionCoordinatorShard,
    request: InitProducerIdRequest,
    metadata: TransactionMetadata,
    expected: _Expected | None,
    now: Now,
) -> CoordinatorResult | ErrorCode:
    transactional_id = request.transactional_id or ""
    current = metadata.producer_epoch
    last_epoch = shard.last_epoch(transactional_id)
    producer_id = metadata.producer_id
    if expected is None or expected.epoch == current or current == NO_EPOCH:
        epoch, last_epoch = current + 1, NO_EPOCH if expected is None else current
        if metadata.is_epoch_exhausted:
            taken = shard.new_producer_id()
            if taken is None:
                return NO_PRODUCER_ID_LEFT
            producer_id, epoch = taken, 0
    elif expected.epoch == last_epoch:
        # It has not heard of the epoch that it was given, and nobody else can have come since.
        epoch = current
    else:
        return ErrorCode.PRODUCER_FENCED
    after = begun(metadata, producer_id, epoch, request.transaction_timeout_ms, now.wall_ms)
    response = InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)
    return shard.written(transactional_id, after, response, last_epoch)
