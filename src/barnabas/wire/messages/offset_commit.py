"""OffsetCommit (8): stores how far a group has read.

v2-4 carry a retention time; v6 leader epochs; v7 static members; v9 member epochs in place of generations; v10 topic
ids.
"""

from barnabas.base.ids import Uuid
from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int16, Int32, Int64


class OffsetCommitRequestPartition(Struct):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field("6+", default=-1, ignorable=True)
    commit_timestamp: Int64 = field("1", default=-1)
    committed_metadata: str | None


class OffsetCommitRequestTopic(Struct):
    name: str = field("0-9", default="", ignorable=True)
    topic_id: Uuid = field("10+", default=Uuid.ZERO, ignorable=True)
    partitions: list[OffsetCommitRequestPartition]


class OffsetCommitRequest(Request, api_key=8, versions="0-10", flexible="8+", served="2-10"):
    group_id: str
    generation_id_or_member_epoch: Int32 = field("1+", default=-1, ignorable=True)
    member_id: str = field("1+", default="", ignorable=True)
    group_instance_id: str | None = field("7+", default=None)
    retention_time_ms: Int64 = field("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic]


class OffsetCommitResponsePartition(Struct):
    partition_index: Int32
    error_code: Int16 = field(default=0)


class OffsetCommitResponseTopic(Struct):
    name: str = field("0-9", default="", ignorable=True)
    topic_id: Uuid = field("10+", default=Uuid.ZERO, ignorable=True)
    partitions: list[OffsetCommitResponsePartition]


class OffsetCommitResponse(Response, api_key=8, versions="0-10", flexible="8+"):
    throttle_time_ms: Int32 = field("3+", default=0, ignorable=True)
    topics: list[OffsetCommitResponseTopic]
