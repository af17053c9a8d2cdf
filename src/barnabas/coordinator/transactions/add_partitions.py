"""AddPartitionsToTxn and AddOffsetsToTxn: partitions become part of a transaction, or are said to be."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.coordinator.results import CoordinatorResult, Now
from barnabas.coordinator.transactions.metadata import with_partitions
from barnabas.coordinator.transactions.shard import TransactionCoordinatorShard
from barnabas.coordinator.transactions.states import TransactionState
from barnabas.records.batch import MAX_PRODUCER_EPOCH
from barnabas.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from barnabas.wire.schema import Struct


def partitions_of(transaction: AddPartitionsToTxnTransaction) -> Iterable[TopicPartition]:
    for topic in transaction.topics:
        for index in topic.partitions:
            yield TopicPartition(topic.name, index)


def add_partitions(
    shard: TransactionCoordinatorShard,
    transactional_id: str,
    producer_id: int,
    epoch: int,
    partitions: Iterable[TopicPartition],
    answer: Callable[[ErrorCode], Struct],
    client_version: int,
    now: Now,
) -> CoordinatorResult:
    added = frozenset(partitions)
    error = _error(shard, transactional_id, producer_id, epoch)
    metadata = shard.stored.get(transactional_id)
    if error is ErrorCode.NONE and metadata is not None:
        is_news = metadata.state is not TransactionState.ONGOING or not added <= metadata.partitions
        if is_news:
            after = with_partitions(metadata, added, client_version, now.wall_ms)
            return shard.written(transactional_id, after, answer(ErrorCode.NONE))
    return CoordinatorResult(response=answer(error), after_writes=True)


def _error(shard: TransactionCoordinatorShard, transactional_id: str, producer_id: int, epoch: int) -> ErrorCode:
    metadata = shard.stored.get(transactional_id)
    if metadata is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if metadata.state.is_prepared:
        # Before anything else: when it is complete the producer may have another id and epoch (KAFKA-18575).
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if metadata.producer_id != producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if metadata.producer_epoch != epoch or epoch == MAX_PRODUCER_EPOCH:
        # No producer was given the last one, and a transaction in it could not be fenced.
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


def verify_partitions(
    shard: TransactionCoordinatorShard, transaction: AddPartitionsToTxnTransaction
) -> CoordinatorResult:
    """Whether partitions are part of the transaction: their leaders ask before they take its first records."""
    metadata = shard.stored.get(transaction.transactional_id)
    if metadata is None or metadata.producer_id != transaction.producer_id:
        error = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    elif metadata.producer_epoch != transaction.producer_epoch:
        error = ErrorCode.PRODUCER_FENCED
    elif metadata.state.is_prepared:
        error = ErrorCode.CONCURRENT_TRANSACTIONS
    else:
        known = metadata.partitions
        response = _result(
            transaction,
            lambda partition: ErrorCode.NONE if partition in known else ErrorCode.TRANSACTION_ABORTABLE,
        )
        return CoordinatorResult(response=response, after_writes=True)
    return CoordinatorResult(response=add_failed(transaction, error), after_writes=True)


def add_failed(transaction: AddPartitionsToTxnTransaction, error: ErrorCode) -> AddPartitionsToTxnResult:
    """The same for all its partitions; no error is an answer too."""
    return _result(transaction, lambda _: error)


def _result(
    transaction: AddPartitionsToTxnTransaction, error_of: Callable[[TopicPartition], ErrorCode]
) -> AddPartitionsToTxnResult:
    return AddPartitionsToTxnResult(
        transactional_id=transaction.transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=error_of(TopicPartition(topic.name, index))
                    )
                    for index in topic.partitions
                ],
            )
            for topic in transaction.topics
        ],
    )
