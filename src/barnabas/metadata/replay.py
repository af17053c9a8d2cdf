"""From one image to the next: what each kind of record changes.

This is the only place where metadata changes, for a node that starts, one that follows, and the controller that wrote
the records itself. A record that does not fit what came before means that the log is not what was written, and stops
the node: going on would let it differ from the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from barnabas.base.errors import InvariantError, check, known
from barnabas.base.ids import Uuid
from barnabas.metadata.access_images import (
    ClientQuotaEntity,
    DelegationTokenData,
    ScramCredentialData,
    ScramUser,
    StandardAcl,
)
from barnabas.metadata.delta import ClusterDelta
from barnabas.metadata.image import (
    BrokerEndpointImage,
    BrokerImage,
    ClusterImage,
    ConfigResource,
    ConfigResourceType,
    ControllerImage,
)
from barnabas.metadata.topics_delta import TopicsDelta
from barnabas.wire.stored import cluster_metadata as log

_FENCE: Final = 1


class ImageBuilder:
    """Applies records to an image and makes the next one.

    `build` may be called again after more records; `delta` tells what changed since the image that it began with. The
    image that it began with and those that it built stay as they are.
    """

    def __init__(self, image: ClusterImage) -> None:
        self._topics = TopicsDelta(image.topics)
        self._features = image.features
        self._brokers = image.brokers
        self._controllers = image.controllers
        self._configs = image.configs
        self._client_quotas = image.client_quotas
        self._next_producer_id = image.next_producer_id
        self._acls = image.acls
        self._scram = image.scram
        self._delegation_tokens = image.delegation_tokens
        self._pending = None if image.pending is None else list(image.pending)
        self._changed_configs: dict[ConfigResource, None] = {}
        self._changed_brokers: dict[int, None] = {}
        self._features_changed = False
        self._changed_acls: dict[Uuid, None] = {}

    def replay(self, record: log.MetadataRecord) -> None:
        """Apply one record. Within a transaction it waits until the transaction ends."""
        kind = type(record)
        if kind is log.BeginTransactionRecord:
            check(self._pending is None, "a metadata transaction begins within another")
            self._pending = []
        elif kind is log.EndTransactionRecord:
            pending = known(self._pending, "a metadata transaction ends that has not begun")
            self._pending = None
            for each in pending:
                self._apply(each)
        elif kind is log.AbortTransactionRecord:
            check(self._pending is not None, "a metadata transaction is aborted that has not begun")
            self._pending = None
        elif self._pending is not None:
            self._pending.append(record)
        else:
            self._apply(record)

    @property
    def in_transaction(self) -> bool:
        """Whether a metadata transaction has begun and not ended: its records do not count yet."""
        return self._pending is not None

    def build(self, offset: int, epoch: int) -> ClusterImage:
        """The image as of the record at `offset`, which the leader of `epoch` wrote."""
        return ClusterImage(
            offset=offset,
            epoch=epoch,
            features=self._features,
            brokers=self._brokers,
            controllers=self._controllers,
            topics=self._topics.build(),
            configs=self._configs,
            client_quotas=self._client_quotas,
            next_producer_id=self._next_producer_id,
            acls=self._acls,
            scram=self._scram,
            delegation_tokens=self._delegation_tokens,
            pending=None if self._pending is None else tuple(self._pending),
        )

    @property
    def delta(self) -> ClusterDelta:
        """What changed since the image that this builder began with."""
        return ClusterDelta(
            topics_deleted=self._topics.deleted,
            topics_created=self._topics.created,
            partitions_changed=self._topics.partitions_changed,
            configs_changed=tuple(self._changed_configs),
            brokers_changed=tuple(self._changed_brokers),
            features_changed=self._features_changed,
            acls_changed=tuple(self._changed_acls),
        )

    def _apply(self, record: log.MetadataRecord) -> None:
        handler = _HANDLERS.get(type(record))
        if handler is None:
            raise InvariantError(f"no state changes by a {type(record).__name__}: it cannot be replayed")
        handler(self, record)

    # Topics

    def _topic(self, record: log.TopicRecord) -> None:
        self._topics.create(record)

    def _remove_topic(self, record: log.RemoveTopicRecord) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, self._topics.remove(record.topic_id))
        if resource in self._configs:
            self._configs = self._configs.delete(resource)
            self._changed_configs[resource] = None

    def _partition(self, record: log.PartitionRecord) -> None:
        self._topics.set_partition(record)

    def _partition_change(self, record: log.PartitionChangeRecord) -> None:
        self._topics.change_partition(record)

    def _clear_elr(self, record: log.ClearElrRecord) -> None:
        self._topics.clear_elr(record)

    # Brokers and controllers

    def _register_broker(self, record: log.RegisterBrokerRecord) -> None:
        self._set_broker(
            BrokerImage(
                broker_id=record.broker_id,
                epoch=record.broker_epoch,
                incarnation_id=record.incarnation_id,
                endpoints=_endpoints(record.end_points),
                features=_supported(record.features),
                rack=record.rack,
                is_fenced=record.fenced,
                in_controlled_shutdown=record.in_controlled_shutdown,
                log_dirs=tuple(record.log_dirs),
                cordoned_log_dirs=None if record.cordoned_log_dirs is None else tuple(record.cordoned_log_dirs),
            )
        )

    def _unregister_broker(self, record: log.UnregisterBrokerRecord) -> None:
        self._registered(record.broker_id, record.broker_epoch)
        self._brokers = self._brokers.delete(record.broker_id)
        self._changed_brokers[record.broker_id] = None

    def _change_broker(self, record: log.BrokerRegistrationChangeRecord) -> None:
        broker = self._registered(record.broker_id, record.broker_epoch)
        self._set_broker(
            replace(
                broker,
                is_fenced=broker.is_fenced if record.fenced == 0 else record.fenced == _FENCE,
                in_controlled_shutdown=broker.in_controlled_shutdown or record.in_controlled_shutdown == 1,
                log_dirs=tuple(record.log_dirs) or broker.log_dirs,
                cordoned_log_dirs=broker.cordoned_log_dirs
                if record.cordoned_log_dirs is None
                else tuple(record.cordoned_log_dirs),
            )
        )

    def _fence_broker(self, record: log.FenceBrokerRecord) -> None:
        self._set_broker(replace(self._registered(record.id, record.epoch), is_fenced=True))

    def _unfence_broker(self, record: log.UnfenceBrokerRecord) -> None:
        self._set_broker(replace(self._registered(record.id, record.epoch), is_fenced=False))

    def _registered(self, broker_id: int, epoch: int) -> BrokerImage:
        text = f"broker {broker_id}: a record about it, but it is not registered"
        broker = known(self._brokers.get(broker_id), text)
        check(
            broker.epoch == epoch, f"broker {broker_id}: a record of epoch {epoch}, but it is in epoch {broker.epoch}"
        )
        return broker

    def _set_broker(self, broker: BrokerImage) -> None:
        self._brokers = self._brokers.set(broker.broker_id, broker)
        self._changed_brokers[broker.broker_id] = None

    def _register_controller(self, record: log.RegisterControllerRecord) -> None:
        controller = ControllerImage(
            controller_id=record.controller_id,
            incarnation_id=record.incarnation_id,
            zk_migration_ready=record.zk_migration_ready,
            endpoints=_endpoints(record.end_points),
            features=_supported(record.features),
        )
        self._controllers = self._controllers.set(controller.controller_id, controller)

    # Settings, features, producer ids

    def _config(self, record: log.ConfigRecord) -> None:
        resource = ConfigResource(record.resource_type, record.resource_name)
        settings = dict(self._configs.get(resource, ()))
        if record.value is None:
            settings.pop(record.name, None)
        else:
            settings[record.name] = record.value
        if settings:
            self._configs = self._configs.set(resource, MappingProxyType(settings))
        else:
            self._configs = self._configs.delete(resource)
        self._changed_configs[resource] = None

    def _feature_level(self, record: log.FeatureLevelRecord) -> None:
        if record.feature_level == 0:
            self._features = self._features.delete(record.name)
        else:
            self._features = self._features.set(record.name, record.feature_level)
        self._features_changed = True

    def _producer_ids(self, record: log.ProducerIdsRecord) -> None:
        self._next_producer_id = record.next_producer_id

    # Who may do what, and how much

    def _acl(self, record: log.AccessControlEntryRecord) -> None:
        acl = StandardAcl(
            resource_type=record.resource_type,
            resource_name=record.resource_name,
            pattern_type=record.pattern_type,
            principal=record.principal,
            host=record.host,
            operation=record.operation,
            permission_type=record.permission_type,
        )
        self._acls = self._acls.set(record.id, acl)
        self._changed_acls[record.id] = None

    def _remove_acl(self, record: log.RemoveAccessControlEntryRecord) -> None:
        self._acls = self._acls.delete(record.id)
        self._changed_acls[record.id] = None

    def _scram_credential(self, record: log.UserScramCredentialRecord) -> None:
        credential = ScramCredentialData(record.salt, record.stored_key, record.server_key, record.iterations)
        self._scram = self._scram.set(ScramUser(record.name, record.mechanism), credential)

    def _remove_scram_credential(self, record: log.RemoveUserScramCredentialRecord) -> None:
        self._scram = self._scram.delete(ScramUser(record.name, record.mechanism))

    def _delegation_token(self, record: log.DelegationTokenRecord) -> None:
        token = DelegationTokenData(
            owner=record.owner,
            requester=record.requester,
            renewers=tuple(record.renewers),
            issue_timestamp_ms=record.issue_timestamp,
            max_timestamp_ms=record.max_timestamp,
            expiration_timestamp_ms=record.expiration_timestamp,
        )
        self._delegation_tokens = self._delegation_tokens.set(record.token_id, token)

    def _remove_delegation_token(self, record: log.RemoveDelegationTokenRecord) -> None:
        self._delegation_tokens = self._delegation_tokens.delete(record.token_id)

    def _client_quota(self, record: log.ClientQuotaRecord) -> None:
        entity = ClientQuotaEntity(tuple((each.entity_type, each.entity_name) for each in record.entity))
        quotas = dict(self._client_quotas.get(entity, {}))
        if record.remove:
            quotas.pop(record.key, None)
        else:
            quotas[record.key] = record.value
        if quotas:
            self._client_quotas = self._client_quotas.set(entity, MappingProxyType(quotas))
        else:
            self._client_quotas = self._client_quotas.delete(entity)

    def _nothing(self, record: log.MetadataRecord) -> None:
        """It only moves the offset, or tells of ZooKeeper, which is gone."""


def _endpoints(given: Sequence[log.BrokerEndpoint | log.ControllerEndpoint]) -> tuple[BrokerEndpointImage, ...]:
    return tuple(BrokerEndpointImage(each.name, each.host, each.port, each.security_protocol) for each in given)


def _supported(given: Sequence[log.BrokerFeature | log.ControllerFeature]) -> Mapping[str, tuple[int, int]]:
    return MappingProxyType({each.name: (each.min_supported_version, each.max_supported_version) for each in given})


_HANDLERS: Final[Mapping[type[log.MetadataRecord], Callable[[ImageBuilder, Any], None]]] = {
    log.TopicRecord: ImageBuilder._topic,
    log.RemoveTopicRecord: ImageBuilder._remove_topic,
    log.PartitionRecord: ImageBuilder._partition,
    log.PartitionChangeRecord: ImageBuilder._partition_change,
    log.ClearElrRecord: ImageBuilder._clear_elr,
    log.RegisterBrokerRecord: ImageBuilder._register_broker,
    log.UnregisterBrokerRecord: ImageBuilder._unregister_broker,
    log.BrokerRegistrationChangeRecord: ImageBuilder._change_broker,
    log.FenceBrokerRecord: ImageBuilder._fence_broker,
    log.UnfenceBrokerRecord: ImageBuilder._unfence_broker,
    log.ConfigRecord: ImageBuilder._config,
    log.FeatureLevelRecord: ImageBuilder._feature_level,
    log.ProducerIdsRecord: ImageBuilder._producer_ids,
    log.AccessControlEntryRecord: ImageBuilder._acl,
    log.RemoveAccessControlEntryRecord: ImageBuilder._remove_acl,
    log.UserScramCredentialRecord: ImageBuilder._scram_credential,
    log.RemoveUserScramCredentialRecord: ImageBuilder._remove_scram_credential,
    log.DelegationTokenRecord: ImageBuilder._delegation_token,
    log.RemoveDelegationTokenRecord: ImageBuilder._remove_delegation_token,
    log.RegisterControllerRecord: ImageBuilder._register_controller,
    log.ClientQuotaRecord: ImageBuilder._client_quota,
    log.NoOpRecord: ImageBuilder._nothing,
    log.ZkMigrationStateRecord: ImageBuilder._nothing,
}
