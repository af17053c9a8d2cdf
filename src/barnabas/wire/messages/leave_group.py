"""LeaveGroup (13): members leave a classic group.

v3 takes several members, in another shape, also by instance id.
"""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int16, Int32


class MemberIdentity(Struct):
    member_id: str
    group_instance_id: str | None = field(default=None)
    reason: str | None = field("5+", default=None, ignorable=True)


class LeaveGroupRequest(Request, api_key=13, versions="0-5", flexible="4+"):
    group_id: str
    member_id: str = field("0-2", default="")
    members: list[MemberIdentity] = field("3+", factory=list)


class MemberResponse(Struct):
    member_id: str
    group_instance_id: str | None
    error_code: Int16 = field(default=0)


class LeaveGroupResponse(Response, api_key=13, versions="0-5", flexible="4+"):
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field(default=0)
    members: list[MemberResponse] = field("3+", factory=list)
