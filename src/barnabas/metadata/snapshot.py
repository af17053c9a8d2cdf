"""The whole state as records, for a snapshot: replaying them gives the image again."""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.base.errors import check
from barnabas.base.ids import Uuid
from barnabas.metadata.features import METADATA_VERSION
from barnabas.metadata.image import BrokerImage, ClusterImage, PartitionImage
from barnabas.wire.stored import cluster_metadata as log


def image_records(image: ClusterImage) -> Iterator[log.MetadataRecord]:
    """Records that bring about the image, in the order of Kafka's snapshots.

    The metadata.version comes first, since it says how to read the rest. There is no snapshot in the middle of a
    transaction: its records must stay in the log until it ends (`image.pending is None` tells when one can be taken).
    """
    check(image.pending is None, "a snapshot cannot be taken while a metadata transaction is open")
    yield from _features(image)
    for broker in image.brokers.values():
        yield _broker_record(broker)
    yield from _kept(image, log.RegisterControllerRecord)
    for topic in image.topics.values():
        yield log.TopicRecord(name=topic.name, topic_id=topic.topic_id)
        for number, partition in enumerate(topic.partitions):
            yield partition_record(topic.topic_id, number, partition)
    for resource, settings in image.configs.items():
        for name, value in settings.items():
            yield log.ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value)
    yield from _kept(image, log.ClientQuotaRecord)
    if image.next_producer_id > 0:
        yield log.ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id)
    yield from _kept(image, log.AccessControlEntryRecord)
    yield from _kept(image, log.UserScramCredentialRecord)
    yield from _kept(image, log.DelegationTokenRecord)


def partition_record(topic_id: Uuid, number: int, partition: PartitionImage) -> log.PartitionRecord:
    """A partition as it stands. Lists that only newer versions of the record carry are left out when empty."""
    return log.PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories),
        eligible_leader_replicas=list(partition.eligible_leader_replicas) or None,
        last_known_elr=list(partition.last_known_elr) or None,
    )


def _features(image: ClusterImage) -> Iterator[log.MetadataRecord]:
    if METADATA_VERSION in image.features:
        yield log.FeatureLevelRecord(name=METADATA_VERSION, feature_level=image.features[METADATA_VERSION])
    for name, level in image.features.items():
        if name != METADATA_VERSION:
            yield log.FeatureLevelRecord(name=name, feature_level=level)


def _broker_record(broker: BrokerImage) -> log.RegisterBrokerRecord:
    return log.RegisterBrokerRecord(
        broker_id=broker.broker_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            log.BrokerEndpoint(
                name=each.listener, host=each.host, port=each.port, security_protocol=each.security_protocol
            )
            for each in broker.endpoints
        ],
        features=[
            log.BrokerFeature(name=name, min_supported_version=lowest, max_supported_version=highest)
            for name, (lowest, highest) in broker.features.items()
        ],
        rack=broker.rack,
        fenced=broker.is_fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.log_dirs),
        cordoned_log_dirs=None if broker.cordoned_log_dirs is None else list(broker.cordoned_log_dirs),
    )


def _kept(image: ClusterImage, kind: type[log.MetadataRecord]) -> Iterator[log.MetadataRecord]:
    return (record for key, record in image.kept.items() if key[0] == kind.TYPE)
