"""JoinGroup (11): a member enters a rebalance of its classic group.

v1 rebalance timeout; v4 answers a first join with a member id to come back with; v5 static members; v9 may skip the
assignment.
"""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int16, Int32


class JoinGroupRequestProtocol(Struct):
    name: str
    metadata: bytes


class JoinGroupRequest(Request, api_key=11, versions="0-9", flexible="6+"):
    group_id: str
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = field("1+", default=-1, ignorable=True)
    member_id: str
    group_instance_id: str | None = field("5+", default=None)
    protocol_type: str
    protocols: list[JoinGroupRequestProtocol]
    reason: str | None = field("8+", default=None, ignorable=True)


class JoinGroupResponseMember(Struct):
    member_id: str
    group_instance_id: str | None = field("5+", default=None, ignorable=True)
    metadata: bytes


class JoinGroupResponse(Response, api_key=11, versions="0-9", flexible="6+"):
    throttle_time_ms: Int32 = field("2+", default=0, ignorable=True)
    error_code: Int16 = field(default=0)
    generation_id: Int32 = field(default=-1)
    protocol_type: str | None = field("7+", default=None, ignorable=True)
    protocol_name: str | None = field(nullable="7+")
    leader: str
    skip_assignment: bool = field("9+", default=False)
    member_id: str
    members: list[JoinGroupResponseMember]
