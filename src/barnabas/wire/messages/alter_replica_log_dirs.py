"""AlterReplicaLogDirs (34): moves replicas to another disk of the same broker."""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int16, Int32


class AlterReplicaLogDirTopic(Struct):
    name: str
    partitions: list[Int32]


class AlterReplicaLogDir(Struct):
    path: str
    topics: list[AlterReplicaLogDirTopic]


class AlterReplicaLogDirsRequest(Request, api_key=34, versions="0-2", flexible="2+", served="1-2"):
    dirs: list[AlterReplicaLogDir]


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: Int32
    error_code: Int16 = field(default=0)


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: str
    partitions: list[AlterReplicaLogDirPartitionResult]


class AlterReplicaLogDirsResponse(Response, api_key=34, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32 = field(default=0)
    results: list[AlterReplicaLogDirTopicResult]
