"""BeginQuorumEpoch (53): a new leader of the metadata quorum announces itself."""

from barnabas.base.ids import Uuid
from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int16, Int32, UInt16


class PartitionData(Struct):
    partition_index: Int32
    voter_directory_id: Uuid = field("1+", default=Uuid.ZERO, ignorable=True)
    leader_id: Int32
    leader_epoch: Int32


class TopicData(Struct):
    topic_name: str
    partitions: list[PartitionData]


class LeaderEndpoint(Struct):
    name: str
    host: str
    port: UInt16


class BeginQuorumEpochRequest(Request, api_key=53, versions="0-1", flexible="1+", listeners="controller"):
    cluster_id: str | None = field(default=None)
    voter_id: Int32 = field("1+", default=-1, ignorable=True)
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


class BeginQuorumEpochResponse(Response, api_key=53, versions="0-1", flexible="1+"):
    error_code: Int16 = field(default=0)
    topics: list[TopicResult]
    node_endpoints: list[NodeEndpoint] = field("1+", tag=0, factory=list)
