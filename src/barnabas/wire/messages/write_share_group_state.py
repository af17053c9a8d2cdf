"""WriteShareGroupState (85): stores the state of a share partition."""

from barnabas.base.ids import Uuid
from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int8, Int16, Int32, Int64


class StateBatch(Struct):
    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16


class PartitionData(Struct):
    partition: Int32
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = field("1+", default=-1, ignorable=True)
    state_batches: list[StateBatch]


class WriteStateData(Struct):
    topic_id: Uuid
    partitions: list[PartitionData]


class WriteShareGroupStateRequest(Request, api_key=85, versions="0-1", flexible="0+"):
    group_id: str
    topics: list[WriteStateData]


class PartitionResult(Struct):
    partition: Int32
    error_code: Int16 = field(default=0)
    error_message: str | None = field(default=None)


class WriteStateResult(Struct):
    topic_id: Uuid
    partitions: list[PartitionResult]


class WriteShareGroupStateResponse(Response, api_key=85, versions="0-1", flexible="0+"):
    results: list[WriteStateResult]
