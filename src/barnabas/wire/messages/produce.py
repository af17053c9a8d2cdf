"""Produce (0): appends record batches to partitions, one batch each.

v3 is the first with batches of format 2; v7 allows zstd; v8 reports the records that were refused; v10 hints at the
new leader; v12 adds the partition to the transaction by itself; v13 names topics by id. With acks=0 there is no
response. Nodes advertise v0-2, which librdkafka looks for before it enables compression, and refuse them.
"""

from barnabas.base.ids import Uuid
from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int16, Int32, Int64, Records


class PartitionProduceData(Struct):
    index: Int32
    records: Records | None


class TopicProduceData(Struct):
    name: str = field("0-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=Uuid.ZERO, ignorable=True)
    partition_data: list[PartitionProduceData]


class ProduceRequest(Request, api_key=0, versions="0-13", flexible="9+", served="3-13"):
    transactional_id: str | None = field("3+", default=None)
    acks: Int16
    timeout_ms: Int32
    topic_data: list[TopicProduceData]


class BatchIndexAndErrorMessage(Struct):
    batch_index: Int32
    batch_index_error_message: str | None = field(default=None)


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = field(default=-1)
    leader_epoch: Int32 = field(default=-1)


class PartitionProduceResponse(Struct):
    index: Int32
    error_code: Int16 = field(default=0)
    base_offset: Int64
    log_append_time_ms: Int64 = field("2+", default=-1, ignorable=True)
    log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = field("8+", factory=list, ignorable=True)
    error_message: str | None = field("8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch | None = field("10+", tag=0, default=None, nullable="none")


class TopicProduceResponse(Struct):
    name: str = field("0-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=Uuid.ZERO, ignorable=True)
    partition_responses: list[PartitionProduceResponse]


class NodeEndpoint(Struct):
    node_id: Int32
    host: str
    port: Int32
    rack: str | None = field(default=None)


class ProduceResponse(Response, api_key=0, versions="0-13", flexible="9+"):
    responses: list[TopicProduceResponse]
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    node_endpoints: list[NodeEndpoint] = field("10+", tag=0, factory=list)
