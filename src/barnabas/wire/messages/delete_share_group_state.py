"""DeleteShareGroupState (86): deletes the stored state of a share partition."""

from barnabas.base.ids import Uuid
from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int16, Int32


class PartitionData(Struct):
    partition: Int32


class DeleteStateData(Struct):
    topic_id: Uuid
    partitions: list[PartitionData]


class DeleteShareGroupStateRequest(Request, api_key=86, versions="0", flexible="0+"):
    group_id: str
    topics: list[DeleteStateData]


class PartitionResult(Struct):
    partition: Int32
    error_code: Int16 = field(default=0)
    error_message: str | None = field(default=None)


class DeleteStateResult(Struct):
    topic_id: Uuid
    partitions: list[PartitionResult]


class DeleteShareGroupStateResponse(Response, api_key=86, versions="0", flexible="0+"):
    results: list[DeleteStateResult]
