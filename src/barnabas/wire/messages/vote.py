"""Vote (52): a candidate of the metadata quorum asks for votes.

v1 knows voters by id and directory; v2 can ask without consequences (pre-vote).
"""

from barnabas.base.ids import Uuid
from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int16, Int32, Int64, UInt16


class PartitionData(Struct):
    partition_index: Int32
    replica_epoch: Int32
    replica_id: Int32
    replica_directory_id: Uuid = field("1+", default=Uuid.ZERO, ignorable=True)
    voter_directory_id: Uuid = field("1+", default=Uuid.ZERO, ignorable=True)
    last_offset_epoch: Int32
    last_offset: Int64
    pre_vote: bool = field("2+", default=False)


class TopicData(Struct):
    topic_name: str
    partitions: list[PartitionData]


class VoteRequest(Request, api_key=52, versions="0-2", flexible="0+", listeners="controller"):
    cluster_id: str | None = field(default=None)
    voter_id: Int32 = field("1+", default=-1, ignorable=True)
    topics: list[TopicData]


class PartitionResult(Struct):
    partition_index: Int32
    error_code: Int16 = field(default=0)
    leader_id: Int32
    leader_epoch: Int32
    vote_granted: bool


class TopicResult(Struct):
    topic_name: str
    partitions: list[PartitionResult]


class NodeEndpoint(Struct):
    node_id: Int32
    host: str
    port: UInt16


class VoteResponse(Response, api_key=52, versions="0-2", flexible="0+"):
    error_code: Int16 = field(default=0)
    topics: list[TopicResult]
    node_endpoints: list[NodeEndpoint] = field("1+", tag=0, factory=list)
