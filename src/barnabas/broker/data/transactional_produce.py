"""A produce request with a transactional id: its coordinator is asked about partitions before the first append to each.

The request waits for that with its records. From then on it goes the way of all others (`producing`).
"""

from __future__ import annotations

from collections.abc import Generator

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import Uuid
from barnabas.broker.data.add_partitions_to_txn_manager import TransactionSupportedOperation
from barnabas.broker.data.producing import FIRST_BY_ID, Produce, ProduceAnswer
from barnabas.broker.data.transaction_verification import TransactionalBatch, Verification, transactional_batch
from barnabas.broker.turns import Steps, awaited
from barnabas.metadata.authorizer import AclOperation, Resource
from barnabas.replication.partition import Partition


def run_in_transaction(produce: Produce, transactional_id: str) -> Steps[ProduceAnswer]:
    found = yield from _batches(produce)
    producers = {(batch.producer_id, batch.producer_epoch) for _, batch in found}
    if not producers:
        return (yield from _run(produce))
    services, context = produce.services, produce.context
    if not services.authorizer.is_allowed(context, AclOperation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id):
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return (yield from produce.refuse_all(code, code.text))
    if len(producers) > 1:
        text = "the batches of a request in a transaction are of more than one producer"
        return (yield from produce.refuse_all(ErrorCode.INVALID_PRODUCER_ID_MAPPING, text))
    [(producer_id, producer_epoch)] = producers
    operation = TransactionSupportedOperation.of_produce(context.version)
    verification = Verification(services, transactional_id, producer_id, producer_epoch, operation)
    for partition, batch in found:
        if partition is not None:
            verification.begin(partition, batch.base_sequence)
        yield None
    if verification.must_ask:
        yield from awaited(verification.ask())
    produce.verification = verification
    return (yield from _run(produce))


def _batches(produce: Produce) -> Steps[list[tuple[Partition | None, TransactionalBatch]]]:
    """What belongs to a transaction, and the partition if it is here and this client may write to it."""
    by_id = produce.context.version >= FIRST_BY_ID
    found: list[tuple[Partition | None, TransactionalBatch]] = []
    for topic in produce.request.topic_data:
        yield None
        key: str | Uuid = topic.topic_id if by_id else topic.name
        is_allowed = produce.why_not(key) is None
        for data in topic.partition_data:
            batch = transactional_batch(data.records or b"")
            if batch is not None:
                found.append((produce.index.get((key, data.index)) if is_allowed else None, batch))
            yield None
    return found


def _run(produce: Produce) -> Steps[ProduceAnswer]:
    outcome = produce.run()
    return (yield from outcome) if isinstance(outcome, Generator) else outcome
