"""The controller: every decision about the cluster, without any waiting.

A request is turned into records and an answer. Whoever runs the controller writes the records to the log, replays them
here at once, and gives the answer when they are committed. So the next request sees what the last one decided, and when
another controller takes over, what was not committed is forgotten with `roll_back`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from random import Random

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.metadata import (
    acls,
    alter_partition,
    brokers,
    client_quotas,
    configs,
    controllers,
    delegation_tokens,
    directories,
    elect_leaders,
    elections,
    feature_control,
    producer_ids,
    scram_users,
    topic_deletion,
    topics,
)
from barnabas.metadata.client_quotas import IsKnownHost
from barnabas.metadata.configs import AllowsResource, BrokerConfigRules, every_resource
from barnabas.metadata.controller_result import ControllerResult
from barnabas.metadata.feature_control import QuorumFeatures
from barnabas.metadata.features import LOWEST_METADATA_VERSION, METADATA_VERSION, METADATA_VERSION_BUILT
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.mutation_quotas import TakesQuota, unbounded
from barnabas.metadata.options import ControllerOptions
from barnabas.metadata.replay import ImageBuilder
from barnabas.metadata.topics import Allows, everything
from barnabas.wire.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from barnabas.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from barnabas.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from barnabas.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from barnabas.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from barnabas.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from barnabas.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from barnabas.wire.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from barnabas.wire.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from barnabas.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from barnabas.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.wire.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from barnabas.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from barnabas.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from barnabas.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from barnabas.wire.stored.cluster_metadata import (
    AbortTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    RegisterBrokerRecord,
)

__all__ = ["Controller", "ControllerResult"]


class Controller:
    """The state of the cluster with all that was decided, committed or not, and what can be asked of it.

    `options` may be replaced when the settings of the node change. Methods raise `BrokerError` where the answer has no
    room for an error of its own.
    """

    def __init__(self, image: ClusterImage, options: ControllerOptions, randomness: Random) -> None:
        self.options = options
        self._randomness = randomness
        self._committed = image
        self._image = self._committed
        self._builder: ImageBuilder | None = None
        self._last_offset = self._image.offset
        self._epoch = self._image.epoch
        #: Images after batches that are not committed yet, oldest first.
        self._uncommitted: deque[ClusterImage] = deque()
        self._sessions = brokers.BrokerSessions()

    # State

    @property
    def image(self) -> ClusterImage:
        """The cluster as decided so far."""
        if self._builder is not None:
            self._image = self._builder.build(self._last_offset, self._epoch)
            self._builder = None
        return self._image

    @property
    def sessions(self) -> brokers.BrokerSessions:
        """Which brokers were heard of."""
        return self._sessions

    @property
    def committed_image(self) -> ClusterImage:
        """The cluster as far as it cannot be forgotten any more."""
        return self._committed

    @property
    def next_offset(self) -> int:
        """Where the next record will be written."""
        return self._last_offset + 1

    def replay(self, record: MetadataRecord, offset: int) -> None:
        """Apply a record that was written to the log. Nothing else changes the state."""
        if self._builder is None:
            self._builder = ImageBuilder(self._image)
        self._builder.replay(record)
        self._last_offset = offset
        if type(record) is RegisterBrokerRecord:
            self._sessions.registered(record.broker_id, record.broker_epoch, offset)

    def load(self, image: ClusterImage) -> None:
        """Begin with what the log and its snapshot say; all of it is committed."""
        self._committed = self._image = image
        self._builder = None
        self._uncommitted.clear()
        self._last_offset, self._epoch = image.offset, image.epoch

    def activate(
        self, epoch: int, next_offset: int, now_ms: int, bootstrap: Sequence[MetadataRecord] = ()
    ) -> ControllerResult[None]:
        """This node leads the quorum from now on and will write at `next_offset`.

        A transaction that a former controller left open is aborted. An empty log begins with the bootstrap records.
        """
        self._epoch = epoch
        self._last_offset = next_offset - 1
        image = self.image
        self._sessions.begin(image, now_ms)
        records: list[MetadataRecord] = []
        if image.pending is not None:
            records.append(AbortTransactionRecord(reason="the controller that began it is gone"))
        version = image.features.metadata_version
        if version is None:
            if not any(isinstance(each, FeatureLevelRecord) and each.name == METADATA_VERSION for each in bootstrap):
                raise BrokerError(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    "the metadata log is empty and no bootstrap record says which metadata.version it begins with: "
                    "format the directory first",
                )
            records += bootstrap
        elif not LOWEST_METADATA_VERSION <= version <= METADATA_VERSION_BUILT:
            raise BrokerError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the cluster is at metadata.version {version}; "
                f"{LOWEST_METADATA_VERSION} to {METADATA_VERSION_BUILT} are supported",
            )
        return ControllerResult(None, records)

    def mark(self) -> None:
        """A batch ends here: remember the state, so that `commit` can name it."""
        self._uncommitted.append(self.image)

    def commit(self, offset: int) -> None:
        """All up to `offset` is committed."""
        while self._uncommitted and self._uncommitted[0].offset <= offset:
            self._committed = self._uncommitted.popleft()

    def roll_back(self) -> None:
        """Another controller leads: forget what was not committed. Whoever waits for it must be told NOT_CONTROLLER."""
        self.load(self._committed)
        self._sessions = brokers.BrokerSessions()

    # Topics

    def create_topics(
        self,
        request: CreateTopicsRequest,
        *,
        may_create: Allows = everything,
        may_see_configs: Allows = everything,
        take_quota: TakesQuota = unbounded,
    ) -> ControllerResult[CreateTopicsResponse]:
        return topics.create_topics(
            self.image,
            self.options,
            self._randomness,
            request,
            may_create=may_create,
            may_see_configs=may_see_configs,
            take_quota=take_quota,
        )

    def create_partitions(
        self,
        request: CreatePartitionsRequest,
        *,
        may_alter: Allows = everything,
        take_quota: TakesQuota = unbounded,
    ) -> ControllerResult[CreatePartitionsResponse]:
        return topics.create_partitions(
            self.image, self._randomness, request, may_alter=may_alter, take_quota=take_quota
        )

    def delete_topics(
        self,
        request: DeleteTopicsRequest,
        version: int,
        *,
        may_describe: Allows = everything,
        may_delete: Allows = everything,
        take_quota: TakesQuota = unbounded,
    ) -> ControllerResult[DeleteTopicsResponse]:
        return topic_deletion.delete_topics(
            self.image,
            self.options,
            request,
            version,
            may_describe=may_describe,
            may_delete=may_delete,
            take_quota=take_quota,
        )

    # Settings

    def incremental_alter_configs(
        self,
        request: IncrementalAlterConfigsRequest,
        broker_rules: BrokerConfigRules,
        *,
        may_alter: AllowsResource = every_resource,
    ) -> ControllerResult[IncrementalAlterConfigsResponse]:
        return configs.incremental_alter_configs(self.image, self.options, request, broker_rules, may_alter=may_alter)

    def alter_configs(
        self,
        request: AlterConfigsRequest,
        broker_rules: BrokerConfigRules,
        *,
        may_alter: AllowsResource = every_resource,
    ) -> ControllerResult[AlterConfigsResponse]:
        return configs.alter_configs(self.image, self.options, request, broker_rules, may_alter=may_alter)

    # How much clients may use

    def alter_client_quotas(
        self, request: AlterClientQuotasRequest, is_known_host: IsKnownHost
    ) -> ControllerResult[AlterClientQuotasResponse]:
        return client_quotas.alter_client_quotas(self.image.client_quotas, request, is_known_host)

    # Who may do what

    def create_acls(self, request: CreateAclsRequest) -> ControllerResult[CreateAclsResponse]:
        return acls.create_acls(self.image.acls, self._randomness, request)

    def delete_acls(self, request: DeleteAclsRequest) -> ControllerResult[DeleteAclsResponse]:
        return acls.delete_acls(self.image.acls, request)

    # Who may log in

    def alter_user_scram_credentials(
        self, request: AlterUserScramCredentialsRequest
    ) -> ControllerResult[AlterUserScramCredentialsResponse]:
        return scram_users.alter_user_scram_credentials(self.image, request)

    def create_delegation_token(
        self, request: CreateDelegationTokenRequest, version: int, requester: str, now_ms: int
    ) -> ControllerResult[CreateDelegationTokenResponse]:
        return delegation_tokens.create_delegation_token(
            self.image, self.options.tokens, self._randomness, request, version, requester, now_ms
        )

    def renew_delegation_token(
        self, request: RenewDelegationTokenRequest, caller: str, now_ms: int
    ) -> ControllerResult[RenewDelegationTokenResponse]:
        return delegation_tokens.renew_delegation_token(self.image, self.options.tokens, request, caller, now_ms)

    def expire_delegation_token(
        self, request: ExpireDelegationTokenRequest, caller: str, now_ms: int
    ) -> ControllerResult[ExpireDelegationTokenResponse]:
        return delegation_tokens.expire_delegation_token(self.image, self.options.tokens, request, caller, now_ms)

    def remove_expired_tokens(self, now_ms: int) -> ControllerResult[None]:
        return delegation_tokens.expired_tokens(self.image, now_ms)

    # Brokers

    def register_broker(
        self, request: BrokerRegistrationRequest, version: int, now_ms: int
    ) -> ControllerResult[BrokerRegistrationResponse]:
        return brokers.register_broker(
            self.image, self.options, self._sessions, request, version, self.next_offset, now_ms
        )

    def broker_is_gone(self, broker_id: int) -> None:
        """The last life of a broker has ended for certain, so nobody need wait for its session to end."""
        self._sessions.forget(broker_id)

    def shorten_session(self, broker_id: int, now_ms: int, grace_ms: int, reason: str = "which is gone") -> None:
        """A broker is probably gone: if it is not heard of within the grace, its session is over."""
        self._sessions.shorten(broker_id, now_ms, grace_ms, self.options.broker_session_timeout_ms, reason)

    def why_session_is_short(self, broker_id: int) -> str | None:
        """The reason with which it was made shorter; None if it lasts as any, or the broker was heard of since."""
        return self._sessions.shortened_since(broker_id)

    def heartbeat(self, request: BrokerHeartbeatRequest, now_ms: int) -> ControllerResult[BrokerHeartbeatResponse]:
        return brokers.heartbeat(self.image, self.options, self._sessions, request, self.next_offset, now_ms)

    def fence_expired_brokers(self, now_ms: int) -> ControllerResult[int | None]:
        """Fence one silent broker, if there is one; ask again until the answer is None."""
        return brokers.fence_expired_brokers(self.image, self.options, self._sessions, now_ms)

    def unregister_broker(self, broker_id: int) -> ControllerResult[None]:
        return brokers.unregister_broker(self.image, self.options, broker_id)

    def assign_replicas_to_dirs(
        self, request: AssignReplicasToDirsRequest
    ) -> ControllerResult[AssignReplicasToDirsResponse]:
        return directories.assign_replicas_to_dirs(self.image, self.options, request)

    # Leaders and in-sync sets

    def alter_partition(self, request: AlterPartitionRequest, version: int) -> ControllerResult[AlterPartitionResponse]:
        return alter_partition.alter_partition(self.image, self.options, request, version)

    def elect_leaders(self, request: ElectLeadersRequest) -> ControllerResult[ElectLeadersResponse]:
        return elect_leaders.elect_leaders(self.image, self.options, request)

    def balance_leaders(self) -> ControllerResult[None]:
        """Give partitions back to their preferred leaders, some at a time."""
        return ControllerResult(None, elections.balance_leaders(self.image, self.options))

    def elect_unclean_leaders(self) -> ControllerResult[None]:
        """Find leaders for partitions that would rather lose data than wait, some at a time."""
        return ControllerResult(None, elections.elect_unclean_leaders(self.image, self.options))

    # Controllers and features

    def register_controller(
        self, request: ControllerRegistrationRequest
    ) -> ControllerResult[ControllerRegistrationResponse]:
        return controllers.register_controller(self.image, request)

    def update_features(
        self, request: UpdateFeaturesRequest, version: int, quorum: QuorumFeatures
    ) -> ControllerResult[UpdateFeaturesResponse]:
        return feature_control.update_features(self.image, self.options, quorum, request, version)

    # Producer ids

    def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> ControllerResult[tuple[int, int]]:
        """A block of ids that no producer has had: the first, and how many."""
        brokers.registered_broker(self.image, broker_id, broker_epoch)
        return producer_ids.allocate_producer_ids(self.image, broker_id, broker_epoch)
