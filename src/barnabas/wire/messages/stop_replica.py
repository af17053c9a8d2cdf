"""StopReplica (5): a ZooKeeper-era controller tells brokers to give up replicas.

Declared to read old captures; never advertised.
"""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int16, Int32, Int64


class StopReplicaPartitionV0(Struct):
    topic_name: str
    partition_index: Int32


class StopReplicaTopicV1(Struct):
    name: str
    partition_indexes: list[Int32]


class StopReplicaPartitionState(Struct):
    partition_index: Int32
    leader_epoch: Int32 = field(default=-1)
    delete_partition: bool


class StopReplicaTopicState(Struct):
    topic_name: str
    partition_states: list[StopReplicaPartitionState]


class StopReplicaRequest(Request, api_key=5, versions="0-4", flexible="2+", served="none", listeners=""):
    controller_id: Int32
    is_k_raft_controller: bool = field("4+", default=False)
    controller_epoch: Int32
    broker_epoch: Int64 = field("1+", default=-1, ignorable=True)
    delete_partitions: bool = field("0-2", default=False)
    ungrouped_partitions: list[StopReplicaPartitionV0] = field("0", factory=list)
    topics: list[StopReplicaTopicV1] = field("1-2", factory=list)
    topic_states: list[StopReplicaTopicState] = field("3+", factory=list)


class StopReplicaPartitionError(Struct):
    topic_name: str
    partition_index: Int32
    error_code: Int16 = field(default=0)


class StopReplicaResponse(Response, api_key=5, versions="0-4", flexible="2+"):
    error_code: Int16 = field(default=0)
    partition_errors: list[StopReplicaPartitionError]
