"""ListOffsets (2): looks up offsets by timestamp.

Special timestamps: -1 latest, -2 earliest, -3 of the largest timestamp (v7), -4 earliest local (v8), -5 latest tiered
(v9), -6 earliest not yet uploaded (v11). v0 answered with a list of segment starts; v1 with one offset and its
timestamp.
"""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int8, Int16, Int32, Int64


class ListOffsetsPartition(Struct):
    partition_index: Int32
    current_leader_epoch: Int32 = field("4+", default=-1, ignorable=True)
    timestamp: Int64
    max_num_offsets: Int32 = field("0", default=1)


class ListOffsetsTopic(Struct):
    name: str
    partitions: list[ListOffsetsPartition]


class ListOffsetsRequest(Request, api_key=2, versions="0-11", flexible="6+", served="1-11"):
    replica_id: Int32
    isolation_level: Int8 = field("2+", default=0)
    topics: list[ListOffsetsTopic]
    timeout_ms: Int32 = field("10+", default=0, ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    partition_index: Int32
    error_code: Int16 = field(default=0)
    old_style_offsets: list[Int64] = field("0", factory=list)
    timestamp: Int64 = field("1+", default=-1)
    offset: Int64 = field("1+", default=-1)
    leader_epoch: Int32 = field("4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    name: str
    partitions: list[ListOffsetsPartitionResponse]


class ListOffsetsResponse(Response, api_key=2, versions="0-11", flexible="6+"):
    throttle_time_ms: Int32 = field("2+", default=0, ignorable=True)
    topics: list[ListOffsetsTopicResponse]
