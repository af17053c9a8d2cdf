"""CreatePartitions (37): adds partitions to topics."""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int16, Int32


class CreatePartitionsAssignment(Struct):
    broker_ids: list[Int32]


class CreatePartitionsTopic(Struct):
    name: str
    count: Int32
    assignments: list[CreatePartitionsAssignment] | None


class CreatePartitionsRequest(Request, api_key=37, versions="0-3", flexible="2+", listeners="broker controller"):
    topics: list[CreatePartitionsTopic]
    timeout_ms: Int32
    validate_only: bool


class CreatePartitionsTopicResult(Struct):
    name: str
    error_code: Int16 = field(default=0)
    error_message: str | None = field(default=None)


class CreatePartitionsResponse(Response, api_key=37, versions="0-3", flexible="2+"):
    throttle_time_ms: Int32 = field(default=0)
    results: list[CreatePartitionsTopicResult]
