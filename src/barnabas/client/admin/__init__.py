"""Administration of a cluster: `Admin` for asyncio, `barnabas.client.admin.sync_admin.Admin` without, and the types of
their arguments and results.
"""

from __future__ import annotations

from barnabas.client.admin.acls import Acl, AclFilter, AclOperation, AclPermission, PatternType, ResourceType
from barnabas.client.admin.admin import Admin
from barnabas.client.admin.cluster import (
    BrokerReplica,
    ClusterDescription,
    FeatureRange,
    FeaturesDescription,
    FeatureUpdate,
    FeatureUpgrade,
    LogDirDescription,
    ReplicaInfo,
)
from barnabas.client.admin.configs import (
    AlterConfig,
    ConfigEntry,
    ConfigOp,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
)
from barnabas.client.admin.group_descriptions import (
    GroupDescription,
    GroupState,
    GroupType,
    MemberDescription,
    StreamsTasks,
)
from barnabas.client.admin.groups import GroupListing
from barnabas.client.admin.offsets import ListedOffset, OffsetSpec
from barnabas.client.admin.quorum import Endpoint, QuorumInfo, QuorumReplica
from barnabas.client.admin.quotas import QuotaEntity, QuotaFilter, QuotaName
from barnabas.client.admin.reassignments import ElectionType, PartitionReassignment
from barnabas.client.admin.scram import ScramCredentialInfo, ScramDeletion, ScramMechanism, ScramUpsertion
from barnabas.client.admin.share_groups import SharePartitionOffset
from barnabas.client.admin.tokens import DelegationToken, Principal
from barnabas.client.admin.topic_descriptions import TopicDescription, TopicPartitionInfo
from barnabas.client.admin.topics import CreatedTopic, NewPartitions, NewTopic, TopicListing
from barnabas.client.admin.transactions import (
    ProducerIdAndEpoch,
    ProducerState,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from barnabas.client.core.consuming.offsets import OffsetAndMetadata

__all__ = [
    "Acl",
    "AclFilter",
    "AclOperation",
    "AclPermission",
    "Admin",
    "AlterConfig",
    "BrokerReplica",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigOp",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "CreatedTopic",
    "DelegationToken",
    "ElectionType",
    "Endpoint",
    "FeatureRange",
    "FeatureUpdate",
    "FeatureUpgrade",
    "FeaturesDescription",
    "GroupDescription",
    "GroupListing",
    "GroupState",
    "GroupType",
    "ListedOffset",
    "LogDirDescription",
    "MemberDescription",
    "NewPartitions",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetSpec",
    "PartitionReassignment",
    "PatternType",
    "Principal",
    "ProducerIdAndEpoch",
    "ProducerState",
    "QuorumInfo",
    "QuorumReplica",
    "QuotaEntity",
    "QuotaFilter",
    "QuotaName",
    "ReplicaInfo",
    "ResourceType",
    "ScramCredentialInfo",
    "ScramDeletion",
    "ScramMechanism",
    "ScramUpsertion",
    "SharePartitionOffset",
    "StreamsTasks",
    "TopicDescription",
    "TopicListing",
    "TopicPartitionInfo",
    "TransactionDescription",
    "TransactionListing",
    "TransactionState",
]
