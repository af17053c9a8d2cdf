"""LeaderAndIsr (4): a ZooKeeper-era controller tells brokers what they lead and follow.

Declared to read old captures; never advertised.
"""

from barnabas.base.ids import Uuid
from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int8, Int16, Int32, Int64


class LeaderAndIsrPartitionState(Struct):
    topic_name: str = field("0-1", default="", ignorable=True)
    partition_index: Int32
    controller_epoch: Int32
    leader: Int32
    leader_epoch: Int32
    isr: list[Int32]
    partition_epoch: Int32
    replicas: list[Int32]
    adding_replicas: list[Int32] = field("3+", factory=list, ignorable=True)
    removing_replicas: list[Int32] = field("3+", factory=list, ignorable=True)
    is_new: bool = field("1+", default=False, ignorable=True)
    leader_recovery_state: Int8 = field("6+", default=0)


class LeaderAndIsrTopicState(Struct):
    topic_name: str
    topic_id: Uuid = field("5+", default=Uuid.ZERO, ignorable=True)
    partition_states: list[LeaderAndIsrPartitionState]


class LeaderAndIsrLiveLeader(Struct):
    broker_id: Int32
    host_name: str
    port: Int32


class LeaderAndIsrRequest(Request, api_key=4, versions="0-7", flexible="4+", served="none", listeners=""):
    controller_id: Int32
    is_k_raft_controller: bool = field("7+", default=False)
    controller_epoch: Int32
    broker_epoch: Int64 = field("2+", default=-1, ignorable=True)
    type: Int8 = field("5+", default=0)
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = field("0-1", factory=list)
    topic_states: list[LeaderAndIsrTopicState] = field("2+", factory=list)
    live_leaders: list[LeaderAndIsrLiveLeader]


class LeaderAndIsrPartitionError(Struct):
    topic_name: str = field("0-4", default="", ignorable=True)
    partition_index: Int32
    error_code: Int16 = field(default=0)


class LeaderAndIsrTopicError(Struct):
    topic_id: Uuid
    partition_errors: list[LeaderAndIsrPartitionError]


class LeaderAndIsrResponse(Response, api_key=4, versions="0-7", flexible="4+"):
    error_code: Int16 = field(default=0)
    partition_errors: list[LeaderAndIsrPartitionError] = field("0-4", factory=list)
    topics: list[LeaderAndIsrTopicError] = field("5+", factory=list)
