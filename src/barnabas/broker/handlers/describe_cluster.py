"""DescribeCluster (60): the brokers, or from v1 on the controllers, of this cluster.

Brokers are told on their listeners, controllers on theirs. v2 also lists fenced brokers.
"""

from __future__ import annotations

from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.context import NOT_ASKED, RequestContext
from barnabas.broker.services import CommonServices
from barnabas.metadata.authorizer import CLUSTER_NAME, Resource, authorized_operations
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
    if request.endpoint_type != expected:
        if request.endpoint_type in (_BROKERS, _CONTROLLERS):
            code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
            message = f"{context.listener} is a listener of {'controllers' if is_controller_listener else 'brokers'}"
        else:
            code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
            message = f"there is no endpoint type {request.endpoint_type}"
        return DescribeClusterResponse(
            error_code=code, error_message=message, endpoint_type=expected, cluster_id="", brokers=[]
        )
    operations = NOT_ASKED
    if request.include_cluster_authorized_operations:
        operations = authorized_operations(services.authorizer, context, Resource.CLUSTER, CLUSTER_NAME)
    return DescribeClusterResponse(
        endpoint_type=expected,
        cluster_id=services.cluster_id,
        controller_id=services.node_id,
        brokers=_controllers(services) if is_controller_listener else _brokers(services, context, request),
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


def _controllers(services: CommonServices) -> list[DescribeClusterBroker]:
    first = services.settings.controller_listeners[0]
    host, port = services.endpoints[first]
    return [DescribeClusterBroker(broker_id=services.node_id, host=host, port=port)]
