"""Replicas of new partitions: those that somebody chose are checked, and all become records."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.ids import Uuid
from barnabas.metadata.image import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, ClusterImage
from barnabas.wire.messages.create_topics import CreatableTopic
from barnabas.wire.stored.cluster_metadata import MetadataRecord, PartitionRecord


def active_brokers(image: ClusterImage) -> frozenset[int]:
    """The brokers that can be in an in-sync set."""
    return frozenset(
        broker_id
        for broker_id, broker in image.brokers.items()
        if not broker.is_fenced and not broker.in_controlled_shutdown
    )


def default_directory(image: ClusterImage, broker_id: int) -> Uuid:
    """Where a broker will put a new replica, as far as the controller can know it."""
    directories = image.brokers[broker_id].log_dirs
    if len(directories) == 1:
        return directories[0]
    return UNASSIGNED_DIRECTORY if directories else MIGRATING_DIRECTORY


def assignment_of_new_topic(image: ClusterImage, topic: CreatableTopic) -> list[list[int]]:
    """The replicas that the request gives to each partition, checked."""
    for number, what in ((topic.replication_factor, "replication factor"), (topic.num_partitions, "partition count")):
        if number != -1:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"topic {topic.name}: replicas are assigned by hand, so the {what} must be -1, not {number}",
            )
    by_number: dict[int, list[int]] = {}
    for each in topic.assignments:
        if each.partition_index in by_number:
            raise _bad_assignment(topic.name, each.partition_index, "is assigned twice")
        by_number[each.partition_index] = each.broker_ids
    if sorted(by_number) != list(range(len(by_number))):
        raise BrokerError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"topic {topic.name}: the partitions that are assigned must be numbered from 0 without gaps",
        )
    replicas = [by_number[number] for number in range(len(by_number))]
    check_assignment(image, topic.name, 0, replicas, len(replicas[0]))
    return replicas


def check_assignment(
    image: ClusterImage, topic: str, first: int, replicas: Sequence[Sequence[int]], replication_factor: int
) -> None:
    """Partitions from `first` on: known brokers, each once, as many as for the others, one of them able to lead."""
    active = active_brokers(image)
    for number, brokers in enumerate(replicas, first):
        if not brokers:
            raise _bad_assignment(topic, number, "has no replicas")
        for broker_id in brokers:
            if broker_id not in image.brokers:
                raise _bad_assignment(topic, number, f"is assigned to broker {broker_id}, which is not registered")
        if len(set(brokers)) < len(brokers):
            raise _bad_assignment(topic, number, f"names a broker twice: {list(brokers)}")
        if len(brokers) != replication_factor:
            raise _bad_assignment(topic, number, f"has {len(brokers)} replicas, but others have {replication_factor}")
        if active.isdisjoint(brokers):
            raise _bad_assignment(topic, number, "cannot be led: all its brokers are fenced or shutting down")


def partition_records(
    image: ClusterImage, topic_id: Uuid, first: int, replicas: Sequence[Sequence[int]]
) -> list[MetadataRecord]:
    """New partitions from `first` on. Brokers that are away are not in sync; the first that is there leads."""
    active = active_brokers(image)
    directories = {broker_id: default_directory(image, broker_id) for broker_id in image.brokers}
    records: list[MetadataRecord] = []
    for number, brokers in enumerate(replicas, first):
        in_sync = [broker_id for broker_id in brokers if broker_id in active]
        records.append(
            PartitionRecord(
                partition_id=number,
                topic_id=topic_id,
                replicas=list(brokers),
                isr=in_sync,
                removing_replicas=[],
                adding_replicas=[],
                leader=in_sync[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=[directories[broker_id] for broker_id in brokers],
            )
        )
    return records


def _bad_assignment(topic: str, number: int, what: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partition {topic}-{number} {what}")
