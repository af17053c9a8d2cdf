"""DescribeCluster (60): the brokers, or from v1 on the controllers, of this cluster.

Brokers are told on their listeners, controllers on theirs. v2 also lists fenced brokers.
"""

from __future__ import annotations

from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.broker.context import NOT_ASKED, RequestContext
from barnabas.broker.services import CommonServices, ControllerServices
from barnabas.metadata.authorizer import CLUSTER_NAME, AclOperation, Resource, cluster_authorized_operations
from barnabas.metadata.features import CONTROLLER_REGISTRATION
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

API_KEY = ApiKey.DESCRIBE_CLUSTER

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


def handle(
    services: CommonServices, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    is_controller_listener = context.listener in services.settings.controller_listeners
    expected = _CONTROLLERS if is_controller_listener else _BROKERS
    if is_controller_listener and not services.authorizer.is_allowed(
        context, AclOperation.ALTER, Resource.CLUSTER, CLUSTER_NAME
    ):
        # Unlike brokers, controllers tell this only to those who may change the cluster.
        raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if request.endpoint_type != expected:
        if request.endpoint_type in (_BROKERS, _CONTROLLERS):
            code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
            message = f"{context.listener} is a listener of {'controllers' if is_controller_listener else 'brokers'}"
        else:
            code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
            message = f"there is no endpoint type {request.endpoint_type}"
        return DescribeClusterResponse(error_code=code, error_message=message, cluster_id="", brokers=[])
    version = services.metadata.image.features.metadata_version or 0
    if is_controller_listener and version < CONTROLLER_REGISTRATION:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_VERSION,
            "Direct-to-controller communication is not supported with the current MetadataVersion.",
        )
    operations = NOT_ASKED
    if request.include_cluster_authorized_operations:
        operations = cluster_authorized_operations(services.authorizer, context)
    return DescribeClusterResponse(
        endpoint_type=expected,
        cluster_id=services.cluster_id,
        controller_id=services.leader_id() if isinstance(services, ControllerServices) else services.node_id,
        brokers=_controllers(services, context) if is_controller_listener else _brokers(services, context, request),
        cluster_authorized_operations=operations,
    )


def _brokers(
    services: CommonServices, context: RequestContext, request: DescribeClusterRequest
) -> list[DescribeClusterBroker]:
    return [
        DescribeClusterBroker(
            broker_id=broker.broker_id,
            host=endpoint.host,
            port=endpoint.port,
            rack=broker.rack,
            is_fenced=broker.is_fenced,
        )
        for _, broker in sorted(services.metadata.image.brokers.items())
        if (endpoint := broker.endpoint(context.listener)) is not None
        and (not broker.is_fenced or request.include_fenced_brokers)
    ]


def _controllers(services: CommonServices, context: RequestContext) -> list[DescribeClusterBroker]:
    """Those that have registered, and this one if it has not yet."""
    host, port = services.endpoints[context.listener]
    found = {services.node_id: DescribeClusterBroker(broker_id=services.node_id, host=host or "localhost", port=port)}
    for node_id, controller in services.metadata.image.controllers.items():
        endpoint = next((each for each in controller.endpoints if each.listener == context.listener), None)
        if endpoint is not None:
            found[node_id] = DescribeClusterBroker(broker_id=node_id, host=endpoint.host, port=endpoint.port)
    return [found[node_id] for node_id in sorted(found)]
