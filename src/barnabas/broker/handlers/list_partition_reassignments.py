"""ListPartitionReassignments (46): replicas on the move. A cluster of one node has nowhere to move them."""

from __future__ import annotations

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.context import RequestContext
from barnabas.broker.services import CommonServices
from barnabas.metadata.authorizer import CLUSTER_NAME, AclOperation, Resource
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

API_KEY = ApiKey.LIST_PARTITION_REASSIGNMENTS


def handle(
    services: CommonServices, context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    if not services.authorizer.is_allowed(context, AclOperation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return ListPartitionReassignmentsResponse(error_code=denied, error_message=denied.text, topics=[])
    return ListPartitionReassignmentsResponse(error_message=None, topics=[])
