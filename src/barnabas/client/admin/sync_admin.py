"""The admin for programs without asyncio.

Made by `scripts/sync_admin` from the admin for asyncio. Do not edit: change that one, and run the script.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self, Unpack, overload

from barnabas.base.ids import TopicPartition, Uuid
from barnabas.client.admin.acls import Acl, AclFilter
from barnabas.client.admin.admin import Admin as AsyncAdmin
from barnabas.client.admin.cluster import (
    BrokerReplica,
    ClusterDescription,
    FeaturesDescription,
    FeatureUpdate,
    LogDirDescription,
)
from barnabas.client.admin.configs import AlterConfig, ConfigEntry, ConfigResource, ConfigResourceType
from barnabas.client.admin.group_descriptions import GroupDescription, GroupState, GroupType
from barnabas.client.admin.groups import GroupListing
from barnabas.client.admin.offsets import ListedOffset, OffsetSpec
from barnabas.client.admin.quorum import Endpoint, QuorumInfo
from barnabas.client.admin.quotas import QuotaEntity, QuotaFilter
from barnabas.client.admin.reassignments import ElectionType, PartitionReassignment
from barnabas.client.admin.scram import ScramCredentialInfo, ScramDeletion, ScramUpsertion
from barnabas.client.admin.share_groups import SharePartitionOffset
from barnabas.client.admin.tokens import DelegationToken, Principal
from barnabas.client.admin.topic_descriptions import TopicDescription
from barnabas.client.admin.topics import CreatedTopic, NewPartitions, NewTopic, T, TopicListing
from barnabas.client.admin.transactions import (
    ProducerIdAndEpoch,
    ProducerState,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from barnabas.client.arguments import ConfigOrServers
from barnabas.client.core.consuming.offsets import OffsetAndMetadata
from barnabas.client.core.producing.transaction_states import TransactionHandle
from barnabas.client.other_methods import ADMIN_METHODS, ExplainsOtherMethods
from barnabas.client.settings import AdminSettings
from barnabas.client.settings.keywords import AdminKeywords
from barnabas.client.sync import LoopThread


class Admin(ExplainsOtherMethods):
    """Administration of a cluster: `barnabas.aio.Admin`, whose documentation says more, for programs without asyncio.

        with Admin(bootstrap_servers="127.0.0.1:9092") as admin:
            admin.create_topics([NewTopic("clicks", num_partitions=6)])

    It may be used from several threads at once. The work is done on one thread in the background.
    """

    _other_methods = ADMIN_METHODS

    def __init__(self, config: ConfigOrServers | None = None, /, **settings: Unpack[AdminKeywords]) -> None:
        self._admin = AsyncAdmin(config, **settings)
        self._thread = LoopThread(self._admin.client_id)

    @property
    def settings(self) -> AdminSettings:
        return self._admin.settings

    def metrics(self) -> dict[str, dict[str, float]]:
        """What the admin tells about itself, under Kafka's names: by group, then by metric with its tags."""
        return self._admin.metrics()

    def prometheus(self) -> str:
        """The same as text for Prometheus."""
        return self._admin.prometheus()

    def close(self) -> None:
        """Close all connections, and end the thread. Closing again does nothing."""
        try:
            if self._thread.is_usable:
                self._thread.run(self._admin.close())
        finally:
            self._thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def create_topics(
        self, topics: Iterable[NewTopic | str], *, validate_only: bool = False, timeout: float | None = None
    ) -> dict[str, CreatedTopic]:
        """Create topics, and return what was made of each; with `validate_only`, what would be. A name alone leaves all
        else to the broker.

        Errors are TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_REPLICATION_FACTOR, INVALID_CONFIG and others,
        as `BrokerError` for one topic and `KeyedError` for several.
        """
        return self._thread.run(self._admin.create_topics(topics, validate_only=validate_only, timeout=timeout))

    def delete_topics(self, topics: Iterable[str | Uuid], *, timeout: float | None = None) -> None:
        """Delete topics by name or id. UNKNOWN_TOPIC_OR_PARTITION or UNKNOWN_TOPIC_ID if there is no such topic.

        Brokers before 2.8 know no ids: `UnsupportedRequestError`.
        """
        self._thread.run(self._admin.delete_topics(topics, timeout=timeout))

    def list_topics(self, *, include_internal: bool = False, timeout: float | None = None) -> dict[str, TopicListing]:
        """All topics that the caller may see, by name, sorted."""
        return self._thread.run(self._admin.list_topics(include_internal=include_internal, timeout=timeout))

    def describe_topics(
        self,
        topics: Iterable[T],
        *,
        include_authorized_operations: bool = False,
        page_partitions: int = 2000,
        timeout: float | None = None,
    ) -> dict[T, TopicDescription]:
        """Topics by name or id with their partitions. UNKNOWN_TOPIC_OR_PARTITION or UNKNOWN_TOPIC_ID for one that does
        not exist; asking never creates it. One answer of a broker tells of at most `page_partitions`.
        """
        return self._thread.run(
            self._admin.describe_topics(
                topics,
                include_authorized_operations=include_authorized_operations,
                page_partitions=page_partitions,
                timeout=timeout,
            )
        )

    def create_partitions(
        self, counts: Mapping[str, NewPartitions | int], *, validate_only: bool = False, timeout: float | None = None
    ) -> None:
        """Add partitions to topics, up to a total count; INVALID_PARTITIONS if that is not more than there are.

        Records keep their places: the same key may go to another partition from then on.
        """
        self._thread.run(self._admin.create_partitions(counts, validate_only=validate_only, timeout=timeout))

    def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        names: Iterable[str] | None = None,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        timeout: float | None = None,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """The settings of each resource by name: all of them, or those in `names`."""
        return self._thread.run(
            self._admin.describe_configs(
                resources,
                names=names,
                include_synonyms=include_synonyms,
                include_documentation=include_documentation,
                timeout=timeout,
            )
        )

    def alter_configs(
        self,
        changes: Mapping[ConfigResource, Sequence[AlterConfig]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Change settings one by one; those that are not named stay as they are. All changes of a resource or none.

        Brokers before 2.3 cannot do that: `UnsupportedRequestError`. A setting or value that is not allowed is
        INVALID_CONFIG or INVALID_REQUEST, with the reason in the message.
        """
        self._thread.run(self._admin.alter_configs(changes, validate_only=validate_only, timeout=timeout))

    def list_config_resources(
        self, types: Iterable[ConfigResourceType] | None = None, *, timeout: float | None = None
    ) -> tuple[ConfigResource, ...]:
        """What has settings, of some kinds or of all. Brokers before 4.1 list client metrics alone, those before 3.7
        nothing: `UnsupportedRequestError`.
        """
        return self._thread.run(self._admin.list_config_resources(types, timeout=timeout))

    def list_groups(
        self,
        *,
        states: Iterable[GroupState | str] | None = None,
        types: Iterable[GroupType | str] | None = None,
        protocol_types: Iterable[str] | None = None,
        timeout: float | None = None,
    ) -> list[GroupListing]:
        """All groups, sorted, or those in some states, of some types, or with some protocol types ("" for simple ones).

        Every broker is asked; if one cannot be reached, `KeyedError` says which, by broker id. Filters by state need
        Kafka 2.6, by type 3.8: `UnsupportedRequestError`.
        """
        return self._thread.run(
            self._admin.list_groups(states=states, types=types, protocol_types=protocol_types, timeout=timeout)
        )

    def describe_groups(
        self, group_ids: Iterable[str], *, include_authorized_operations: bool = False, timeout: float | None = None
    ) -> dict[str, GroupDescription]:
        """Groups with their members, whichever protocol they follow. GROUP_ID_NOT_FOUND for one that does not exist."""
        return self._thread.run(
            self._admin.describe_groups(
                group_ids, include_authorized_operations=include_authorized_operations, timeout=timeout
            )
        )

    def delete_groups(self, group_ids: Iterable[str], *, timeout: float | None = None) -> None:
        """Delete groups and their offsets. NON_EMPTY_GROUP for one with members, GROUP_ID_NOT_FOUND for none."""
        self._thread.run(self._admin.delete_groups(group_ids, timeout=timeout))

    @overload
    def list_group_offsets(
        self, groups: str, *, require_stable: bool = False, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]: ...

    @overload
    def list_group_offsets(
        self,
        groups: Mapping[str, Iterable[TopicPartition] | None],
        *,
        require_stable: bool = False,
        timeout: float | None = None,
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]: ...

    @overload
    def list_group_offsets(
        self,
        groups: str | Mapping[str, Iterable[TopicPartition] | None],
        *,
        require_stable: bool = False,
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata] | dict[str, dict[TopicPartition, OffsetAndMetadata]]: ...

    def list_group_offsets(
        self,
        groups: str | Mapping[str, Iterable[TopicPartition] | None],
        *,
        require_stable: bool = False,
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata] | dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """What a group has committed, by partition; or, for a mapping from groups to partitions, that by group.

        None in place of partitions means all. Partitions that nothing is committed for are not in the result. With
        `require_stable`, offsets that an open transaction is about to change are waited for.
        """
        return self._thread.run(self._admin.list_group_offsets(groups, require_stable=require_stable, timeout=timeout))

    def pending_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> set[TopicPartition]:
        """Those of the partitions whose offsets an open transaction is about to change. From Kafka 2.5 on."""
        return self._thread.run(self._admin.pending_group_offsets(group_id, partitions, timeout=timeout))

    def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], *, timeout: float | None = None
    ) -> None:
        """Commit for a group that has no members; it comes to be if it does not exist. UNKNOWN_MEMBER_ID if it has."""
        self._thread.run(self._admin.alter_group_offsets(group_id, offsets, timeout=timeout))

    def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> None:
        """Forget what a group committed. GROUP_SUBSCRIBED_TO_TOPIC if a member reads the topic. From Kafka 2.4 on."""
        self._thread.run(self._admin.delete_group_offsets(group_id, partitions, timeout=timeout))

    def remove_group_members(
        self,
        group_id: str,
        *,
        instance_ids: Iterable[str] | None = None,
        member_ids: Iterable[str] | None = None,
        reason: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Remove members, static ones by their instance id; all if none are given. A member that lives joins again.

        UNKNOWN_MEMBER_ID for one that is not in the group. From Kafka 2.4 on.
        """
        self._thread.run(
            self._admin.remove_group_members(
                group_id, instance_ids=instance_ids, member_ids=member_ids, reason=reason, timeout=timeout
            )
        )

    def list_share_group_offsets(
        self, groups: Mapping[str, Iterable[TopicPartition] | None], *, timeout: float | None = None
    ) -> dict[str, dict[TopicPartition, SharePartitionOffset]]:
        """Where the partitions of share groups begin; None in place of partitions means all that have an offset."""
        return self._thread.run(self._admin.list_share_group_offsets(groups, timeout=timeout))

    def alter_share_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> None:
        """Move where partitions begin, for a group without members: NON_EMPTY_GROUP otherwise."""
        self._thread.run(self._admin.alter_share_group_offsets(group_id, offsets, timeout=timeout))

    def delete_share_group_offsets(self, group_id: str, topics: Iterable[str], *, timeout: float | None = None) -> None:
        """Forget topics of a share group without members: NON_EMPTY_GROUP otherwise."""
        self._thread.run(self._admin.delete_share_group_offsets(group_id, topics, timeout=timeout))

    def list_offsets(
        self,
        specs: Mapping[TopicPartition, OffsetSpec],
        *,
        isolation_level: str = "read_uncommitted",
        timeout: float | None = None,
    ) -> dict[TopicPartition, ListedOffset]:
        """An offset of each partition. `offset` is -1 if no record is as the spec asks.

        A kind of offset that a broker does not know is `UnsupportedRequestError`.
        """
        return self._thread.run(self._admin.list_offsets(specs, isolation_level=isolation_level, timeout=timeout))

    def delete_records(
        self, before_offsets: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Delete the records before an offset of each partition (-1: all), and return where each begins now.

        OFFSET_OUT_OF_RANGE for an offset beyond the high watermark, POLICY_VIOLATION where only compaction may delete.
        """
        return self._thread.run(self._admin.delete_records(before_offsets, timeout=timeout))

    def describe_cluster(
        self,
        *,
        include_authorized_operations: bool = False,
        include_fenced_brokers: bool = False,
        timeout: float | None = None,
    ) -> ClusterDescription:
        """The cluster's id, controller and brokers; connected to controllers, those in place of the brokers.

        Fenced brokers are told from Kafka 4.1 on (`UnsupportedRequestError`).
        """
        return self._thread.run(
            self._admin.describe_cluster(
                include_authorized_operations=include_authorized_operations,
                include_fenced_brokers=include_fenced_brokers,
                timeout=timeout,
            )
        )

    def describe_log_dirs(
        self,
        broker_ids: Iterable[int] | None = None,
        *,
        partitions: Iterable[TopicPartition] | None = None,
        timeout: float | None = None,
    ) -> dict[int, dict[str, LogDirDescription]]:
        """The log directories of each broker by path, with the replicas in them: all, or those of some partitions."""
        return self._thread.run(self._admin.describe_log_dirs(broker_ids, partitions=partitions, timeout=timeout))

    def alter_replica_log_dirs(
        self, moves: Mapping[BrokerReplica | tuple[int, TopicPartition], str], *, timeout: float | None = None
    ) -> None:
        """Move replicas to other log directories of their brokers. Returns when the moves have begun.

        REPLICA_NOT_AVAILABLE if the broker does not have the replica (yet: then it will be made in that directory),
        LOG_DIR_NOT_FOUND or KAFKA_STORAGE_ERROR for the directory.
        """
        self._thread.run(self._admin.alter_replica_log_dirs(moves, timeout=timeout))

    def describe_features(self, *, node_id: int | None = None, timeout: float | None = None) -> FeaturesDescription:
        """The levels of features that the cluster has agreed on, as a node says: any, or a given one. Brokers before
        2.7 have none."""
        return self._thread.run(self._admin.describe_features(node_id=node_id, timeout=timeout))

    def update_features(
        self, updates: Mapping[str, FeatureUpdate | int], *, validate_only: bool = False, timeout: float | None = None
    ) -> None:
        """Raise or lower features. FEATURE_UPDATE_FAILED or INVALID_UPDATE_VERSION says why not, for all of them."""
        self._thread.run(self._admin.update_features(updates, validate_only=validate_only, timeout=timeout))

    def unregister_broker(self, broker_id: int, *, timeout: float | None = None) -> None:
        """Forget a broker that will not come back. BROKER_ID_NOT_REGISTERED if there is none."""
        self._thread.run(self._admin.unregister_broker(broker_id, timeout=timeout))

    def alter_partition_reassignments(
        self,
        replicas: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        timeout: float | None = None,
    ) -> None:
        """Begin to move partitions to other brokers; None ends a move that is going on. From Kafka 2.4 on.

        INVALID_REPLICA_ASSIGNMENT for brokers that there are not, NO_REASSIGNMENT_IN_PROGRESS where there is nothing to
        end. That the replication factor shall stay as it is can be asked of Kafka 4.1 and later.
        """
        self._thread.run(
            self._admin.alter_partition_reassignments(
                replicas, allow_replication_factor_change=allow_replication_factor_change, timeout=timeout
            )
        )

    def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """The moves that are going on, of some partitions or of all."""
        return self._thread.run(self._admin.list_partition_reassignments(partitions, timeout=timeout))

    def elect_leaders(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        election: ElectionType = ElectionType.PREFERRED,
        timeout: float | None = None,
    ) -> dict[TopicPartition, bool]:
        """Elect leaders of some partitions, or of all; by partition, whether that changed anything.

        PREFERRED_LEADER_NOT_AVAILABLE or ELIGIBLE_LEADERS_NOT_AVAILABLE where nobody can lead. Unclean elections need
        Kafka 2.4.
        """
        return self._thread.run(self._admin.elect_leaders(partitions, election=election, timeout=timeout))

    def describe_acls(self, acl_filter: AclFilter | None = None, *, timeout: float | None = None) -> tuple[Acl, ...]:
        """The rules that match a filter; all of them without one."""
        return self._thread.run(self._admin.describe_acls(acl_filter, timeout=timeout))

    def create_acls(self, acls: Iterable[Acl], *, timeout: float | None = None) -> None:
        """Add rules; one that is there already is no error. Raises `BrokerError`, or `KeyedError` by rule."""
        self._thread.run(self._admin.create_acls(acls, timeout=timeout))

    def delete_acls(
        self, filters: Iterable[AclFilter], *, timeout: float | None = None
    ) -> dict[AclFilter, tuple[Acl, ...]]:
        """Remove the rules that match filters, and return by filter which ones those were."""
        return self._thread.run(self._admin.delete_acls(filters, timeout=timeout))

    def describe_client_quotas(
        self, quota_filter: QuotaFilter | None = None, *, timeout: float | None = None
    ) -> dict[QuotaEntity, dict[str, float]]:
        """The quotas of each entity that matches, such as `{"producer_byte_rate": 1024.0}`; of all without a filter."""
        return self._thread.run(self._admin.describe_client_quotas(quota_filter, timeout=timeout))

    def alter_client_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Set quotas by name, or remove those whose value is None. INVALID_REQUEST for what cannot have that quota."""
        self._thread.run(self._admin.alter_client_quotas(changes, validate_only=validate_only, timeout=timeout))

    def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> dict[str, tuple[ScramCredentialInfo, ...]]:
        """The credentials of some users, or of all that have any. RESOURCE_NOT_FOUND for a user without any."""
        return self._thread.run(self._admin.describe_user_scram_credentials(users, timeout=timeout))

    def alter_user_scram_credentials(
        self, alterations: Iterable[ScramUpsertion | ScramDeletion], *, timeout: float | None = None
    ) -> None:
        """Set and remove passwords. RESOURCE_NOT_FOUND for what is to be removed and is not there; errors are by user.

        A user may be named once in a call: DUPLICATE_RESOURCE otherwise.
        """
        self._thread.run(self._admin.alter_user_scram_credentials(alterations, timeout=timeout))

    def describe_producers(
        self, partitions: Iterable[TopicPartition], *, broker_id: int | None = None, timeout: float | None = None
    ) -> dict[TopicPartition, tuple[ProducerState, ...]]:
        """The producers that each partition knows, as its leader or a given replica tells."""
        return self._thread.run(self._admin.describe_producers(partitions, broker_id=broker_id, timeout=timeout))

    def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout: float | None = None
    ) -> dict[str, TransactionDescription]:
        """Transactions as their coordinators know them. TRANSACTIONAL_ID_NOT_FOUND for an id that there is not."""
        return self._thread.run(self._admin.describe_transactions(transactional_ids, timeout=timeout))

    def list_transactions(
        self,
        *,
        states: Iterable[TransactionState | str] | None = None,
        producer_ids: Iterable[int] | None = None,
        min_duration_ms: int | None = None,
        pattern: str | None = None,
        timeout: float | None = None,
    ) -> list[TransactionListing]:
        """All transactional ids, sorted, or those that pass the filters. Every broker is asked; errors are by broker.

        `min_duration_ms` needs Kafka 3.8, `pattern` (a regular expression of Java's) 4.1: `UnsupportedRequestError`.
        """
        return self._thread.run(
            self._admin.list_transactions(
                states=states,
                producer_ids=producer_ids,
                min_duration_ms=min_duration_ms,
                pattern=pattern,
                timeout=timeout,
            )
        )

    def abort_transaction(
        self,
        partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Write the end of a transaction that hangs into one partition; the numbers come from `describe_producers`.

        Only for a transaction that its coordinator has forgotten: to end one that it knows, use
        `force_terminate_transaction`.
        INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED if the numbers are old.
        """
        self._thread.run(
            self._admin.abort_transaction(partition, producer_id, producer_epoch, coordinator_epoch, timeout=timeout)
        )

    def force_terminate_transaction(self, transactional_id: str, *, timeout: float | None = None) -> None:
        """Abort the open transaction of an id, also a prepared one, and lock out the producer that has it.

        An id that nobody used before is known from then on, without a transaction, as with Kafka.
        """
        self._thread.run(self._admin.force_terminate_transaction(transactional_id, timeout=timeout))

    def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout: float | None = None
    ) -> dict[str, ProducerIdAndEpoch]:
        """End the open transactions of some ids, and lock out the producers that use them now.

        Returns who could write for each id from then on.
        """
        return self._thread.run(self._admin.fence_producers(transactional_ids, timeout=timeout))

    def is_transaction_open(self, handle: TransactionHandle, group_id: str, *, timeout: float | None = None) -> bool:
        """Whether a transaction that a producer handed over can still be ended, for brokers before 3.0 that have no
        `describe_transactions`. `group_id` is one to which the producer sent offsets in it.

        Not to be asked of one that was ended in its handle's name: those brokers would begin the next one.
        """
        return self._thread.run(self._admin.is_transaction_open(handle, group_id, timeout=timeout))

    def end_transaction(self, handle: TransactionHandle, *, commit: bool = True, timeout: float | None = None) -> None:
        """Commit or abort a transaction that a producer handed over: `Producer.transaction_handle()`.

        May be repeated, as after an error that leaves the outcome open: what is ended that way stays so. Raises
        `ProducerFencedError` if another producer with the id has begun since, or transaction.timeout.ms is over: then
        it was aborted, unless it was ended before. INVALID_TXN_STATE if it was ended the other way.
        """
        self._thread.run(self._admin.end_transaction(handle, commit=commit, timeout=timeout))

    def describe_metadata_quorum(self, *, timeout: float | None = None) -> QuorumInfo:
        """Leader, voters and observers, and how far each of them is. From Kafka 3.3 on."""
        return self._thread.run(self._admin.describe_metadata_quorum(timeout=timeout))

    def add_raft_voter(
        self,
        voter_id: int,
        directory_id: Uuid,
        endpoints: Iterable[Endpoint],
        *,
        cluster_id: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Let a controller vote that follows the log already. DUPLICATE_VOTER if it does. From Kafka 3.9 on.

        With `cluster_id`, only in that cluster: INCONSISTENT_CLUSTER_ID otherwise.
        """
        self._thread.run(
            self._admin.add_raft_voter(voter_id, directory_id, endpoints, cluster_id=cluster_id, timeout=timeout)
        )

    def remove_raft_voter(
        self, voter_id: int, directory_id: Uuid, *, cluster_id: str | None = None, timeout: float | None = None
    ) -> None:
        """Let a controller not vote any more. VOTER_NOT_FOUND if it does not. From Kafka 3.9 on."""
        self._thread.run(self._admin.remove_raft_voter(voter_id, directory_id, cluster_id=cluster_id, timeout=timeout))

    def create_delegation_token(
        self,
        *,
        renewers: Iterable[Principal] = (),
        owner: Principal | None = None,
        max_lifetime_ms: int = -1,
        timeout: float | None = None,
    ) -> DelegationToken:
        """A new token for the caller, or for another owner (from Kafka 3.3 on). -1: as long as the cluster allows."""
        return self._thread.run(
            self._admin.create_delegation_token(
                renewers=renewers, owner=owner, max_lifetime_ms=max_lifetime_ms, timeout=timeout
            )
        )

    def renew_delegation_token(self, hmac: bytes, *, renew_period_ms: int = -1, timeout: float | None = None) -> int:
        """Prolong a token, and return when it expires now. -1: by as much as the cluster does by itself."""
        return self._thread.run(
            self._admin.renew_delegation_token(hmac, renew_period_ms=renew_period_ms, timeout=timeout)
        )

    def expire_delegation_token(self, hmac: bytes, *, expiry_period_ms: int = -1, timeout: float | None = None) -> int:
        """End a token after some time, and return when that is. -1: at once."""
        return self._thread.run(
            self._admin.expire_delegation_token(hmac, expiry_period_ms=expiry_period_ms, timeout=timeout)
        )

    def describe_delegation_tokens(
        self, owners: Iterable[Principal] | None = None, *, timeout: float | None = None
    ) -> tuple[DelegationToken, ...]:
        """The tokens of some owners, or all that the caller may see."""
        return self._thread.run(self._admin.describe_delegation_tokens(owners, timeout=timeout))
