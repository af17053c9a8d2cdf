"""EndQuorumEpoch (54): a leader of the metadata quorum resigns and names successors."""

from barnabas.base.ids import Uuid
from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int16, Int32, UInt16


class ReplicaInfo(Struct):
    candidate_id: Int32
    candidate_directory_id: Uuid


class PartitionData(Struct):
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32
    preferred_successors: list[Int32] = field("0", factory=list, ignorable=True)
    preferred_candidates: list[ReplicaInfo] = field("1+", factory=list, ignorable=True)


class TopicData(Struct):
    topic_name: str
    partitions: list[PartitionData]


class LeaderEndpoint(Struct):
    name: str
    host: str
    port: UInt16


class EndQuorumEpochRequest(Request, api_key=54, versions="0-1", flexible="1+", listeners="controller"):
    cluster_id: str | None = field(default=None)
    topics: list[TopicData]
    leader_endpoints: list[LeaderEndpoint] = field("1+", factory=list, ignorable=True)


class PartitionResult(Struct):
    partition_index: Int32
    error_code: Int16 = field(default=0)
    leader_id: Int32
    leader_epoch: Int32


class TopicResult(Struct):
    topic_name: str
    partitions: list[PartitionResult]


class NodeEndpoint(Struct):
    node_id: Int32
    host: str
    port: UInt16


class EndQuorumEpochResponse(Response, api_key=54, versions="0-1", flexible="1+"):
    error_code: Int16 = field(default=0)
    topics: list[TopicResult]
    node_endpoints: list[NodeEndpoint] = field("1+", tag=0, factory=list)
