"""ListPartitionReassignments (46): replicas on the move.

Nothing here begins to move any, but a cluster that was Kafka's may have some: they come to their end when those that
were to come are in sync.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.context import RequestContext
from barnabas.broker.services import CommonServices
from barnabas.broker.turns import Steps
from barnabas.metadata.authorizer import CLUSTER_NAME, AclOperation, Resource
from barnabas.metadata.image import PartitionImage
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

API_KEY = ApiKey.LIST_PARTITION_REASSIGNMENTS


def handle(
    services: CommonServices, context: RequestContext, request: ListPartitionReassignmentsRequest
) -> Steps[ListPartitionReassignmentsResponse]:
    if not services.authorizer.is_allowed(context, AclOperation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return ListPartitionReassignmentsResponse(error_code=denied, error_message=denied.text, topics=[])
    image = services.metadata.image
    wanted: Iterable[tuple[str, Iterable[int]]]
    if request.topics is None:
        wanted = ((name, range(len(topic.partitions))) for name, topic in image.topics.items())
    else:
        wanted = ((each.name, each.partition_indexes) for each in request.topics)
    topics = []
    for name, numbers in wanted:
        yield None
        moving = []
        for number in numbers:
            yield None
            found = _moving(number, image.partition(name, number))
            if found is not None:
                moving.append(found)
        if moving:
            topics.append(OngoingTopicReassignment(name=name, partitions=moving))
    return ListPartitionReassignmentsResponse(error_message=None, topics=topics)


def _moving(number: int, partition: PartitionImage | None) -> OngoingPartitionReassignment | None:
    if partition is None or not (partition.adding_replicas or partition.removing_replicas):
        return None
    return OngoingPartitionReassignment(
        partition_index=number,
        replicas=list(partition.replicas),
        adding_replicas=list(partition.adding_replicas),
        removing_replicas=list(partition.removing_replicas),
    )
