"""Directories of brokers: in which one each replica lies, and which of them have failed.

Since metadata.version 17 the controller knows it, so that a disk that fails takes only its own partitions along.
"""

from __future__ import annotations

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.ids import Uuid
from barnabas.metadata.brokers import registered_broker
from barnabas.metadata.controller_result import ControllerResult
from barnabas.metadata.elections import PartitionChanges
from barnabas.metadata.features import DIRECTORY_ASSIGNMENT
from barnabas.metadata.image import BrokerImage, ClusterImage, PlacedPartition, is_online
from barnabas.metadata.options import ControllerOptions
from barnabas.metadata.partition_changes import Election
from barnabas.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryResult,
    PartitionResult,
    TopicData,
    TopicResult,
)
from barnabas.wire.stored.cluster_metadata import MetadataRecord


def assign_replicas_to_dirs(
    image: ClusterImage, options: ControllerOptions, request: AssignReplicasToDirsRequest
) -> ControllerResult[AssignReplicasToDirsResponse]:
    """A broker says where its replicas lie. Those in a directory that has failed lose their leader."""
    if (image.features.metadata_version or 0) < DIRECTORY_ASSIGNMENT:
        raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, "Directory assignment is not supported yet.")
    broker = registered_broker(image, request.broker_id, request.broker_epoch)
    records: list[MetadataRecord] = []
    results = []
    for directory in request.directories:
        topics = [_assign(image, options, broker, directory.id, topic, records) for topic in directory.topics]
        results.append(DirectoryResult(id=directory.id, topics=topics))
    return ControllerResult(AssignReplicasToDirsResponse(directories=results), records)


def _assign(
    image: ClusterImage,
    options: ControllerOptions,
    broker: BrokerImage,
    directory: Uuid,
    asked: TopicData,
    records: list[MetadataRecord],
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
            placed = PlacedPartition(topic, number, topic.partitions[number])
            records += _move(image, options, broker, directory, placed)
        results.append(PartitionResult(partition_index=number, error_code=code))
    return TopicResult(topic_id=asked.topic_id, partitions=results)


def _move(
    image: ClusterImage, options: ControllerOptions, broker: BrokerImage, directory: Uuid, placed: PlacedPartition
) -> list[MetadataRecord]:
    """The replica lies there from now on. In a directory that has failed it cannot lead; in another one it can, which
    gives a partition a leader that had none for want of the disk."""
    has_failed = not is_online(directory, broker.log_dirs)
    changes = PartitionChanges(image, options, removed=broker.broker_id if has_failed else None)
    election = None if has_failed else Election.ONLINE
    change = changes.builder(placed, election, {broker.broker_id: directory}).build()
    return [] if change is None else [change]
