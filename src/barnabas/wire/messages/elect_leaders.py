"""ElectLeaders (43): makes a replica the leader: the preferred one, or from v1 also an unclean one."""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int8, Int16, Int32


class TopicPartitions(Struct):
    topic: str
    partitions: list[Int32]


class ElectLeadersRequest(Request, api_key=43, versions="0-2", flexible="2+", listeners="broker controller"):
    election_type: Int8 = field("1+", default=0)
    topic_partitions: list[TopicPartitions] | None
    timeout_ms: Int32 = field(default=60000)


class PartitionResult(Struct):
    partition_id: Int32
    error_code: Int16 = field(default=0)
    error_message: str | None = field(default="")


class ReplicaElectionResult(Struct):
    topic: str
    partition_result: list[PartitionResult]


class ElectLeadersResponse(Response, api_key=43, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field("1+", default=0)
    replica_election_results: list[ReplicaElectionResult]
