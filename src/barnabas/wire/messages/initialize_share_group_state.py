"""InitializeShareGroupState (83): begins the stored state of a share partition."""

from barnabas.base.ids import Uuid
from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int16, Int32, Int64


class PartitionData(Struct):
    partition: Int32
    state_epoch: Int32
    start_offset: Int64


class InitializeStateData(Struct):
    topic_id: Uuid
    partitions: list[PartitionData]


class InitializeShareGroupStateRequest(Request, api_key=83, versions="0", flexible="0+"):
    group_id: str
    topics: list[InitializeStateData]


class PartitionResult(Struct):
    partition: Int32
    error_code: Int16 = field(default=0)
    error_message: str | None = field(default=None)


class InitializeStateResult(Struct):
    topic_id: Uuid
    partitions: list[PartitionResult]


class InitializeShareGroupStateResponse(Response, api_key=83, versions="0", flexible="0+"):
    results: list[InitializeStateResult]
