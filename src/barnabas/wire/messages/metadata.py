"""Metadata (3): brokers, topics and who leads their partitions.

`topics`: null asks for all (an empty list did in v0), an empty list for none. v4 may forbid creating missing topics;
v10 adds topic ids, v12 asks by id; v13 can tell the client to start again from its bootstrap servers.
"""

from barnabas.base.ids import Uuid
from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int16, Int32


class MetadataRequestTopic(Struct):
    topic_id: Uuid = field("10+", default=Uuid.ZERO, ignorable=True)
    name: str | None = field(nullable="10+")


class MetadataRequest(Request, api_key=3, versions="0-13", flexible="9+"):
    topics: list[MetadataRequestTopic] | None = field(nullable="1+")
    allow_auto_topic_creation: bool = field("4+", default=True)
    include_cluster_authorized_operations: bool = field("8-10", default=False)
    include_topic_authorized_operations: bool = field("8+", default=False)


class MetadataResponseBroker(Struct):
    node_id: Int32
    host: str
    port: Int32
    rack: str | None = field("1+", default=None, ignorable=True)


class MetadataResponsePartition(Struct):
    error_code: Int16 = field(default=0)
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = field("7+", default=-1, ignorable=True)
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    offline_replicas: list[Int32] = field("5+", factory=list, ignorable=True)


class MetadataResponseTopic(Struct):
    error_code: Int16 = field(default=0)
    name: str | None = field(nullable="12+")
    topic_id: Uuid = field("10+", default=Uuid.ZERO, ignorable=True)
    is_internal: bool = field("1+", default=False, ignorable=True)
    partitions: list[MetadataResponsePartition]
    topic_authorized_operations: Int32 = field("8+", default=-2147483648)


class MetadataResponse(Response, api_key=3, versions="0-13", flexible="9+"):
    throttle_time_ms: Int32 = field("3+", default=0, ignorable=True)
    brokers: list[MetadataResponseBroker]
    cluster_id: str | None = field("2+", default=None, ignorable=True)
    controller_id: Int32 = field("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: Int32 = field("8-10", default=-2147483648)
    error_code: Int16 = field("13+", default=0, ignorable=True)
