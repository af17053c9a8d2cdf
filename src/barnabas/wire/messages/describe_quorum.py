"""DescribeQuorum (55): leader, voters and observers of the metadata quorum."""

from barnabas.base.ids import Uuid
from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int16, Int32, Int64, UInt16


class PartitionData(Struct):
    partition_index: Int32


class TopicData(Struct):
    topic_name: str
    partitions: list[PartitionData]


class DescribeQuorumRequest(Request, api_key=55, versions="0-2", flexible="0+", listeners="broker controller"):
    topics: list[TopicData]


class ReplicaState(Struct):
    replica_id: Int32
    replica_directory_id: Uuid = field("2+", default=Uuid.ZERO)
    log_end_offset: Int64
    last_fetch_timestamp: Int64 = field("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: Int64 = field("1+", default=-1, ignorable=True)


class PartitionResult(Struct):
    partition_index: Int32
    error_code: Int16 = field(default=0)
    error_message: str | None = field("2+", default="", ignorable=True)
    leader_id: Int32
    leader_epoch: Int32
    high_watermark: Int64
    current_voters: list[ReplicaState]
    observers: list[ReplicaState]


class TopicResult(Struct):
    topic_name: str
    partitions: list[PartitionResult]


class Listener(Struct):
    name: str
    host: str
    port: UInt16


class Node(Struct):
    node_id: Int32
    listeners: list[Listener]


class DescribeQuorumResponse(Response, api_key=55, versions="0-2", flexible="0+"):
    error_code: Int16 = field(default=0)
    error_message: str | None = field("2+", default="", ignorable=True)
    topics: list[TopicResult]
    nodes: list[Node] = field("2+", factory=list)
