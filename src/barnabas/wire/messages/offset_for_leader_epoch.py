"""OffsetForLeaderEpoch (23): where the log of a leader epoch ended.

Consumers find out with it whether the log was cut below their position.
"""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int16, Int32, Int64


class OffsetForLeaderPartition(Struct):
    partition: Int32
    current_leader_epoch: Int32 = field("2+", default=-1, ignorable=True)
    leader_epoch: Int32


class OffsetForLeaderTopic(Struct):
    topic: str
    partitions: list[OffsetForLeaderPartition]


class OffsetForLeaderEpochRequest(Request, api_key=23, versions="0-4", flexible="4+", served="2-4"):
    replica_id: Int32 = field("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic]


class EpochEndOffset(Struct):
    error_code: Int16 = field(default=0)
    partition: Int32
    leader_epoch: Int32 = field("1+", default=-1, ignorable=True)
    end_offset: Int64 = field(default=-1)


class OffsetForLeaderTopicResult(Struct):
    topic: str
    partitions: list[EpochEndOffset]


class OffsetForLeaderEpochResponse(Response, api_key=23, versions="0-4", flexible="4+"):
    throttle_time_ms: Int32 = field("2+", default=0, ignorable=True)
    topics: list[OffsetForLeaderTopicResult]
