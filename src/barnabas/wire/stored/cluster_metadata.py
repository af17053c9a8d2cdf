"""Records of `__cluster_metadata`: the cluster's whole state, as changes.

The type numbers are Kafka's and have gaps. Fence and unfence were replaced by BrokerRegistrationChange, the
ZooKeeper migration state is only read. A change leaves out what stays: null, or -2 for a leader, -1 for a recovery
state, 0 for a fencing.
"""

from barnabas.base.ids import Uuid
from barnabas.wire.schema import Struct, field
from barnabas.wire.stored.forms import FramedMessage
from barnabas.wire.types import Float64, Int8, Int16, Int32, Int64, UInt16


class MetadataRecord(FramedMessage):
    """Base of all records of the metadata log."""


class BrokerEndpoint(Struct):
    name: str
    host: str
    port: UInt16
    security_protocol: Int16


class BrokerFeature(Struct):
    name: str
    min_supported_version: Int16
    max_supported_version: Int16


class RegisterBrokerRecord(MetadataRecord, type_id=0, versions="0-4", flexible="0+"):
    broker_id: Int32
    is_migrating_zk_broker: bool = field("2+", default=False)
    incarnation_id: Uuid
    broker_epoch: Int64
    end_points: list[BrokerEndpoint]
    features: list[BrokerFeature]
    rack: str | None
    fenced: bool = field(default=True)
    in_controlled_shutdown: bool = field("1+", default=False)
    log_dirs: list[Uuid] = field("3+", tag=0, factory=list)
    cordoned_log_dirs: list[Uuid] | None = field("4+", tag=1, default=None)


class UnregisterBrokerRecord(MetadataRecord, type_id=1, versions="0", flexible="0+"):
    broker_id: Int32
    broker_epoch: Int64


class TopicRecord(MetadataRecord, type_id=2, versions="0", flexible="0+"):
    name: str
    topic_id: Uuid


class PartitionRecord(MetadataRecord, type_id=3, versions="0-2", flexible="0+"):
    partition_id: Int32 = field(default=-1)
    topic_id: Uuid
    replicas: list[Int32]
    isr: list[Int32]
    removing_replicas: list[Int32]
    adding_replicas: list[Int32]
    leader: Int32 = field(default=-1)
    leader_recovery_state: Int8 = field(tag=0, default=0)
    leader_epoch: Int32 = field(default=-1)
    partition_epoch: Int32 = field(default=-1)
    directories: list[Uuid] = field("1+", factory=list)
    eligible_leader_replicas: list[Int32] | None = field("2+", tag=1, default=None)
    last_known_elr: list[Int32] | None = field("2+", tag=2, default=None)


class ConfigRecord(MetadataRecord, type_id=4, versions="0", flexible="0+"):
    resource_type: Int8
    resource_name: str
    name: str
    value: str | None


class PartitionChangeRecord(MetadataRecord, type_id=5, versions="0-2", flexible="0+"):
    partition_id: Int32 = field(default=-1)
    topic_id: Uuid
    isr: list[Int32] | None = field(tag=0, default=None)
    leader: Int32 = field(tag=1, default=-2)
    replicas: list[Int32] | None = field(tag=2, default=None)
    removing_replicas: list[Int32] | None = field(tag=3, default=None)
    adding_replicas: list[Int32] | None = field(tag=4, default=None)
    leader_recovery_state: Int8 = field(tag=5, default=-1)
    directories: list[Uuid] | None = field("1+", tag=8, default=None)
    eligible_leader_replicas: list[Int32] | None = field("2+", tag=6, default=None)
    last_known_elr: list[Int32] | None = field("2+", tag=7, default=None)


class FenceBrokerRecord(MetadataRecord, type_id=7, versions="0", flexible="0+"):
    id: Int32
    epoch: Int64


class UnfenceBrokerRecord(MetadataRecord, type_id=8, versions="0", flexible="0+"):
    id: Int32
    epoch: Int64


class RemoveTopicRecord(MetadataRecord, type_id=9, versions="0", flexible="0+"):
    topic_id: Uuid


class DelegationTokenRecord(MetadataRecord, type_id=10, versions="0", flexible="0+"):
    owner: str
    requester: str
    renewers: list[str]
    issue_timestamp: Int64
    max_timestamp: Int64
    expiration_timestamp: Int64
    token_id: str


class UserScramCredentialRecord(MetadataRecord, type_id=11, versions="0", flexible="0+"):
    name: str
    mechanism: Int8
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: Int32


class FeatureLevelRecord(MetadataRecord, type_id=12, versions="0", flexible="0+"):
    name: str
    feature_level: Int16


class EntityData(Struct):
    entity_type: str
    entity_name: str | None


class ClientQuotaRecord(MetadataRecord, type_id=14, versions="0", flexible="0+"):
    entity: list[EntityData]
    key: str
    value: Float64
    remove: bool


class ProducerIdsRecord(MetadataRecord, type_id=15, versions="0", flexible="0+"):
    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)
    next_producer_id: Int64


class BrokerRegistrationChangeRecord(MetadataRecord, type_id=17, versions="0-3", flexible="0+"):
    broker_id: Int32
    broker_epoch: Int64
    fenced: Int8 = field(tag=0, default=0)
    in_controlled_shutdown: Int8 = field("1+", tag=1, default=0)
    log_dirs: list[Uuid] = field("2+", tag=2, factory=list)
    cordoned_log_dirs: list[Uuid] | None = field("3+", tag=3, default=None)


class AccessControlEntryRecord(MetadataRecord, type_id=18, versions="0", flexible="0+"):
    id: Uuid
    resource_type: Int8
    resource_name: str
    pattern_type: Int8
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


class RemoveAccessControlEntryRecord(MetadataRecord, type_id=19, versions="0", flexible="0+"):
    id: Uuid


class NoOpRecord(MetadataRecord, type_id=20, versions="0", flexible="0+"):
    pass


class ZkMigrationStateRecord(MetadataRecord, type_id=21, versions="0", flexible="0+"):
    zk_migration_state: Int8


class RemoveUserScramCredentialRecord(MetadataRecord, type_id=22, versions="0", flexible="0+"):
    name: str
    mechanism: Int8


class BeginTransactionRecord(MetadataRecord, type_id=23, versions="0", flexible="0+"):
    name: str | None = field(tag=0, default=None)


class EndTransactionRecord(MetadataRecord, type_id=24, versions="0", flexible="0+"):
    pass


class AbortTransactionRecord(MetadataRecord, type_id=25, versions="0", flexible="0+"):
    reason: str | None = field(tag=0, default=None)


class RemoveDelegationTokenRecord(MetadataRecord, type_id=26, versions="0", flexible="0+"):
    token_id: str


class ControllerEndpoint(Struct):
    name: str
    host: str
    port: UInt16
    security_protocol: Int16


class ControllerFeature(Struct):
    name: str
    min_supported_version: Int16
    max_supported_version: Int16


class RegisterControllerRecord(MetadataRecord, type_id=27, versions="0", flexible="0+"):
    controller_id: Int32
    incarnation_id: Uuid
    zk_migration_ready: bool
    end_points: list[ControllerEndpoint]
    features: list[ControllerFeature]


class ClearElrRecord(MetadataRecord, type_id=28, versions="0", flexible="0+"):
    topic_name: str
