"""AddPartitionsToTxn (24): makes partitions part of a transaction, or tells whether they are.

Up to v3 it comes from clients, for one transaction. From v4 on it comes from the leaders of partitions, for several:
they verify, or add what a producer has written to. If one partition of a transaction is unknown or refused, none is
added.
"""

from __future__ import annotations

import asyncio
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.context import RequestContext
from barnabas.broker.services import Services
from barnabas.broker.turns import Steps, settled
from barnabas.coordinator.transactions.add_partitions import add_failed
from barnabas.coordinator.transactions.requests import ADD_PARTITIONS
from barnabas.metadata.authorizer import CLUSTER_NAME, AclOperation, Resource
from barnabas.metadata.topic_names import is_internal
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

API_KEY = ApiKey.ADD_PARTITIONS_TO_TXN
#: What a transaction is about is one record, so it is handled at once.
MAX_ELEMENTS: Final = 20_000

_FIRST_OF_BROKERS: Final = 4


def handle(
    services: Services, context: RequestContext, request: AddPartitionsToTxnRequest
) -> Steps[AddPartitionsToTxnResponse]:
    if context.version < _FIRST_OF_BROKERS:
        return (yield from _handle_one(services, context, request))
    if not services.authorizer.is_allowed(context, AclOperation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    answers = []
    for transaction in request.transactions:
        answers.append((yield from _add(services, context, transaction)))
        yield None
    results = []
    for answer in answers:
        results.append((yield from settled(answer)))
        yield None
    return AddPartitionsToTxnResponse(results_by_transaction=results)


def _handle_one(
    services: Services, context: RequestContext, request: AddPartitionsToTxnRequest
) -> Steps[AddPartitionsToTxnResponse]:
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    resource = Resource.TRANSACTIONAL_ID, transaction.transactional_id
    if services.authorizer.is_allowed(context, AclOperation.WRITE, *resource):
        result = yield from settled((yield from _add(services, context, transaction)))
    else:
        result = add_failed(transaction, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=result.topic_results)


def _add(
    services: Services, context: RequestContext, transaction: AddPartitionsToTxnTransaction
) -> Steps[AddPartitionsToTxnResult | asyncio.Future[AddPartitionsToTxnResult]]:
    transaction.topics = yield from _each_topic_once(transaction.topics)
    refused = yield from _refused(services, context, transaction)
    if refused is not None:
        return refused
    return services.transactions.submit(ADD_PARTITIONS, transaction, context.version)


def _each_topic_once(topics: list[AddPartitionsToTxnTopic]) -> Steps[list[AddPartitionsToTxnTopic]]:
    by_name: dict[str, dict[int, None]] = {}
    for topic in topics:
        indexes = by_name.setdefault(topic.name, {})
        for index in topic.partitions:
            indexes[index] = None
            yield None
        yield None
    return [AddPartitionsToTxnTopic(name=name, partitions=list(indexes)) for name, indexes in by_name.items()]


def _refused(
    services: Services, context: RequestContext, transaction: AddPartitionsToTxnTransaction
) -> Steps[AddPartitionsToTxnResult | None]:
    """What is told if not all partitions can be added; None if they can."""
    image = services.metadata.image
    is_refused = False
    results = []
    for topic in transaction.topics:
        is_allowed = _is_allowed(services, context, topic.name)
        known = image.topics.get(topic.name)
        count = 0 if known is None else len(known.partitions)
        errors = []
        for index in topic.partitions:
            error = ErrorCode.OPERATION_NOT_ATTEMPTED
            if not is_allowed:
                error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif not 0 <= index < count:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            is_refused = is_refused or error is not ErrorCode.OPERATION_NOT_ATTEMPTED
            errors.append(AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error))
            yield None
        results.append(AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=errors))
        yield None
    if not is_refused:
        return None
    return AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=results)


def _is_allowed(services: Services, context: RequestContext, topic: str) -> bool:
    """Brokers were asked by somebody who may; offsets of a group are added otherwise."""
    if context.version >= _FIRST_OF_BROKERS:
        return True
    return not is_internal(topic) and services.authorizer.is_allowed(context, AclOperation.WRITE, Resource.TOPIC, topic)
