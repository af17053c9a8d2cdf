"""What can be asked of a transaction coordinator: each request with its operation, and with what it is told in vain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, NamedTuple, TypeVar

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.coordinator.results import CoordinatorResult, Now, Operation, Token
from barnabas.coordinator.transactions import init_producer_id as init
from barnabas.coordinator.transactions.add_partitions import (
    add_failed,
    add_partitions,
    partitions_of,
    verify_partitions,
)
from barnabas.coordinator.transactions.config import TransactionCoordinatorConfig
from barnabas.coordinator.transactions.end_txn import end_failed, end_txn
from barnabas.coordinator.transactions.shard import TransactionCoordinatorShard
from barnabas.records.control import EPOCH_PER_TRANSACTION
from barnabas.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas.wire.messages.add_partitions_to_txn import AddPartitionsToTxnResult, AddPartitionsToTxnTransaction
from barnabas.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.schema import Struct

Q = TypeVar("Q")
R = TypeVar("R", bound=Struct)

#: Of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn: older clients do not know PRODUCER_FENCED.
_FIRST_WITH_FENCED: Final = 2
#: From these versions on, whoever asks works by version 2 of transactions.
_FIRST_V2_ADD: Final = 4
_FIRST_V2_END: Final = 5


@dataclass(frozen=True, slots=True)
class TransactionCoordinatorRequest(Generic[Q, R]):
    """A kind of request. Those for one transactional id are served in the order in which they come."""

    transactional_id: Callable[[Q], str]
    #: With the version of the request.
    run: Callable[[TransactionCoordinatorShard, Q, int, Now], CoordinatorResult]
    failed: Callable[[Q, ErrorCode], R]
    #: What is wrong with it whatever the id, so that it need not be looked for.
    refusal: Callable[[TransactionCoordinatorConfig, Q], ErrorCode]

    def operation(self, request: Q, version: int, shard: TransactionCoordinatorShard, token: Token) -> Operation:
        return Operation(
            self.transactional_id(request),
            partial(self.run, shard, request, version),
            token,
            partial(self.failed, request),
        )


class OffsetsToTxn(NamedTuple):
    """AddOffsetsToTxn, with the partition of `__consumer_offsets` that its group belongs to."""

    request: AddOffsetsToTxnRequest
    partition: TopicPartition


def _without_id(transactional_id: str) -> ErrorCode:
    return ErrorCode.NONE if transactional_id else ErrorCode.INVALID_REQUEST


def _as_known(error: ErrorCode, version: int) -> ErrorCode:
    is_unknown = error is ErrorCode.PRODUCER_FENCED and version < _FIRST_WITH_FENCED
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_unknown else error


def _init(
    shard: TransactionCoordinatorShard, request: InitProducerIdRequest, version: int, now: Now
) -> CoordinatorResult:
    result = init.init_producer_id(shard, request, now)
    response = result.response
    assert isinstance(response, InitProducerIdResponse)
    if response.error_code == ErrorCode.PRODUCER_FENCED and version < init.FIRST_WITH_FENCED:
        response.error_code = ErrorCode.INVALID_PRODUCER_EPOCH
    return result


def _add(
    shard: TransactionCoordinatorShard, request: AddPartitionsToTxnTransaction, version: int, now: Now
) -> CoordinatorResult:
    if request.verify_only:
        return verify_partitions(shard, request)
    return add_partitions(
        shard,
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        partitions_of(request),
        lambda error: add_failed(request, _as_known(error, version)),
        EPOCH_PER_TRANSACTION if version >= _FIRST_V2_ADD else 0,
        now,
    )


def _add_offsets(shard: TransactionCoordinatorShard, asked: OffsetsToTxn, version: int, now: Now) -> CoordinatorResult:
    request = asked.request
    return add_partitions(
        shard,
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        (asked.partition,),
        lambda error: AddOffsetsToTxnResponse(error_code=_as_known(error, version)),
        0,
        now,
    )


def _end(shard: TransactionCoordinatorShard, request: EndTxnRequest, version: int, now: Now) -> CoordinatorResult:
    result = end_txn(shard, request, EPOCH_PER_TRANSACTION if version >= _FIRST_V2_END else 0, now)
    response = result.response
    assert isinstance(response, EndTxnResponse)
    response.error_code = _as_known(ErrorCode.of(response.error_code), version)
    return result


INIT_PRODUCER_ID: Final[TransactionCoordinatorRequest[InitProducerIdRequest, InitProducerIdResponse]] = (
    TransactionCoordinatorRequest(
        lambda request: request.transactional_id or "",
        _init,
        lambda _, error: init.init_failed(error),
        init.refusal,
    )
)
#: One transaction of an AddPartitionsToTxn request.
ADD_PARTITIONS: Final[TransactionCoordinatorRequest[AddPartitionsToTxnTransaction, AddPartitionsToTxnResult]] = (
    TransactionCoordinatorRequest(
        lambda request: request.transactional_id,
        _add,
        add_failed,
        lambda _, request: _without_id(request.transactional_id),
    )
)
ADD_OFFSETS: Final[TransactionCoordinatorRequest[OffsetsToTxn, AddOffsetsToTxnResponse]] = (
    TransactionCoordinatorRequest(
        lambda asked: asked.request.transactional_id,
        _add_offsets,
        lambda _, error: AddOffsetsToTxnResponse(error_code=error),
        lambda _, asked: _without_id(asked.request.transactional_id),
    )
)
END_TXN: Final[TransactionCoordinatorRequest[EndTxnRequest, EndTxnResponse]] = TransactionCoordinatorRequest(
    lambda request: request.transactional_id,
    _end,
    lambda _, error: end_failed(error),
    lambda _, request: _without_id(request.transactional_id),
)
