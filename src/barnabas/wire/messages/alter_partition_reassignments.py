"""AlterPartitionReassignments (45): moves partitions to other brokers.

Null replicas cancel a move. v1 may forbid a change of the replication factor.
"""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int16, Int32


class ReassignablePartition(Struct):
    partition_index: Int32
    replicas: list[Int32] | None = field(default=None)


class ReassignableTopic(Struct):
    name: str
    partitions: list[ReassignablePartition]


class AlterPartitionReassignmentsRequest(
    Request, api_key=45, versions="0-1", flexible="0+", listeners="broker controller"
):
    timeout_ms: Int32 = field(default=60000)
    allow_replication_factor_change: bool = field("1+", default=True)
    topics: list[ReassignableTopic]


class ReassignablePartitionResponse(Struct):
    partition_index: Int32
    error_code: Int16 = field(default=0)
    error_message: str | None = field(default="")


class ReassignableTopicResponse(Struct):
    name: str
    partitions: list[ReassignablePartitionResponse]


class AlterPartitionReassignmentsResponse(Response, api_key=45, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = field(default=0)
    allow_replication_factor_change: bool = field("1+", default=True, ignorable=True)
    error_code: Int16 = field(default=0)
    error_message: str | None = field(default="")
    responses: list[ReassignableTopicResponse]
