"""Directories of brokers: in which one each replica lies, and which of them have failed.

Since metadata.version 17 the controller knows it, so that a disk that fails takes only its own partitions along.
"""

from __future__ import annotations

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.ids import Uuid
from barnabas.metadata.assignments import active_brokers
from barnabas.metadata.brokers import registered_broker
from barnabas.metadata.controller_result import ControllerResult
from barnabas.metadata.elections import changes_when_replicas_leave
from barnabas.metadata.features import DIRECTORY_ASSIGNMENT
from barnabas.metadata.image import (
    MIGRATING_DIRECTORY,
    NO_LEADER,
    BrokerImage,
    ClusterImage,
    PlacedPartition,
    is_online,
)
from barnabas.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryResult,
    PartitionResult,
    TopicData,
    TopicResult,
)
from barnabas.wire.stored.cluster_metadata import MetadataRecord, PartitionChangeRecord


def assign_replicas_to_dirs(
    image: ClusterImage, request: AssignReplicasToDirsRequest
) -> ControllerResult[AssignReplicasToDirsResponse]:
    """A broker says where its replicas lie. Those in a directory that has failed lose their leader."""
    if (image.features.metadata_version or 0) < DIRECTORY_ASSIGNMENT:
        raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, "Directory assignment is not supported yet.")
    broker = registered_broker(image, request.broker_id, request.broker_epoch)
    records: list[MetadataRecord] = []
    results = []
    for directory in request.directories:
        topics = [_assign(image, broker, directory.id, topic, records) for topic in directory.topics]
        results.append(DirectoryResult(id=directory.id, topics=topics))
    return ControllerResult(AssignReplicasToDirsResponse(directories=results), records)


def _assign(
    image: ClusterImage, broker: BrokerImage, directory: Uuid, asked: TopicData, records: list[MetadataRecord]
) -> TopicResult:
    topic, broker_id = image.topic_by_id(asked.topic_id), broker.broker_id
    results = []
    for number in (each.partition_index for each in asked.partitions):
        code = ErrorCode.NONE
        if topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID
        elif not 0 <= number < len(topic.partitions):
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif broker_id not in topic.partitions[number].replicas:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            records += _move(image, broker, directory, PlacedPartition(topic, number, topic.partitions[number]))
        results.append(PartitionResult(partition_index=number, error_code=code))
    return TopicResult(topic_id=asked.topic_id, partitions=results)


def _move(image: ClusterImage, broker: BrokerImage, directory: Uuid, placed: PlacedPartition) -> list[MetadataRecord]:
    """The replica lies there from now on. A partition without leader gets one, if that was for want of the disk."""
    state, broker_id = placed.state, broker.broker_id
    change = PartitionChangeRecord(partition_id=placed.number, topic_id=placed.topic.topic_id)
    if state.directory_of(broker_id) != directory:
        known = state.directories or (MIGRATING_DIRECTORY,) * len(state.replicas)
        change.directories = [
            directory if replica == broker_id else each for replica, each in zip(state.replicas, known, strict=True)
        ]
    if not is_online(directory, broker.log_dirs):
        moved = [change] if change.directories is not None else []
        return [*moved, *changes_when_replicas_leave(image, broker_id, [placed])]
    if state.leader == NO_LEADER and broker_id in state.isr and broker_id in active_brokers(image):
        change.leader = broker_id
        return [change]
    return [change] if change.directories is not None else []
