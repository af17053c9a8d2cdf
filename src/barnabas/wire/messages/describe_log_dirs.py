"""DescribeLogDirs (35): disks of a broker and what lies on them.

v4 adds sizes, v5 cordoned disks.
"""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int16, Int32, Int64


class DescribableLogDirTopic(Struct):
    topic: str
    partitions: list[Int32]


class DescribeLogDirsRequest(Request, api_key=35, versions="0-5", flexible="2+", served="1-5"):
    topics: list[DescribableLogDirTopic] | None


class DescribeLogDirsPartition(Struct):
    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64
    is_future_key: bool


class DescribeLogDirsTopic(Struct):
    name: str
    partitions: list[DescribeLogDirsPartition]


class DescribeLogDirsResult(Struct):
    error_code: Int16 = field(default=0)
    log_dir: str
    topics: list[DescribeLogDirsTopic]
    total_bytes: Int64 = field("4+", default=-1, ignorable=True)
    usable_bytes: Int64 = field("4+", default=-1, ignorable=True)
    is_cordoned: bool = field("5+", default=False, ignorable=True)


class DescribeLogDirsResponse(Response, api_key=35, versions="0-5", flexible="2+"):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field("3+", default=0, ignorable=True)
    results: list[DescribeLogDirsResult]
