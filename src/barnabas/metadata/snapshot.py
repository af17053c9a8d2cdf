"""The whole state as records, for a snapshot: replaying them gives the image again."""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.base.errors import check
from barnabas.base.ids import Uuid
from barnabas.metadata.access_images import (
    ClientQuotasImage,
    DelegationTokenData,
    ScramCredentialData,
    ScramUser,
    StandardAcl,
)
from barnabas.metadata.features import METADATA_VERSION
from barnabas.metadata.image import BrokerImage, ClusterImage, ControllerImage, FeaturesImage, PartitionImage
from barnabas.metadata.registrations import end_points, supported_features
from barnabas.wire.stored import cluster_metadata as log


def image_records(image: ClusterImage) -> Iterator[log.MetadataRecord]:
    """Records that bring about the image, in the order of Kafka's snapshots.

    The metadata.version comes first, since it says how to read the rest. There is no snapshot in the middle of a
    transaction: its records must stay in the log until it ends (`image.pending is None` tells when one can be taken).
    """
    check(image.pending is None, "a snapshot cannot be taken while a metadata transaction is open")
    yield from _features(image.features)
    yield from map(_broker_record, image.brokers.values())
    yield from map(controller_record, image.controllers.values())
    for topic in image.topics.values():
        yield log.TopicRecord(name=topic.name, topic_id=topic.topic_id)
        for number, partition in enumerate(topic.partitions):
            yield partition_record(topic.topic_id, number, partition)
    for resource, settings in image.configs.items():
        for name, value in settings.items():
            yield log.ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value)
    yield from _client_quotas(image.client_quotas)
    if image.next_producer_id > 0:
        yield log.ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id)
    yield from (acl_record(acl_id, acl) for acl_id, acl in image.acls.items())
    yield from (_scram_record(user, credential) for user, credential in image.scram.items())
    yield from (token_record(token_id, token) for token_id, token in image.delegation_tokens.items())


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


def _features(features: FeaturesImage) -> Iterator[log.MetadataRecord]:
    if features.metadata_version is not None:
        yield log.FeatureLevelRecord(name=METADATA_VERSION, feature_level=features.metadata_version)
    for name, level in features.items():
        if name != METADATA_VERSION:
            yield log.FeatureLevelRecord(name=name, feature_level=level)


def _broker_record(broker: BrokerImage) -> log.RegisterBrokerRecord:
    return log.RegisterBrokerRecord(
        broker_id=broker.broker_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=end_points(log.BrokerEndpoint, broker.endpoints),
        features=supported_features(log.BrokerFeature, broker.features),
        rack=broker.rack,
        fenced=broker.is_fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.log_dirs),
        cordoned_log_dirs=None if broker.cordoned_log_dirs is None else list(broker.cordoned_log_dirs),
    )


def controller_record(controller: ControllerImage) -> log.RegisterControllerRecord:
    return log.RegisterControllerRecord(
        controller_id=controller.controller_id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.zk_migration_ready,
        end_points=end_points(log.ControllerEndpoint, controller.endpoints),
        features=supported_features(log.ControllerFeature, controller.features),
    )


def _client_quotas(quotas: ClientQuotasImage) -> Iterator[log.ClientQuotaRecord]:
    for entity, values in quotas.items():
        for key, value in values.items():
            named = [log.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.names]
            yield log.ClientQuotaRecord(entity=named, key=key, value=value, remove=False)


def acl_record(acl_id: Uuid, acl: StandardAcl) -> log.AccessControlEntryRecord:
    return log.AccessControlEntryRecord(
        id=acl_id,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )


def _scram_record(user: ScramUser, credential: ScramCredentialData) -> log.UserScramCredentialRecord:
    return log.UserScramCredentialRecord(
        name=user.name,
        mechanism=user.mechanism,
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=credential.iterations,
    )


def token_record(token_id: str, token: DelegationTokenData) -> log.DelegationTokenRecord:
    return log.DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=list(token.renewers),
        issue_timestamp=token.issue_timestamp_ms,
        max_timestamp=token.max_timestamp_ms,
        expiration_timestamp=token.expiration_timestamp_ms,
        token_id=token_id,
    )
