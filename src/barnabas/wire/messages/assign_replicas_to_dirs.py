"""AssignReplicasToDirs (73): a broker reports on which disk its replicas lie."""

from barnabas.base.ids import Uuid
from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int16, Int32, Int64


class PartitionData(Struct):
    partition_index: Int32


class TopicData(Struct):
    topic_id: Uuid
    partitions: list[PartitionData]


class DirectoryData(Struct):
    id: Uuid
    topics: list[TopicData]


class AssignReplicasToDirsRequest(Request, api_key=73, versions="0", flexible="0+", listeners="controller"):
    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)
    directories: list[DirectoryData]


class PartitionResult(Struct):
    partition_index: Int32
    error_code: Int16 = field(default=0)


class TopicResult(Struct):
    topic_id: Uuid
    partitions: list[PartitionResult]


class DirectoryResult(Struct):
    id: Uuid
    topics: list[TopicResult]


class AssignReplicasToDirsResponse(Response, api_key=73, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    directories: list[DirectoryResult]
