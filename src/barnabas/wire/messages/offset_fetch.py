"""OffsetFetch (9): how far a group has read.

`topics` null asks for all (v2); v7 waits for open transactions; v8 asks for several groups at once, in another shape;
v9 adds the member; v10 names topics by id.
"""

from barnabas.base.ids import Uuid
from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int16, Int32, Int64


class OffsetFetchRequestTopic(Struct):
    name: str
    partition_indexes: list[Int32]


class OffsetFetchRequestTopics(Struct):
    name: str = field("8-9", default="", ignorable=True)
    topic_id: Uuid = field("10+", default=Uuid.ZERO, ignorable=True)
    partition_indexes: list[Int32]


class OffsetFetchRequestGroup(Struct):
    group_id: str
    member_id: str | None = field("9+", default=None, ignorable=True)
    member_epoch: Int32 = field("9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None


class OffsetFetchRequest(Request, api_key=9, versions="0-10", flexible="6+", served="1-10"):
    group_id: str = field("0-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = field("0-7", factory=list, nullable="2+")
    groups: list[OffsetFetchRequestGroup] = field("8+", factory=list)
    require_stable: bool = field("7+", default=False)


class OffsetFetchResponsePartition(Struct):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field("5+", default=-1, ignorable=True)
    metadata: str | None
    error_code: Int16 = field(default=0)


class OffsetFetchResponseTopic(Struct):
    name: str
    partitions: list[OffsetFetchResponsePartition]


class OffsetFetchResponsePartitions(Struct):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field(default=-1)
    metadata: str | None
    error_code: Int16 = field(default=0)


class OffsetFetchResponseTopics(Struct):
    name: str = field("8-9", default="", ignorable=True)
    topic_id: Uuid = field("10+", default=Uuid.ZERO, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions]


class OffsetFetchResponseGroup(Struct):
    group_id: str
    topics: list[OffsetFetchResponseTopics]
    error_code: Int16 = field(default=0)


class OffsetFetchResponse(Response, api_key=9, versions="0-10", flexible="6+"):
    throttle_time_ms: Int32 = field("3+", default=0, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field("0-7", factory=list)
    error_code: Int16 = field("2-7", default=0, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field("8+", factory=list)
