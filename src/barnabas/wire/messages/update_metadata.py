"""UpdateMetadata (6): a ZooKeeper-era controller spreads cluster metadata.

Declared to read old captures; never advertised.
"""

from barnabas.base.ids import Uuid
from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int8, Int16, Int32, Int64


class UpdateMetadataPartitionState(Struct):
    topic_name: str = field("0-4", default="", ignorable=True)
    partition_index: Int32
    controller_epoch: Int32
    leader: Int32
    leader_epoch: Int32
    isr: list[Int32]
    zk_version: Int32
    replicas: list[Int32]
    offline_replicas: list[Int32] = field("4+", factory=list, ignorable=True)


class UpdateMetadataTopicState(Struct):
    topic_name: str
    topic_id: Uuid = field("7+", default=Uuid.ZERO, ignorable=True)
    partition_states: list[UpdateMetadataPartitionState]


class UpdateMetadataEndpoint(Struct):
    port: Int32
    host: str
    listener: str = field("3+", default="", ignorable=True)
    security_protocol: Int16


class UpdateMetadataBroker(Struct):
    id: Int32
    v0_host: str = field("0", default="", ignorable=True)
    v0_port: Int32 = field("0", default=0, ignorable=True)
    endpoints: list[UpdateMetadataEndpoint] = field("1+", factory=list, ignorable=True)
    rack: str | None = field("2+", default="", ignorable=True)


class UpdateMetadataRequest(Request, api_key=6, versions="0-8", flexible="6+", served="none", listeners=""):
    controller_id: Int32
    is_k_raft_controller: bool = field("8+", default=False)
    type: Int8 = field("8+", tag=0, default=0)
    controller_epoch: Int32
    broker_epoch: Int64 = field("5+", default=-1, ignorable=True)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = field("0-4", factory=list)
    topic_states: list[UpdateMetadataTopicState] = field("5+", factory=list)
    live_brokers: list[UpdateMetadataBroker]


class UpdateMetadataResponse(Response, api_key=6, versions="0-8", flexible="6+"):
    error_code: Int16 = field(default=0)
