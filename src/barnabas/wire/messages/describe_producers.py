"""DescribeProducers (61): producers that a partition knows."""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int16, Int32, Int64


class TopicRequest(Struct):
    name: str
    partition_indexes: list[Int32]


class DescribeProducersRequest(Request, api_key=61, versions="0", flexible="0+"):
    topics: list[TopicRequest]


class ProducerState(Struct):
    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = field(default=-1)
    last_timestamp: Int64 = field(default=-1)
    coordinator_epoch: Int32
    current_txn_start_offset: Int64 = field(default=-1)


class PartitionResponse(Struct):
    partition_index: Int32
    error_code: Int16 = field(default=0)
    error_message: str | None = field(default=None)
    active_producers: list[ProducerState]


class TopicResponse(Struct):
    name: str
    partitions: list[PartitionResponse]


class DescribeProducersResponse(Response, api_key=61, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field(default=0)
    topics: list[TopicResponse]
