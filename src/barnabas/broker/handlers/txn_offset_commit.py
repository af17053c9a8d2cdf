"""TxnOffsetCommit (28): stores offsets that count once the transaction commits.

v3 says which member sends them; from v5 on the group is added to the transaction by this, where clients of older
versions asked for that beforehand.
"""

from __future__ import annotations

from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.broker.context import RequestContext
from barnabas.broker.data.add_partitions_to_txn_manager import TransactionSupportedOperation
from barnabas.broker.data.transaction_verification import Verification
from barnabas.broker.services import Services
from barnabas.broker.turns import Steps, awaited, each_of, settled
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


def handle(
    services: Services, context: RequestContext, request: TxnOffsetCommitRequest
) -> Steps[TxnOffsetCommitResponse]:
    refusal = _refusal(services, context, request)
    if refusal is not ErrorCode.NONE:
        return TxnOffsetCommitResponse(
            topics=(yield from each_of(request.topics, lambda each: _refused(each, refusal)))
        )
    answers: list[TxnOffsetCommitResponseTopic] = []
    accepted: list[TxnOffsetCommitRequestTopic] = []
    for topic in request.topics:
        yield from _sort_out(services, context, topic, accepted, answers)
    if not accepted:
        return TxnOffsetCommitResponse(topics=answers)
    request.topics = accepted
    response = yield from _commit(services, context, request)
    for told in response.topics:
        yield None
        if context.version < _FIRST_WITH_LOADING:
            _hide_loading(told)
    return TxnOffsetCommitResponse(topics=_each_topic_once([*answers, *response.topics]))


def _refusal(services: Services, context: RequestContext, request: TxnOffsetCommitRequest) -> ErrorCode:
    is_allowed = services.authorizer.is_allowed
    if not is_allowed(context, AclOperation.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not is_allowed(context, AclOperation.READ, Resource.GROUP, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def _sort_out(
    services: Services,
    context: RequestContext,
    topic: TxnOffsetCommitRequestTopic,
    accepted: list[TxnOffsetCommitRequestTopic],
    answers: list[TxnOffsetCommitResponseTopic],
) -> Steps[None]:
    """Pass on the partitions that the topic has, refuse the others."""
    if not services.authorizer.is_allowed(context, AclOperation.READ, Resource.TOPIC, topic.name):
        answers.append(_refused(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        return
    known_topic = services.metadata.image.topics.get(topic.name)
    count = 0 if known_topic is None else len(known_topic.partitions)
    known: list[TxnOffsetCommitRequestPartition] = []
    unknown: list[TxnOffsetCommitRequestPartition] = []
    for each in topic.partitions:
        (known if 0 <= each.partition_index < count else unknown).append(each)
        yield None
    if unknown:
        refused = TxnOffsetCommitRequestTopic(name=topic.name, partitions=unknown)
        answers.append(_refused(refused, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    if known:
        topic.partitions = known
        accepted.append(topic)


def _commit(
    services: Services, context: RequestContext, request: TxnOffsetCommitRequest
) -> Steps[TxnOffsetCommitResponse]:
    """Have the partition of the group verified as part of the transaction, then write to it."""
    guard: object = None
    if request.group_id:
        name = TopicPartition(CONSUMER_OFFSETS, services.groups.partition_for(request.group_id))
        partition = services.replica_manager.get(name)
        operation = TransactionSupportedOperation.of_txn_offset_commit(context.version)
        verification = Verification(
            services, request.transactional_id, request.producer_id, request.producer_epoch, operation
        )
        if partition is not None:
            verification.begin(partition)
            if verification.must_ask:
                yield from awaited(verification.ask())
            guard = verification.guard_of(partition)
        error = verification.refusal_of(name)
        if error is not ErrorCode.NONE:
            return TXN_OFFSET_COMMIT.failed(VerifiedTxnOffsetCommit(request, guard), _for_client(error))
    caller = Caller(context.version, Client(context.client_id or "", ""))
    asked = VerifiedTxnOffsetCommit(request, guard)
    return (yield from settled(services.groups.submit(TXN_OFFSET_COMMIT, asked, caller)))


def _for_client(error: ErrorCode) -> ErrorCode:
    """A coordinator of transactions that could not be reached is no reason to look for that of the group anew."""
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if error is ErrorCode.NETWORK_EXCEPTION else append_error(error)


def _refused(topic: TxnOffsetCommitRequestTopic, error: ErrorCode) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=topic.name,
        partitions=[
            TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error)
            for each in topic.partitions
        ],
    )


def _hide_loading(topic: TxnOffsetCommitResponseTopic) -> None:
    for each in topic.partitions:
        if each.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            each.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE


def _each_topic_once(answers: list[TxnOffsetCommitResponseTopic]) -> list[TxnOffsetCommitResponseTopic]:
    topics: dict[str, TxnOffsetCommitResponseTopic] = {}
    for answer in answers:
        known = topics.setdefault(answer.name, answer)
        if known is not answer:
            known.partitions += answer.partitions
    return list(topics.values())
