"""ConsumerGroupHeartbeat (68): the one request of the new group protocol: join, report, receive, leave.

Null fields mean: as before. Epoch 0 joins, -1 leaves, -2 leaves a static member's place open. v1 lets the client
choose its member id and subscribe by pattern.
"""

from barnabas.base.ids import Uuid
from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int16, Int32


class TopicPartitions(Struct):
    topic_id: Uuid
    partitions: list[Int32]


class ConsumerGroupHeartbeatRequest(Request, api_key=68, versions="0-1", flexible="0+"):
    group_id: str
    member_id: str
    member_epoch: Int32
    instance_id: str | None = field(default=None)
    rack_id: str | None = field(default=None)
    rebalance_timeout_ms: Int32 = field(default=-1)
    subscribed_topic_names: list[str] | None = field(default=None)
    subscribed_topic_regex: str | None = field("1+", default=None)
    server_assignor: str | None = field(default=None)
    topic_partitions: list[TopicPartitions] | None = field(default=None)


class Assignment(Struct):
    topic_partitions: list[TopicPartitions]


class ConsumerGroupHeartbeatResponse(Response, api_key=68, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: str | None = field(default=None)
    member_id: str | None = field(default=None)
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Assignment | None = field(default=None)
