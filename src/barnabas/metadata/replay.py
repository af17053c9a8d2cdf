"""From one image to the next: what each kind of record changes.

This is the only place where metadata changes, for a node that starts, one that follows, and the controller that wrote
the records itself. A record that does not fit what came before means that the log is not what was written, and stops
the node: going on would let it differ from the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, TypeVar

from barnabas.base.errors import check
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.metadata.delta import ClusterDelta
from barnabas.metadata.image import (
    MIGRATING_DIRECTORY,
    BrokerEndpointImage,
    BrokerImage,
    ClusterImage,
    ConfigResource,
    PartitionImage,
    ResourceType,
    TopicImage,
)
from barnabas.wire.stored import cluster_metadata as log

K = TypeVar("K")
V = TypeVar("V")

_LEADER_STAYS: Final = -2
_RECOVERY_STATE_STAYS: Final = -1
_FENCE: Final = 1
_UNFENCE: Final = -1


class _Changing(dict[K, V]):
    """A mapping that is copied when it is first changed; until then everybody reads the old one."""

    __slots__ = ()


class ImageBuilder:
    """Applies records to an image and makes the next one.

    `build` may be called again after more records; `delta` tells what changed since the image that it began with. The
    image that it began with and those that it built stay as they are.
    """

    def __init__(self, image: ClusterImage) -> None:
        self._base = image
        self._features: Mapping[str, int] = image.features
        self._brokers: Mapping[int, BrokerImage] = image.brokers
        self._topics: Mapping[str, TopicImage] = image.topics
        self._topic_names: Mapping[Uuid, str] = image.topic_names
        self._configs: Mapping[ConfigResource, Mapping[str, str]] = image.configs
        self._kept: Mapping[tuple[Any, ...], log.MetadataRecord] = image.kept
        self._next_producer_id = image.next_producer_id
        self._pending = None if image.pending is None else list(image.pending)
        #: Partitions of topics that change, as lists: a large topic comes as thousands of records.
        self._open: dict[str, list[PartitionImage]] = {}
        self._deleted: dict[Uuid, TopicImage] = {}
        self._created: dict[str, None] = {}
        self._changed_partitions: dict[TopicPartition, None] = {}
        self._changed_configs: dict[ConfigResource, None] = {}
        self._changed_brokers: dict[int, None] = {}
        self._features_changed = False

    def replay(self, record: log.MetadataRecord) -> None:
        """Apply one record. Within a transaction it waits until the transaction ends."""
        kind = type(record)
        if kind is log.BeginTransactionRecord:
            check(self._pending is None, "a metadata transaction begins within another")
            self._pending = []
        elif kind is log.EndTransactionRecord:
            check(self._pending is not None, "a metadata transaction ends that has not begun")
            pending, self._pending = self._pending or [], None
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
        for name, partitions in self._open.items():
            topics = self._writable("_topics")
            topics[name] = replace(topics[name], partitions=tuple(partitions))
        self._open.clear()
        return ClusterImage(
            offset=offset,
            epoch=epoch,
            features=self._frozen("_features"),
            brokers=self._frozen("_brokers"),
            topics=self._frozen("_topics"),
            topic_names=self._frozen("_topic_names"),
            configs=self._frozen("_configs"),
            next_producer_id=self._next_producer_id,
            kept=self._frozen("_kept"),
            pending=None if self._pending is None else tuple(self._pending),
        )

    @property
    def delta(self) -> ClusterDelta:
        """What changed since the image that this builder began with."""
        return ClusterDelta(
            topics_deleted=tuple(self._deleted.values()),
            topics_created=tuple(self._created),
            partitions_changed=tuple(self._changed_partitions),
            configs_changed=tuple(self._changed_configs),
            brokers_changed=tuple(self._changed_brokers),
            features_changed=self._features_changed,
        )

    # What is shared with an image is copied before its first change; `build` shares it again.

    def _writable(self, attribute: str) -> dict[Any, Any]:
        mapping = getattr(self, attribute)
        if not isinstance(mapping, _Changing):
            mapping = _Changing(mapping)
            setattr(self, attribute, mapping)
        return mapping

    def _frozen(self, attribute: str) -> Mapping[Any, Any]:
        mapping = getattr(self, attribute)
        if isinstance(mapping, _Changing):
            mapping = MappingProxyType(mapping)
            setattr(self, attribute, mapping)
        frozen: Mapping[Any, Any] = mapping
        return frozen

    def _apply(self, record: log.MetadataRecord) -> None:
        handler = _HANDLERS.get(type(record))
        check(handler is not None, f"no state changes by a {type(record).__name__}: it cannot be replayed")
        if handler is not None:
            handler(self, record)

    # Topics

    def _topic(self, record: log.TopicRecord) -> None:
        check(record.name not in self._topics, f"topic {record.name}: created twice without being removed")
        check(record.topic_id not in self._topic_names, f"topic {record.name}: its id {record.topic_id} is taken")
        self._writable("_topics")[record.name] = TopicImage(record.name, record.topic_id, ())
        self._writable("_topic_names")[record.topic_id] = record.name
        self._open[record.name] = []
        self._created[record.name] = None

    def _remove_topic(self, record: log.RemoveTopicRecord) -> None:
        name = self._name_of(record.topic_id)
        self._writable("_topics").pop(name)
        self._writable("_topic_names").pop(record.topic_id)
        self._open.pop(name, None)
        before = self._base.topic_by_id(record.topic_id)
        if before is not None:
            self._deleted[before.topic_id] = before
        self._created.pop(name, None)
        self._changed_partitions = {each: None for each in self._changed_partitions if each.topic != name}
        resource = ConfigResource(ResourceType.TOPIC, name)
        if resource in self._configs:
            self._writable("_configs").pop(resource)
            self._changed_configs[resource] = None

    def _partition(self, record: log.PartitionRecord) -> None:
        name = self._name_of(record.topic_id)
        partitions = self._partitions(name)
        number = record.partition_id
        check(0 <= number <= len(partitions), f"{name}-{number}: partitions must come in order, {len(partitions)} next")
        image = PartitionImage(
            replicas=tuple(record.replicas),
            isr=tuple(record.isr),
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            leader_recovery_state=record.leader_recovery_state,
            removing_replicas=tuple(record.removing_replicas),
            adding_replicas=tuple(record.adding_replicas),
            directories=tuple(record.directories) or (MIGRATING_DIRECTORY,) * len(record.replicas),
            eligible_leader_replicas=tuple(record.eligible_leader_replicas or ()),
            last_known_elr=tuple(record.last_known_elr or ()),
        )
        if number == len(partitions):
            partitions.append(image)
        else:
            partitions[number] = image
        self._changed_partitions[TopicPartition(name, number)] = None

    def _partition_change(self, record: log.PartitionChangeRecord) -> None:
        name = self._name_of(record.topic_id)
        partitions = self._partitions(name)
        number = record.partition_id
        check(0 <= number < len(partitions), f"{name}-{number}: a change of a partition that does not exist")
        partitions[number] = changed_partition(partitions[number], record)
        self._changed_partitions[TopicPartition(name, number)] = None

    def _clear_elr(self, record: log.ClearElrRecord) -> None:
        if record.topic_name:
            check(
                record.topic_name in self._topics, f"topic {record.topic_name}: its ELRs are cleared, but it is unknown"
            )
        for name in [record.topic_name] if record.topic_name else list(self._topics):
            for number, partition in enumerate(self._partitions(name)):
                if partition.eligible_leader_replicas or partition.last_known_elr:
                    cleared = log.PartitionChangeRecord(
                        partition_id=number,
                        topic_id=self._topics[name].topic_id,
                        eligible_leader_replicas=[],
                        last_known_elr=[],
                    )
                    self._partition_change(cleared)

    def _name_of(self, topic_id: Uuid) -> str:
        name = self._topic_names.get(topic_id)
        check(name is not None, f"a record about the topic id {topic_id}, which does not exist")
        return name or ""

    def _partitions(self, name: str) -> list[PartitionImage]:
        partitions = self._open.get(name)
        if partitions is None:
            partitions = self._open[name] = list(self._topics[name].partitions)
        return partitions

    # Brokers

    def _register_broker(self, record: log.RegisterBrokerRecord) -> None:
        self._set_broker(
            BrokerImage(
                broker_id=record.broker_id,
                epoch=record.broker_epoch,
                incarnation_id=record.incarnation_id,
                endpoints=tuple(
                    BrokerEndpointImage(each.name, each.host, each.port, each.security_protocol)
                    for each in record.end_points
                ),
                features=MappingProxyType(
                    {each.name: (each.min_supported_version, each.max_supported_version) for each in record.features}
                ),
                rack=record.rack,
                is_fenced=record.fenced,
                in_controlled_shutdown=record.in_controlled_shutdown,
                log_dirs=tuple(record.log_dirs),
                cordoned_log_dirs=None if record.cordoned_log_dirs is None else tuple(record.cordoned_log_dirs),
            )
        )

    def _unregister_broker(self, record: log.UnregisterBrokerRecord) -> None:
        self._registered(record.broker_id, record.broker_epoch)
        self._writable("_brokers").pop(record.broker_id)
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
        broker = self._brokers.get(broker_id)
        check(broker is not None, f"broker {broker_id}: a record about it, but it is not registered")
        if broker is None:
            raise AssertionError  # check() has raised
        check(
            broker.epoch == epoch, f"broker {broker_id}: a record of epoch {epoch}, but it is in epoch {broker.epoch}"
        )
        return broker

    def _set_broker(self, broker: BrokerImage) -> None:
        self._writable("_brokers")[broker.broker_id] = broker
        self._changed_brokers[broker.broker_id] = None

    # Settings, features, producer ids

    def _config(self, record: log.ConfigRecord) -> None:
        resource = ConfigResource(record.resource_type, record.resource_name)
        settings = dict(self._configs.get(resource, ()))
        if record.value is None:
            settings.pop(record.name, None)
        else:
            settings[record.name] = record.value
        if settings:
            self._writable("_configs")[resource] = MappingProxyType(settings)
        else:
            self._writable("_configs").pop(resource, None)
        self._changed_configs[resource] = None

    def _feature_level(self, record: log.FeatureLevelRecord) -> None:
        if record.feature_level == 0:
            self._writable("_features").pop(record.name, None)
        else:
            self._writable("_features")[record.name] = record.feature_level
        self._features_changed = True

    def _producer_ids(self, record: log.ProducerIdsRecord) -> None:
        self._next_producer_id = record.next_producer_id

    # What is kept for later

    def _keep(self, record: log.MetadataRecord) -> None:
        self._writable("_kept")[kept_key(record)] = record

    def _drop(self, record: log.MetadataRecord) -> None:
        self._writable("_kept").pop(kept_key(record), None)

    def _client_quota(self, record: log.ClientQuotaRecord) -> None:
        (self._drop if record.remove else self._keep)(record)

    def _nothing(self, record: log.MetadataRecord) -> None:
        """It only moves the offset, or tells of ZooKeeper, which is gone."""


def changed_partition(partition: PartitionImage, change: log.PartitionChangeRecord) -> PartitionImage:
    """The partition after a change. Naming a leader, be it the same, begins a new leader epoch."""
    names_leader = change.leader != _LEADER_STAYS
    replicas = partition.replicas if change.replicas is None else tuple(change.replicas)
    directories = tuple(change.directories or ()) or partition.directories
    if len(directories) != len(replicas):
        directories = (MIGRATING_DIRECTORY,) * len(replicas)
    return PartitionImage(
        replicas=replicas,
        isr=partition.isr if change.isr is None else tuple(change.isr),
        leader=change.leader if names_leader else partition.leader,
        leader_epoch=partition.leader_epoch + names_leader,
        partition_epoch=partition.partition_epoch + 1,
        leader_recovery_state=partition.leader_recovery_state
        if change.leader_recovery_state == _RECOVERY_STATE_STAYS
        else change.leader_recovery_state,
        removing_replicas=partition.removing_replicas
        if change.removing_replicas is None
        else tuple(change.removing_replicas),
        adding_replicas=partition.adding_replicas if change.adding_replicas is None else tuple(change.adding_replicas),
        directories=directories,
        eligible_leader_replicas=partition.eligible_leader_replicas
        if change.eligible_leader_replicas is None
        else tuple(change.eligible_leader_replicas),
        last_known_elr=partition.last_known_elr if change.last_known_elr is None else tuple(change.last_known_elr),
    )


def kept_key(record: log.MetadataRecord) -> tuple[Any, ...]:
    """What a kept record is about; the record that removes it has the same key."""
    match record:
        case log.AccessControlEntryRecord(id=acl_id) | log.RemoveAccessControlEntryRecord(id=acl_id):
            return (log.AccessControlEntryRecord.TYPE, acl_id)
        case (
            log.UserScramCredentialRecord(name=user, mechanism=mechanism)
            | log.RemoveUserScramCredentialRecord(name=user, mechanism=mechanism)
        ):
            return (log.UserScramCredentialRecord.TYPE, user, mechanism)
        case log.DelegationTokenRecord(token_id=token_id) | log.RemoveDelegationTokenRecord(token_id=token_id):
            return (log.DelegationTokenRecord.TYPE, token_id)
        case log.RegisterControllerRecord(controller_id=controller_id):
            return (log.RegisterControllerRecord.TYPE, controller_id)
        case log.ClientQuotaRecord(entity=entity, key=key):
            who = tuple(sorted((each.entity_type, each.entity_name or "", each.entity_name is None) for each in entity))
            return (log.ClientQuotaRecord.TYPE, who, key)
    raise TypeError(f"a {type(record).__name__} is not kept")


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
    log.AccessControlEntryRecord: ImageBuilder._keep,
    log.RemoveAccessControlEntryRecord: ImageBuilder._drop,
    log.UserScramCredentialRecord: ImageBuilder._keep,
    log.RemoveUserScramCredentialRecord: ImageBuilder._drop,
    log.DelegationTokenRecord: ImageBuilder._keep,
    log.RemoveDelegationTokenRecord: ImageBuilder._drop,
    log.RegisterControllerRecord: ImageBuilder._keep,
    log.ClientQuotaRecord: ImageBuilder._client_quota,
    log.NoOpRecord: ImageBuilder._nothing,
    log.ZkMigrationStateRecord: ImageBuilder._nothing,
}
