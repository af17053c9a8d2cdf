"""A leader proposes another in-sync set for a partition: who may be in it, and what came of it.

The epochs in the request say what the leader knew. If it knew less than the controller, it is refused, and asks again
once it has caught up; if it knew more, this is not the active controller any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.log_context import logger
from barnabas.metadata.brokers import registered_broker
from barnabas.metadata.controller_result import ControllerResult
from barnabas.metadata.elections import PartitionChanges
from barnabas.metadata.image import LOST_DIRECTORY, ClusterImage, PartitionImage, PlacedPartition
from barnabas.metadata.options import ControllerOptions
from barnabas.metadata.partition_changes import NO_LEADER_CHANGE, RECOVERED, RECOVERING
from barnabas.metadata.topics_delta import changed_partition
from barnabas.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    PartitionResult,
    TopicResult,
)
from barnabas.wire.stored.cluster_metadata import MetadataRecord

_log = logger("barnabas.controller")

#: Before it, members of the in-sync set are named without their epochs.
_FIRST_WITH_BROKER_EPOCHS: Final = 3
_ANY_EPOCH: Final = -1


def alter_partition(
    image: ClusterImage, options: ControllerOptions, request: AlterPartitionRequest, version: int
) -> ControllerResult[AlterPartitionResponse]:
    """Each partition is changed or refused by itself. Raises STALE_BROKER_EPOCH for a leader of a former life."""
    registered_broker(image, request.broker_id, request.broker_epoch)
    changes = PartitionChanges(image, options)
    records: list[MetadataRecord] = []
    topics = []
    for asked in request.topics:
        topic = image.topic_by_id(asked.topic_id)
        results = []
        for data in asked.partitions:
            if version < _FIRST_WITH_BROKER_EPOCHS:
                data.new_isr_with_epochs = [BrokerState(broker_id=each) for each in data.new_isr]
            if topic is None:
                results.append(_refused(data, ErrorCode.UNKNOWN_TOPIC_ID))
            elif not 0 <= data.partition_index < len(topic.partitions):
                results.append(_refused(data, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            else:
                state = topic.partitions[data.partition_index]
                placed = PlacedPartition(topic, data.partition_index, state)
                results.append(_alter(image, changes, request.broker_id, placed, data, records))
        topics.append(TopicResult(topic_id=asked.topic_id, partitions=results))
    return ControllerResult(AlterPartitionResponse(topics=topics), records)


def _alter(
    image: ClusterImage,
    changes: PartitionChanges,
    broker_id: int,
    placed: PlacedPartition,
    data: PartitionData,
    records: list[MetadataRecord],
) -> PartitionResult:
    code = _problem(image, broker_id, placed, data)
    if code is not ErrorCode.NONE:
        return _refused(data, code)
    builder = changes.builder(placed)
    builder.isr = [each.broker_id for each in data.new_isr_with_epochs]
    builder.leader_recovery_state = data.leader_recovery_state
    change = builder.build()
    state = placed.state
    if change is not None:
        records.append(change)
        state = changed_partition(state, change)
        if change.leader not in (NO_LEADER_CHANGE, broker_id):
            # The change completed a reassignment, for instance, in which the leader is not needed any more.
            return _refused(data, ErrorCode.NEW_LEADER_ELECTED)
    return PartitionResult(
        partition_index=placed.number,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        leader_recovery_state=state.leader_recovery_state,
        partition_epoch=state.partition_epoch,
    )


def _problem(image: ClusterImage, broker_id: int, placed: PlacedPartition, data: PartitionData) -> ErrorCode:
    state, isr = placed.state, [each.broker_id for each in data.new_isr_with_epochs]
    if data.leader_epoch > state.leader_epoch or data.partition_epoch > state.partition_epoch:
        return ErrorCode.NOT_CONTROLLER
    if data.leader_epoch < state.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != state.leader:
        return ErrorCode.INVALID_REQUEST
    if data.partition_epoch < state.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    is_isr = set(isr) <= set(state.replicas) and len(set(isr)) == len(isr) and broker_id in isr
    if not is_isr or not _may_become(state.leader_recovery_state, data.leader_recovery_state, isr):
        return ErrorCode.INVALID_REQUEST
    ineligible = _ineligible(image, state, data.new_isr_with_epochs)
    if ineligible:
        _log.info(
            "The in-sync replicas of %s-%d cannot be %s: %s",
            placed.topic.name,
            placed.number,
            isr,
            "; ".join(ineligible),
        )
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _may_become(before: int, after: int, isr: Sequence[int]) -> bool:
    """A leader that recovers is alone in sync, and recovers once only."""
    if after == RECOVERING:
        return len(isr) == 1 and before == RECOVERING
    return after == RECOVERED


def _ineligible(image: ClusterImage, state: PartitionImage, isr: Sequence[BrokerState]) -> list[str]:
    """Who cannot be in an in-sync set, and why. An epoch that is another's means that the broker restarted since it
    fetched, and may have lost what it had. So has one that told of its replica as lost, which Kafka would let in: what
    a leader proposes may stand on a fetch from before."""
    reasons = []
    for each in isr:
        broker = image.brokers.get(each.broker_id)
        if broker is None:
            reasons.append(f"{each.broker_id} is not registered")
        elif broker.in_controlled_shutdown:
            reasons.append(f"{each.broker_id} is shutting down")
        elif broker.is_fenced:
            reasons.append(f"{each.broker_id} is fenced")
        elif each.broker_epoch not in (_ANY_EPOCH, broker.epoch):
            reasons.append(f"{each.broker_id} is in epoch {broker.epoch}, not {each.broker_epoch}")
        elif state.directory_of(each.broker_id) == LOST_DIRECTORY:
            reasons.append(f"{each.broker_id} has lost its replica")
    return reasons


def _refused(data: PartitionData, code: ErrorCode) -> PartitionResult:
    return PartitionResult(
        partition_index=data.partition_index, error_code=code, leader_id=0, leader_epoch=0, isr=[], partition_epoch=0
    )
