"""Who leads a partition when brokers come and go: the changes that follow for partitions."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from barnabas.base.ids import Uuid
from barnabas.metadata.assignments import active_brokers
from barnabas.metadata.image import (
    NO_LEADER,
    ClusterImage,
    ConfigResourceType,
    PartitionImage,
    PlacedPartition,
    is_online,
)
from barnabas.metadata.options import ControllerOptions
from barnabas.metadata.topic_configs import topic_default_value
from barnabas.wire.stored.cluster_metadata import MetadataRecord, PartitionChangeRecord

_RECOVERING = 1
_UNCLEAN = "unclean.leader.election.enable"


def changes_when_broker_leaves(image: ClusterImage, broker_id: int) -> list[MetadataRecord]:
    """A broker is fenced, shuts down or has died: it leaves the in-sync sets and gives up what it leads.

    The last member of an in-sync set stays in it without leading: it has all that was acknowledged, so it leads again
    when it is back.
    """
    return changes_when_replicas_leave(image, broker_id, image.topics.hosted_by(broker_id))


def changes_when_directories_fail(
    image: ClusterImage, broker_id: int, directories: Collection[Uuid]
) -> list[MetadataRecord]:
    """Directories of a broker have failed: what lies in them is as if the broker had left."""
    lost = (each for each in image.topics.hosted_by(broker_id) if each.state.directory_of(broker_id) in directories)
    return changes_when_replicas_leave(image, broker_id, lost)


def changes_when_replicas_leave(
    image: ClusterImage, broker_id: int, partitions: Iterable[PlacedPartition]
) -> list[MetadataRecord]:
    """The replicas of a broker, of these partitions, cannot be used any more."""
    active = active_brokers(image) - {broker_id}
    changes: list[MetadataRecord] = []
    for topic, number, partition in partitions:
        remaining = [replica for replica in partition.isr if replica != broker_id]
        change = PartitionChangeRecord(partition_id=number, topic_id=topic.topic_id)
        if remaining and len(remaining) < len(partition.isr):
            change.isr = remaining
        if partition.leader == broker_id:
            in_sync = remaining or partition.isr
            may_lead = (each for each in partition.replicas if each in in_sync and each in active)
            change.leader = next((each for each in may_lead if _has_disk(image, partition, each)), NO_LEADER)
        if change.isr is not None or partition.leader == broker_id:
            changes.append(change)
    return changes


def changes_when_broker_comes(image: ClusterImage, options: ControllerOptions, broker_id: int) -> list[MetadataRecord]:
    """A broker is unfenced: it leads what has no leader, if it is in sync or the topic would rather lose data."""
    changes: list[MetadataRecord] = []
    for topic, number, partition in image.topics.without_leader_on(broker_id):
        if not _has_disk(image, partition, broker_id):
            continue
        if broker_id in partition.isr:
            changes.append(PartitionChangeRecord(partition_id=number, topic_id=topic.topic_id, leader=broker_id))
        elif _allows_unclean(image, options, topic.name):
            changes.append(
                PartitionChangeRecord(
                    partition_id=number,
                    topic_id=topic.topic_id,
                    isr=[broker_id],
                    leader=broker_id,
                    leader_recovery_state=_RECOVERING,
                )
            )
    return changes


def _has_disk(image: ClusterImage, partition: PartitionImage, broker_id: int) -> bool:
    return is_online(partition.directory_of(broker_id), image.brokers[broker_id].log_dirs)


def leads_anything(image: ClusterImage, broker_id: int) -> bool:
    return image.topics.leaders.has_any(broker_id)


def _allows_unclean(image: ClusterImage, options: ControllerOptions, topic: str) -> bool:
    own = image.config(ConfigResourceType.TOPIC, topic).get(_UNCLEAN)
    return (topic_default_value(_UNCLEAN, options) if own is None else own) == "true"
