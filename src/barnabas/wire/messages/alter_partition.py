"""AlterPartition (56): a leader changes the in-sync set of its partitions.

v2 uses topic ids; v3 names replicas with their broker epochs.
"""

from barnabas.base.ids import Uuid
from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int8, Int16, Int32, Int64


class BrokerState(Struct):
    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)


class PartitionData(Struct):
    partition_index: Int32
    leader_epoch: Int32
    new_isr: list[Int32] = field("0-2", factory=list)
    new_isr_with_epochs: list[BrokerState] = field("3+", factory=list)
    leader_recovery_state: Int8 = field("1+", default=0)
    partition_epoch: Int32


class TopicData(Struct):
    topic_name: str = field("0-1", default="", ignorable=True)
    topic_id: Uuid = field("2+", default=Uuid.ZERO, ignorable=True)
    partitions: list[PartitionData]


class AlterPartitionRequest(Request, api_key=56, versions="0-3", flexible="0+", served="2-3", listeners="controller"):
    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)
    topics: list[TopicData]


class PartitionResult(Struct):
    partition_index: Int32
    error_code: Int16 = field(default=0)
    leader_id: Int32
    leader_epoch: Int32
    isr: list[Int32]
    leader_recovery_state: Int8 = field("1+", default=0, ignorable=True)
    partition_epoch: Int32


class TopicResult(Struct):
    topic_name: str = field("0-1", default="", ignorable=True)
    topic_id: Uuid = field("2+", default=Uuid.ZERO, ignorable=True)
    partitions: list[PartitionResult]


class AlterPartitionResponse(Response, api_key=56, versions="0-3", flexible="0+"):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    topics: list[TopicResult]
