"""TxnOffsetCommit (28): stores offsets that count once the transaction commits.

v3 says which member sends them; from v5 on the group is added to the transaction by this, where clients of older
versions asked for that beforehand.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.broker.context import RequestContext
from barnabas.broker.data.add_partitions_to_txn_manager import TransactionSupportedOperation
from barnabas.broker.data.transaction_verification import Verification
from barnabas.broker.services import Services
from barnabas.broker.turns import Steps, awaited, each_of, settled, spent
from barnabas.coordinator.classic.members import Client
from barnabas.coordinator.requests import TXN_OFFSET_COMMIT, Caller, VerifiedTxnOffsetCommit
from barnabas.coordinator.results import append_error
from barnabas.metadata.authorizer import AclOperation, Resource
from barnabas.metadata.topic_names import CONSUMER_OFFSETS
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

API_KEY = ApiKey.TXN_OFFSET_COMMIT

#: Before it, clients do not expect to hear that a coordinator is loading.
_FIRST_WITH_LOADING: Final = 2
#: How many are written in one part.
_PARTITIONS_AT_ONCE: Final = 256


def handle(
    services: Services, context: RequestContext, request: TxnOffsetCommitRequest
) -> Steps[TxnOffsetCommitResponse]:
    answers: list[TxnOffsetCommitResponseTopic] = []
    accepted: list[TxnOffsetCommitRequestTopic] = []
    refusal = _refusal(services, context, request)
    for topic in request.topics:
        yield None
        error = _why_not(services, context, topic) if refusal is ErrorCode.NONE else refusal
        if error is ErrorCode.NONE:
            yield from _sort_out(services, topic, accepted, answers)
        else:
            answers.append((yield from _refused(topic.name, topic.partitions, error)))
    if accepted:
        request.topics = accepted
        committed = yield from _commit(services, context, request)
        if context.version < _FIRST_WITH_LOADING:
            yield from _hide_loading(committed)
        answers += committed
    return (yield from _each_topic_once(answers))


def _refusal(services: Services, context: RequestContext, request: TxnOffsetCommitRequest) -> ErrorCode:
    is_allowed = services.authorizer.is_allowed
    if not is_allowed(context, AclOperation.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not is_allowed(context, AclOperation.READ, Resource.GROUP, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def _why_not(services: Services, context: RequestContext, topic: TxnOffsetCommitRequestTopic) -> ErrorCode:
    if not services.authorizer.is_allowed(context, AclOperation.READ, Resource.TOPIC, topic.name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    is_known = topic.name in services.metadata.image.topics
    return ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _sort_out(
    services: Services,
    topic: TxnOffsetCommitRequestTopic,
    accepted: list[TxnOffsetCommitRequestTopic],
    answers: list[TxnOffsetCommitResponseTopic],
) -> Steps[None]:
    """Pass on the partitions that the topic has, refuse the others."""
    count = len(services.metadata.image.topics[topic.name].partitions)
    known: list[TxnOffsetCommitRequestPartition] = []
    unknown: list[TxnOffsetCommitRequestPartition] = []
    for each in topic.partitions:
        (known if 0 <= each.partition_index < count else unknown).append(each)
        yield None
    if unknown:
        answers.append((yield from _refused(topic.name, unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
    if known:
        topic.partitions = known
        accepted.append(topic)


def _commit(
    services: Services, context: RequestContext, request: TxnOffsetCommitRequest
) -> Steps[list[TxnOffsetCommitResponseTopic]]:
    """Have the partition of the group verified as part of the transaction, then write to it.

    Very many offsets are written in parts. All of them wait for the same marker, so nobody sees some without the rest.
    """
    guard: object = None
    if request.group_id:
        name = TopicPartition(CONSUMER_OFFSETS, services.groups.partition_for(request.group_id))
        operation = TransactionSupportedOperation.of_txn_offset_commit(context.version)
        verification = Verification(
            services, request.transactional_id, request.producer_id, request.producer_epoch, operation
        )
        partition = services.replica_manager.get(name)
        if partition is not None:
            verification.begin(partition)
            if verification.must_ask:
                yield from awaited(verification.ask())
            guard = verification.guard_of(partition)
        error = verification.refusal_of(name)
        if error is not ErrorCode.NONE:
            return (yield from _all_refused(request, _for_client(error)))
    caller = Caller(context.version, Client(context.client_id or "", ""))
    waiting = []
    for part in _parts(request.topics):
        partial = copy(request)
        partial.topics = part
        asked = VerifiedTxnOffsetCommit(partial, guard)
        waiting.append(services.groups.submit(TXN_OFFSET_COMMIT, asked, caller))
        yield from spent(sum(len(topic.partitions) for topic in part))
    answers: list[TxnOffsetCommitResponseTopic] = []
    for each in waiting:
        answers += (yield from settled(each)).topics
    return answers


def _parts(topics: list[TxnOffsetCommitRequestTopic]) -> Iterator[list[TxnOffsetCommitRequestTopic]]:
    """The topics in parts of a bounded number of partitions."""
    part: list[TxnOffsetCommitRequestTopic] = []
    room = _PARTITIONS_AT_ONCE
    for topic in topics:
        for start in range(0, len(topic.partitions), _PARTITIONS_AT_ONCE):
            taken = topic.partitions[start : start + _PARTITIONS_AT_ONCE]
            if room < len(taken):
                yield part
                part, room = [], _PARTITIONS_AT_ONCE
            part.append(TxnOffsetCommitRequestTopic(name=topic.name, partitions=taken))
            room -= len(taken)
    if part:
        yield part


def _for_client(error: ErrorCode) -> ErrorCode:
    """A coordinator of transactions that could not be reached is no reason to look for that of the group anew."""
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if error is ErrorCode.NETWORK_EXCEPTION else append_error(error)


def _all_refused(request: TxnOffsetCommitRequest, error: ErrorCode) -> Steps[list[TxnOffsetCommitResponseTopic]]:
    refused = []
    for topic in request.topics:
        yield None
        refused.append((yield from _refused(topic.name, topic.partitions, error)))
    return refused


def _refused(
    name: str, partitions: list[TxnOffsetCommitRequestPartition], error: ErrorCode
) -> Steps[TxnOffsetCommitResponseTopic]:
    refused = yield from each_of(
        partitions,
        lambda each: TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error),
    )
    yield None
    return TxnOffsetCommitResponseTopic(name=name, partitions=refused)


def _hide_loading(topics: list[TxnOffsetCommitResponseTopic]) -> Steps[None]:
    for topic in topics:
        for each in topic.partitions:
            if each.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                each.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            yield None


def _each_topic_once(answers: list[TxnOffsetCommitResponseTopic]) -> Steps[TxnOffsetCommitResponse]:
    topics: dict[str, TxnOffsetCommitResponseTopic] = {}
    for answer in answers:
        yield None
        known = topics.setdefault(answer.name, answer)
        if known is not answer:
            known.partitions += answer.partitions
    return TxnOffsetCommitResponse(topics=list(topics.values()))
