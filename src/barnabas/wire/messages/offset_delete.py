"""OffsetDelete (47): forgets offsets of a group.

Never flexible.
"""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int16, Int32


class OffsetDeleteRequestPartition(Struct):
    partition_index: Int32


class OffsetDeleteRequestTopic(Struct):
    name: str
    partitions: list[OffsetDeleteRequestPartition]


class OffsetDeleteRequest(Request, api_key=47, versions="0"):
    group_id: str
    topics: list[OffsetDeleteRequestTopic]


class OffsetDeleteResponsePartition(Struct):
    partition_index: Int32
    error_code: Int16 = field(default=0)


class OffsetDeleteResponseTopic(Struct):
    name: str
    partitions: list[OffsetDeleteResponsePartition]


class OffsetDeleteResponse(Response, api_key=47, versions="0"):
    error_code: Int16 = field(default=0)
    throttle_time_ms: Int32 = field(default=0)
    topics: list[OffsetDeleteResponseTopic]
