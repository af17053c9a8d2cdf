"""ShareGroupDescribe (77): state and members of share groups.

v0 was an experiment and is not declared.
"""

from barnabas.base.ids import Uuid
from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int16, Int32


class ShareGroupDescribeRequest(Request, api_key=77, versions="1", flexible="0+"):
    group_ids: list[str]
    include_authorized_operations: bool


class TopicPartitions(Struct):
    topic_id: Uuid
    topic_name: str
    partitions: list[Int32]


class Assignment(Struct):
    topic_partitions: list[TopicPartitions]


class Member(Struct):
    member_id: str
    rack_id: str | None = field(default=None)
    member_epoch: Int32
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    assignment: Assignment


class DescribedGroup(Struct):
    error_code: Int16 = field(default=0)
    error_message: str | None = field(default=None)
    group_id: str
    group_state: str
    group_epoch: Int32
    assignment_epoch: Int32
    assignor_name: str
    members: list[Member]
    authorized_operations: Int32 = field(default=-2147483648)


class ShareGroupDescribeResponse(Response, api_key=77, versions="1", flexible="0+"):
    throttle_time_ms: Int32 = field(default=0)
    groups: list[DescribedGroup]
