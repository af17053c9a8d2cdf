"""WriteTxnMarkers (27): a transaction coordinator writes how transactions ended, and hears when that is committed.

v2 tells under which version of transactions a marker was made, and so whether it may have the epoch of the records that
it ends. In a partition of groups a marker also decides about offsets, so there the group coordinator writes it.
"""

from __future__ import annotations

import asyncio
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.ids import TopicPartition
from barnabas.broker.context import RequestContext
from barnabas.broker.services import Services
from barnabas.broker.turns import Steps, settled, spent
from barnabas.metadata.authorizer import CLUSTER_NAME, AclOperation, Resource
from barnabas.metadata.topic_names import CONSUMER_OFFSETS
from barnabas.records.control import TransactionMarker, build_marker
from barnabas.storage.errors import LogError
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

API_KEY = ApiKey.WRITE_TXN_MARKERS

#: As an item it is a large one.
_STEPS_OF_AN_APPEND: Final = 8
#: Of a coordinator of groups; that of transactions knows leaders alone.
_NOT_READY = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)

#: The outcome in one partition, or what will be it.
_Outcome = ErrorCode | asyncio.Future[ErrorCode] | asyncio.Future[WritableTxnMarkerPartitionResult]


def handle(
    services: Services, context: RequestContext, request: WriteTxnMarkersRequest
) -> Steps[WriteTxnMarkersResponse]:
    _authorize(services, context)
    #: By producer, topic and partition: what is named twice is answered once, with what came last.
    outcomes: dict[int, dict[str, dict[int, _Outcome]]] = {}
    for marker in request.markers:
        yield None
        by_topic = outcomes.setdefault(marker.producer_id, {})
        for partition in (yield from _partitions(marker)):
            by_topic.setdefault(partition.topic, {})[partition.partition] = _write(services, marker, partition)
            yield from spent(_STEPS_OF_AN_APPEND)
    response = WriteTxnMarkersResponse(markers=[])
    for producer_id, by_topic in outcomes.items():
        yield None
        topics = []
        for name, by_number in by_topic.items():
            yield None
            results = []
            for number, outcome in by_number.items():
                yield None
                code = yield from _settled(outcome)
                results.append(WritableTxnMarkerPartitionResult(partition_index=number, error_code=code))
            topics.append(WritableTxnMarkerTopicResult(name=name, partitions=results))
        response.markers.append(WritableTxnMarkerResult(producer_id=producer_id, topics=topics))
    return response


def _partitions(marker: WritableTxnMarker) -> Steps[dict[TopicPartition, None]]:
    """Each once, as in Kafka, however often a marker names it."""
    named: dict[TopicPartition, None] = {}
    for topic in marker.topics:
        yield None
        for number in topic.partition_indexes:
            named[TopicPartition(topic.name, number)] = None
            yield None
    return named


def _authorize(services: Services, context: RequestContext) -> None:
    """Brokers may, and whoever may change the cluster: that is how a hanging transaction is aborted by hand."""
    operations = (AclOperation.ALTER, AclOperation.CLUSTER_ACTION)
    if not any(services.authorizer.is_allowed(context, each, Resource.CLUSTER, CLUSTER_NAME) for each in operations):
        raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def _write(services: Services, marker: WritableTxnMarker, name: TopicPartition) -> _Outcome:
    """Append a marker to one partition."""
    partition = services.replica_manager.get(name)
    if partition is None or partition.log is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if marker.producer_id < 0:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING  # there is no such producer
    written = TransactionMarker(
        marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.transaction_result
    )
    if name.topic == CONSUMER_OFFSETS:
        told = services.groups.complete_transaction(name.partition, written, marker.transaction_version)
        return told if isinstance(told, asyncio.Future) else ErrorCode.of(told.error_code)
    now_ms = services.runtime.clock.now_ms()
    replica_manager = services.replica_manager
    try:
        batch = build_marker(written, now_ms)
        offset = replica_manager.append_in_transaction(name, batch, None, now_ms, marker.transaction_version)
    except LogError as failure:
        return failure.code
    timeout_ms = services.settings.request_timeout_ms
    return asyncio.ensure_future(replica_manager.wait_for_high_watermark(name, offset, timeout_ms))


def _settled(outcome: _Outcome) -> Steps[ErrorCode]:
    told = outcome if isinstance(outcome, ErrorCode) else (yield from settled(outcome))
    code = told if isinstance(told, ErrorCode) else ErrorCode.of(told.error_code)
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _NOT_READY else code
