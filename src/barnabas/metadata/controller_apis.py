"""What the controller can be asked, by message: each type of request, who may ask, and who decides.

A request that came in an Envelope from another broker, one from a client of the controllers' listener and one from the
broker in the same process are the same here: a message, its version, and who asks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.metadata import elect_leaders
from barnabas.metadata.authorizer import CLUSTER_NAME, AclOperation, AuthorizableRequestContext, Authorizer, Resource
from barnabas.metadata.client_quotas import IsKnownHost, is_address, quotas_refused
from barnabas.metadata.configs import BrokerConfigRules
from barnabas.metadata.controller import Controller, ControllerResult
from barnabas.metadata.delegation_tokens import refused_token, token_owner
from barnabas.metadata.feature_control import KRaftVersion, QuorumFeatures
from barnabas.metadata.image import ConfigResource, ConfigResourceType
from barnabas.metadata.mutation_quotas import ControllerMutationQuota, ControllerMutationQuotas, unbounded
from barnabas.metadata.quorum import Quorum
from barnabas.metadata.quorum_description import describe_quorum
from barnabas.metadata.topics import everything
from barnabas.wire.apis import ApiKey
from barnabas.wire.message import Request, Response
from barnabas.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from barnabas.wire.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from barnabas.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from barnabas.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from barnabas.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
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
from barnabas.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from barnabas.wire.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from barnabas.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from barnabas.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.wire.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse, Listener
from barnabas.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from barnabas.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from barnabas.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from barnabas.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from barnabas.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

#: With SECURITY_DISABLED, as Kafka puts it: tools show it, and some look for it.
NO_AUTHORIZER: Final = "No Authorizer is configured."


class ControllerApis:
    """Takes each request to the function that decides it, with what its sender may do."""

    def __init__(
        self,
        controller: Controller,
        quorum: Quorum,
        authorizer: Authorizer,
        broker_rules: BrokerConfigRules,
        own_listeners: Sequence[Listener] = (),
        is_known_host: IsKnownHost = is_address,
    ) -> None:
        """`is_known_host`: whether a name stands for an address, as quotas of addresses must."""
        self._controller = controller
        self._quorum = quorum
        self._authorizer = authorizer
        self._broker_rules = broker_rules
        self._own_listeners = own_listeners
        self._is_known_host = is_known_host
        self.mutation_quotas = ControllerMutationQuotas()

    def handle(
        self, request: Request, version: int, caller: AuthorizableRequestContext, now_ms: int, wall_ms: int = 0
    ) -> ControllerResult[Response]:
        """The records that it takes, and the answer once they are committed. Nothing has changed yet. `now_ms` never
        goes back; `wall_ms` is the time since 1970."""
        decide = _DECISIONS.get(type(request))
        if decide is None:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, f"the controller takes no {ApiKey(request.API_KEY).camel_name}"
            )
        outcome: ControllerResult[Response] = decide(
            self, request, version, caller, wall_ms if isinstance(request, _BY_THE_CLOCK) else now_ms
        )
        return outcome

    # Who may

    def _may(
        self, caller: AuthorizableRequestContext, operation: AclOperation, resource: Resource = Resource.TOPIC
    ) -> Callable[[str], bool]:
        return partial(self._authorizer.is_allowed, caller, operation, resource)

    def _check_cluster(self, caller: AuthorizableRequestContext, operation: AclOperation) -> None:
        if not self._authorizer.is_allowed(caller, operation, Resource.CLUSTER, CLUSTER_NAME):
            raise BrokerError(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"{caller.principal} needs {operation.name} on the cluster"
            )

    # How much they may

    def _mutation_quota(
        self, request: Request, version: int, caller: AuthorizableRequestContext, now_ms: int
    ) -> ControllerMutationQuota | None:
        controller = self._controller
        quotas, window = controller.committed_image.client_quotas, controller.options.quota_window
        return self.mutation_quotas.of(quotas, window, request, version, caller, now_ms)

    # Topics

    def _create_topics(
        self, request: CreateTopicsRequest, version: int, caller: AuthorizableRequestContext, now_ms: int
    ) -> ControllerResult[CreateTopicsResponse]:
        may_create_all = self._authorizer.is_allowed(
            caller, AclOperation.CREATE, Resource.CLUSTER, CLUSTER_NAME, log_if_denied=False
        )
        may_create = self._may(caller, AclOperation.CREATE)
        quota = self._mutation_quota(request, version, caller, now_ms)
        outcome = self._controller.create_topics(
            request,
            may_create=lambda name: may_create_all or may_create(name),
            may_see_configs=self._may(caller, AclOperation.DESCRIBE_CONFIGS),
            take_quota=unbounded if quota is None else quota.take,
        )
        outcome.response.throttle_time_ms = 0 if quota is None else quota.throttle_ms
        return outcome

    def _create_partitions(
        self, request: CreatePartitionsRequest, version: int, caller: AuthorizableRequestContext, now_ms: int
    ) -> ControllerResult[CreatePartitionsResponse]:
        quota = self._mutation_quota(request, version, caller, now_ms)
        outcome = self._controller.create_partitions(
            request,
            may_alter=self._may(caller, AclOperation.ALTER),
            take_quota=unbounded if quota is None else quota.take,
        )
        outcome.response.throttle_time_ms = 0 if quota is None else quota.throttle_ms
        return outcome

    def _delete_topics(
        self, request: DeleteTopicsRequest, version: int, caller: AuthorizableRequestContext, now_ms: int
    ) -> ControllerResult[DeleteTopicsResponse]:
        may_delete_all = self._authorizer.is_allowed(
            caller, AclOperation.DELETE, Resource.CLUSTER, CLUSTER_NAME, log_if_denied=False
        )
        quota = self._mutation_quota(request, version, caller, now_ms)
        outcome = self._controller.delete_topics(
            request,
            version,
            may_describe=everything if may_delete_all else self._may(caller, AclOperation.DESCRIBE),
            may_delete=everything if may_delete_all else self._may(caller, AclOperation.DELETE),
            take_quota=unbounded if quota is None else quota.take,
        )
        outcome.response.throttle_time_ms = 0 if quota is None else quota.throttle_ms
        return outcome

    # Settings

    def _incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest, version: int, caller: AuthorizableRequestContext, now_ms: int
    ) -> ControllerResult[IncrementalAlterConfigsResponse]:
        may_alter = partial(may_alter_configs, self._authorizer, caller)
        return self._controller.incremental_alter_configs(request, self._broker_rules, may_alter=may_alter)

    def _alter_configs(
        self, request: AlterConfigsRequest, version: int, caller: AuthorizableRequestContext, now_ms: int
    ) -> ControllerResult[AlterConfigsResponse]:
        may_alter = partial(may_alter_configs, self._authorizer, caller)
        return self._controller.alter_configs(request, self._broker_rules, may_alter=may_alter)

    # How much clients may use

    def _alter_client_quotas(
        self, request: AlterClientQuotasRequest, version: int, caller: AuthorizableRequestContext, now_ms: int
    ) -> ControllerResult[AlterClientQuotasResponse]:
        if not self._authorizer.is_allowed(caller, AclOperation.ALTER_CONFIGS, Resource.CLUSTER, CLUSTER_NAME):
            return ControllerResult(quotas_refused(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        return self._controller.alter_client_quotas(request, self._is_known_host)

    # Who may do what

    def _create_acls(
        self, request: CreateAclsRequest, version: int, caller: AuthorizableRequestContext, now_ms: int
    ) -> ControllerResult[CreateAclsResponse]:
        self._check_cluster(caller, AclOperation.ALTER)
        if self._authorizer.keeps_acls:
            return self._controller.create_acls(request)
        # Results have no names: the client finds its own by their order.
        refused = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
        return ControllerResult(CreateAclsResponse(results=[refused] * len(request.creations)))

    def _delete_acls(
        self, request: DeleteAclsRequest, version: int, caller: AuthorizableRequestContext, now_ms: int
    ) -> ControllerResult[DeleteAclsResponse]:
        self._check_cluster(caller, AclOperation.ALTER)
        if self._authorizer.keeps_acls:
            return self._controller.delete_acls(request)
        refused = DeleteAclsFilterResult(
            error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER, matching_acls=[]
        )
        return ControllerResult(DeleteAclsResponse(filter_results=[refused] * len(request.filters)))

    # Who may log in

    def _alter_user_scram_credentials(
        self, request: AlterUserScramCredentialsRequest, version: int, caller: AuthorizableRequestContext, now_ms: int
    ) -> ControllerResult[AlterUserScramCredentialsResponse]:
        if not self._authorizer.is_allowed(caller, AclOperation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            names = dict.fromkeys(
                [*(each.name for each in request.deletions), *(each.name for each in request.upsertions)]
            )
            denied = [
                AlterUserScramCredentialsResult(user=name, error_code=code, error_message=code.text) for name in names
            ]
            return ControllerResult(AlterUserScramCredentialsResponse(results=denied))
        return self._controller.alter_user_scram_credentials(request)

    def _create_delegation_token(
        self, request: CreateDelegationTokenRequest, version: int, caller: AuthorizableRequestContext, now_ms: int
    ) -> ControllerResult[CreateDelegationTokenResponse]:
        owner = token_owner(request, caller.principal)
        if caller.is_token_authenticated:
            # Its broker has refused it already, if it is as careful.
            code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
            return ControllerResult(refused_token(owner, caller.principal, version, code))
        if owner != caller.principal and not self._may(caller, AclOperation.CREATE_TOKENS, Resource.USER)(owner):
            code = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
            return ControllerResult(refused_token(owner, caller.principal, version, code))
        return self._controller.create_delegation_token(request, version, caller.principal, now_ms)

    def _renew_delegation_token(
        self, request: RenewDelegationTokenRequest, version: int, caller: AuthorizableRequestContext, now_ms: int
    ) -> ControllerResult[RenewDelegationTokenResponse]:
        return self._controller.renew_delegation_token(request, caller.principal, now_ms)

    def _expire_delegation_token(
        self, request: ExpireDelegationTokenRequest, version: int, caller: AuthorizableRequestContext, now_ms: int
    ) -> ControllerResult[ExpireDelegationTokenResponse]:
        return self._controller.expire_delegation_token(request, caller.principal, now_ms)

    # Brokers

    def _register_broker(
        self, request: BrokerRegistrationRequest, version: int, caller: AuthorizableRequestContext, now_ms: int
    ) -> ControllerResult[BrokerRegistrationResponse]:
        self._check_cluster(caller, AclOperation.CLUSTER_ACTION)
        return self._controller.register_broker(request, version, now_ms)

    def _heartbeat(
        self, request: BrokerHeartbeatRequest, version: int, caller: AuthorizableRequestContext, now_ms: int
    ) -> ControllerResult[BrokerHeartbeatResponse]:
        self._check_cluster(caller, AclOperation.CLUSTER_ACTION)
        return self._controller.heartbeat(request, now_ms)

    def _assign_replicas_to_dirs(
        self, request: AssignReplicasToDirsRequest, version: int, caller: AuthorizableRequestContext, now_ms: int
    ) -> ControllerResult[AssignReplicasToDirsResponse]:
        self._check_cluster(caller, AclOperation.CLUSTER_ACTION)
        return self._controller.assign_replicas_to_dirs(request)

    def _alter_partition(
        self, request: AlterPartitionRequest, version: int, caller: AuthorizableRequestContext, now_ms: int
    ) -> ControllerResult[AlterPartitionResponse]:
        self._check_cluster(caller, AclOperation.CLUSTER_ACTION)
        return self._controller.alter_partition(request, version)

    def _elect_leaders(
        self, request: ElectLeadersRequest, version: int, caller: AuthorizableRequestContext, now_ms: int
    ) -> ControllerResult[ElectLeadersResponse]:
        if not self._authorizer.is_allowed(caller, AclOperation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
            denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            return ControllerResult(elect_leaders.elections_refused(request, version, denied))
        return self._controller.elect_leaders(request)

    def _unregister_broker(
        self, request: UnregisterBrokerRequest, version: int, caller: AuthorizableRequestContext, now_ms: int
    ) -> ControllerResult[UnregisterBrokerResponse]:
        self._check_cluster(caller, AclOperation.ALTER)
        return ControllerResult(
            UnregisterBrokerResponse(), self._controller.unregister_broker(request.broker_id).records
        )

    def _allocate_producer_ids(
        self, request: AllocateProducerIdsRequest, version: int, caller: AuthorizableRequestContext, now_ms: int
    ) -> ControllerResult[AllocateProducerIdsResponse]:
        if not self._authorizer.is_allowed(caller, AclOperation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            return ControllerResult(
                AllocateProducerIdsResponse(error_code=code, producer_id_start=0, producer_id_len=0)
            )
        block = self._controller.allocate_producer_ids(request.broker_id, request.broker_epoch)
        first, count = block.response
        return ControllerResult(
            AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=count), block.records
        )

    # The quorum

    def _register_controller(
        self, request: ControllerRegistrationRequest, version: int, caller: AuthorizableRequestContext, now_ms: int
    ) -> ControllerResult[ControllerRegistrationResponse]:
        self._check_cluster(caller, AclOperation.CLUSTER_ACTION)
        return self._controller.register_controller(request)

    def _update_features(
        self, request: UpdateFeaturesRequest, version: int, caller: AuthorizableRequestContext, now_ms: int
    ) -> ControllerResult[UpdateFeaturesResponse]:
        self._check_cluster(caller, AclOperation.ALTER)
        quorum = self._quorum
        voter_ids = [each.replica_id for each in quorum.describe().voters]
        kraft_version = KRaftVersion(quorum.kraft_version, quorum.upgrade_kraft_version)
        return self._controller.update_features(
            request, version, QuorumFeatures(quorum.node_id, voter_ids, kraft_version)
        )

    def _describe_quorum(
        self, request: DescribeQuorumRequest, version: int, caller: AuthorizableRequestContext, now_ms: int
    ) -> ControllerResult[DescribeQuorumResponse]:
        if not self._authorizer.is_allowed(caller, AclOperation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            return ControllerResult(DescribeQuorumResponse(error_code=code, error_message=code.text, topics=[]))
        return ControllerResult(describe_quorum(request, version, self._quorum.describe(), self._own_listeners))


def may_alter_configs(authorizer: Authorizer, caller: AuthorizableRequestContext, resource: ConfigResource) -> bool:
    """Whether the one who asks may change the settings of a resource."""
    if resource.type == ConfigResourceType.TOPIC:
        return authorizer.is_allowed(caller, AclOperation.ALTER_CONFIGS, Resource.TOPIC, resource.name)
    if resource.type == ConfigResourceType.GROUP:
        return authorizer.is_allowed(caller, AclOperation.ALTER_CONFIGS, Resource.GROUP, resource.name)
    return authorizer.is_allowed(caller, AclOperation.ALTER_CONFIGS, Resource.CLUSTER, CLUSTER_NAME)


#: What these decide on is kept with its time, which others must understand.
_BY_THE_CLOCK: Final = (CreateDelegationTokenRequest, RenewDelegationTokenRequest, ExpireDelegationTokenRequest)
_DECISIONS: Final[dict[type[Request], Callable[..., ControllerResult[Any]]]] = {
    CreateTopicsRequest: ControllerApis._create_topics,
    CreatePartitionsRequest: ControllerApis._create_partitions,
    DeleteTopicsRequest: ControllerApis._delete_topics,
    IncrementalAlterConfigsRequest: ControllerApis._incremental_alter_configs,
    AlterConfigsRequest: ControllerApis._alter_configs,
    AlterClientQuotasRequest: ControllerApis._alter_client_quotas,
    CreateAclsRequest: ControllerApis._create_acls,
    DeleteAclsRequest: ControllerApis._delete_acls,
    AlterUserScramCredentialsRequest: ControllerApis._alter_user_scram_credentials,
    CreateDelegationTokenRequest: ControllerApis._create_delegation_token,
    RenewDelegationTokenRequest: ControllerApis._renew_delegation_token,
    ExpireDelegationTokenRequest: ControllerApis._expire_delegation_token,
    BrokerRegistrationRequest: ControllerApis._register_broker,
    BrokerHeartbeatRequest: ControllerApis._heartbeat,
    UnregisterBrokerRequest: ControllerApis._unregister_broker,
    AllocateProducerIdsRequest: ControllerApis._allocate_producer_ids,
    DescribeQuorumRequest: ControllerApis._describe_quorum,
    AlterPartitionRequest: ControllerApis._alter_partition,
    AssignReplicasToDirsRequest: ControllerApis._assign_replicas_to_dirs,
    ElectLeadersRequest: ControllerApis._elect_leaders,
    ControllerRegistrationRequest: ControllerApis._register_controller,
    UpdateFeaturesRequest: ControllerApis._update_features,
}
