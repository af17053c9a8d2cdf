"""Keys and values of `__consumer_offsets`: committed offsets and the groups of all kinds.

Written today: offsets as type 1 in version 4 (in version 1 if they have a time of expiry), classic groups as type 2 in
version 3. Types 3-8 and 16 are consumer groups of the new protocol, 10-15 share groups, 17-23 streams groups. 9 and 18
are not used.
"""

from barnabas.base.ids import Uuid
from barnabas.wire.schema import Struct, field
from barnabas.wire.stored.forms import KeyMessage, ValueMessage
from barnabas.wire.types import Int8, Int16, Int32, Int64, UInt16


class GroupKey(KeyMessage):
    """Base of the keys of the group coordinator."""


class GroupValue(ValueMessage):
    """Base of the values of the group coordinator."""


class LegacyOffsetCommitKey(GroupKey, type_id=0, versions="0"):
    group: str
    topic: str
    partition: Int32


class LegacyOffsetCommitValue(GroupValue, type_id=0, versions="0"):
    offset: Int64
    metadata: str
    commit_timestamp: Int64


class OffsetCommitKey(GroupKey, type_id=1, versions="0"):
    group: str
    topic: str
    partition: Int32


class OffsetCommitValue(GroupValue, type_id=1, versions="0-4", flexible="4+"):
    offset: Int64
    leader_epoch: Int32 = field("3+", default=-1, ignorable=True)
    metadata: str
    commit_timestamp: Int64
    expire_timestamp: Int64 = field("1", default=-1, ignorable=True)
    topic_id: Uuid = field("4+", tag=0, default=Uuid.ZERO, ignorable=True)


class GroupMetadataKey(GroupKey, type_id=2, versions="0"):
    group: str


class MemberMetadata(Struct):
    member_id: str
    group_instance_id: str | None = field("3+", default=None, ignorable=True)
    client_id: str
    client_host: str
    rebalance_timeout: Int32 = field("1+", default=-1, ignorable=True)
    session_timeout: Int32
    subscription: bytes
    assignment: bytes


class GroupMetadataValue(GroupValue, type_id=2, versions="0-4", flexible="4+"):
    protocol_type: str
    generation: Int32
    protocol: str | None
    leader: str | None
    current_state_timestamp: Int64 = field("2+", default=-1, ignorable=True)
    members: list[MemberMetadata]


class ConsumerGroupMetadataKey(GroupKey, type_id=3, versions="0"):
    group_id: str


class ConsumerGroupMetadataValue(GroupValue, type_id=3, versions="0", flexible="0+"):
    epoch: Int32
    metadata_hash: Int64 = field(tag=0, default=0)


class ConsumerGroupPartitionMetadataKey(GroupKey, type_id=4, versions="0"):
    group_id: str


class PartitionMetadata(Struct):
    partition: Int32
    racks: list[str]


class TopicMetadata(Struct):
    topic_id: Uuid
    topic_name: str
    num_partitions: Int32
    partition_metadata: list[PartitionMetadata]


class ConsumerGroupPartitionMetadataValue(GroupValue, type_id=4, versions="0", flexible="0+"):
    topics: list[TopicMetadata]


class ConsumerGroupMemberMetadataKey(GroupKey, type_id=5, versions="0"):
    group_id: str
    member_id: str


class ClassicProtocol(Struct):
    name: str
    metadata: bytes


class ClassicMemberMetadata(Struct):
    session_timeout_ms: Int32 = field(default=0)
    supported_protocols: list[ClassicProtocol] = field(factory=list)


class ConsumerGroupMemberMetadataValue(GroupValue, type_id=5, versions="0", flexible="0+"):
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: Int32 = field(default=-1)
    server_assignor: str | None
    classic_member_metadata: ClassicMemberMetadata | None = field(tag=0, factory=ClassicMemberMetadata)


class ConsumerGroupTargetAssignmentMetadataKey(GroupKey, type_id=6, versions="0"):
    group_id: str


class ConsumerGroupTargetAssignmentMetadataValue(GroupValue, type_id=6, versions="0", flexible="0+"):
    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(tag=0, default=0, ignorable=True)


class ConsumerGroupTargetAssignmentMemberKey(GroupKey, type_id=7, versions="0"):
    group_id: str
    member_id: str


class TopicPartition(Struct):
    topic_id: Uuid
    partitions: list[Int32]


class ConsumerGroupTargetAssignmentMemberValue(GroupValue, type_id=7, versions="0", flexible="0+"):
    topic_partitions: list[TopicPartition]


class ConsumerGroupCurrentMemberAssignmentKey(GroupKey, type_id=8, versions="0"):
    group_id: str
    member_id: str


class CurrentTopicPartitions(Struct):
    topic_id: Uuid
    partitions: list[Int32]
    assignment_epochs: list[Int32] | None = field(tag=0, factory=list)


class ConsumerGroupCurrentMemberAssignmentValue(GroupValue, type_id=8, versions="0", flexible="0+"):
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[CurrentTopicPartitions]
    partitions_pending_revocation: list[CurrentTopicPartitions]


class ShareGroupMemberMetadataKey(GroupKey, type_id=10, versions="0"):
    group_id: str
    member_id: str


class ShareGroupMemberMetadataValue(GroupValue, type_id=10, versions="0", flexible="0+"):
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]


class ShareGroupMetadataKey(GroupKey, type_id=11, versions="0"):
    group_id: str


class ShareGroupMetadataValue(GroupValue, type_id=11, versions="0", flexible="0+"):
    epoch: Int32
    metadata_hash: Int64


class ShareGroupTargetAssignmentMetadataKey(GroupKey, type_id=12, versions="0"):
    group_id: str


class ShareGroupTargetAssignmentMetadataValue(GroupValue, type_id=12, versions="0", flexible="0+"):
    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(tag=0, default=0, ignorable=True)


class ShareGroupTargetAssignmentMemberKey(GroupKey, type_id=13, versions="0"):
    group_id: str
    member_id: str


class ShareGroupTargetAssignmentMemberValue(GroupValue, type_id=13, versions="0", flexible="0+"):
    topic_partitions: list[TopicPartition]


class ShareGroupCurrentMemberAssignmentKey(GroupKey, type_id=14, versions="0"):
    group_id: str
    member_id: str


class TopicPartitions(Struct):
    topic_id: Uuid
    partitions: list[Int32]


class ShareGroupCurrentMemberAssignmentValue(GroupValue, type_id=14, versions="0", flexible="0+"):
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[TopicPartitions]


class ShareGroupStatePartitionMetadataKey(GroupKey, type_id=15, versions="0"):
    group_id: str


class TopicPartitionsInfo(Struct):
    topic_id: Uuid
    topic_name: str
    partitions: list[Int32]


class TopicInfo(Struct):
    topic_id: Uuid
    topic_name: str


class ShareGroupStatePartitionMetadataValue(GroupValue, type_id=15, versions="0", flexible="0+"):
    initializing_topics: list[TopicPartitionsInfo]
    initialized_topics: list[TopicPartitionsInfo]
    deleting_topics: list[TopicInfo]


class ConsumerGroupRegularExpressionKey(GroupKey, type_id=16, versions="0"):
    group_id: str
    regular_expression: str


class ConsumerGroupRegularExpressionValue(GroupValue, type_id=16, versions="0", flexible="0+"):
    topics: list[str]
    version: Int64
    timestamp: Int64


class StreamsGroupMetadataKey(GroupKey, type_id=17, versions="0"):
    group_id: str


class LastAssignmentConfig(Struct):
    key: str
    value: str


class StreamsGroupMetadataValue(GroupValue, type_id=17, versions="0", flexible="0+"):
    epoch: Int32
    metadata_hash: Int64
    validated_topology_epoch: Int32 = field(tag=0, default=-1)
    last_assignment_configs: list[LastAssignmentConfig] | None = field(tag=1, factory=list)


class StreamsGroupMemberMetadataKey(GroupKey, type_id=19, versions="0"):
    group_id: str
    member_id: str


class Endpoint(Struct):
    host: str
    port: UInt16


class KeyValue(Struct):
    key: str
    value: str


class StreamsGroupMemberMetadataValue(GroupValue, type_id=19, versions="0", flexible="0+"):
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: Int32 = field(default=-1)
    topology_epoch: Int32
    process_id: str
    user_endpoint: Endpoint | None = field(default=None)
    client_tags: list[KeyValue]


class StreamsGroupTargetAssignmentMetadataKey(GroupKey, type_id=20, versions="0"):
    group_id: str


class StreamsGroupTargetAssignmentMetadataValue(GroupValue, type_id=20, versions="0", flexible="0+"):
    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(tag=0, default=0, ignorable=True)


class StreamsGroupTargetAssignmentMemberKey(GroupKey, type_id=21, versions="0"):
    group_id: str
    member_id: str


class TaskIds(Struct):
    subtopology_id: str
    partitions: list[Int32]


class StreamsGroupTargetAssignmentMemberValue(GroupValue, type_id=21, versions="0", flexible="0+"):
    active_tasks: list[TaskIds]
    standby_tasks: list[TaskIds]
    warmup_tasks: list[TaskIds]


class StreamsGroupCurrentMemberAssignmentKey(GroupKey, type_id=22, versions="0"):
    group_id: str
    member_id: str


class CurrentTaskIds(Struct):
    subtopology_id: str
    partitions: list[Int32]
    assignment_epochs: list[Int32] | None = field(tag=0, factory=list)


class StreamsGroupCurrentMemberAssignmentValue(GroupValue, type_id=22, versions="0", flexible="0+"):
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    active_tasks: list[CurrentTaskIds]
    standby_tasks: list[CurrentTaskIds]
    warmup_tasks: list[CurrentTaskIds]
    active_tasks_pending_revocation: list[CurrentTaskIds]
    standby_tasks_pending_revocation: list[CurrentTaskIds]
    warmup_tasks_pending_revocation: list[CurrentTaskIds]


class StreamsGroupTopologyKey(GroupKey, type_id=23, versions="0"):
    group_id: str


class TopicConfig(Struct):
    key: str
    value: str


class TopologyTopicInfo(Struct):
    name: str
    partitions: Int32
    replication_factor: Int16
    topic_configs: list[TopicConfig]


class CopartitionGroup(Struct):
    source_topics: list[Int16]
    source_topic_regex: list[Int16]
    repartition_source_topics: list[Int16]


class Subtopology(Struct):
    subtopology_id: str
    source_topics: list[str]
    source_topic_regex: list[str]
    state_changelog_topics: list[TopologyTopicInfo]
    repartition_sink_topics: list[str]
    repartition_source_topics: list[TopologyTopicInfo]
    copartition_groups: list[CopartitionGroup]


class StreamsGroupTopologyValue(GroupValue, type_id=23, versions="0", flexible="0+"):
    epoch: Int32
    subtopologies: list[Subtopology]
