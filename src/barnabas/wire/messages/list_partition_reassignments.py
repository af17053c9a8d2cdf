"""ListPartitionReassignments (46): moves that are going on."""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int16, Int32


class ListPartitionReassignmentsTopics(Struct):
    name: str
    partition_indexes: list[Int32]


class ListPartitionReassignmentsRequest(
    Request, api_key=46, versions="0", flexible="0+", listeners="broker controller"
):
    timeout_ms: Int32 = field(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = field(default=None)


class OngoingPartitionReassignment(Struct):
    partition_index: Int32
    replicas: list[Int32]
    adding_replicas: list[Int32]
    removing_replicas: list[Int32]


class OngoingTopicReassignment(Struct):
    name: str
    partitions: list[OngoingPartitionReassignment]


class ListPartitionReassignmentsResponse(Response, api_key=46, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: str | None = field(default="")
    topics: list[OngoingTopicReassignment]
