"""DescribeGroups (15): state and members of classic groups.

v6 reports a missing group as an error, before as state Dead.
"""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int16, Int32


class DescribeGroupsRequest(Request, api_key=15, versions="0-6", flexible="5+"):
    groups: list[str]
    include_authorized_operations: bool = field("3+", default=False)


class DescribedGroupMember(Struct):
    member_id: str
    group_instance_id: str | None = field("4+", default=None, ignorable=True)
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes


class DescribedGroup(Struct):
    error_code: Int16 = field(default=0)
    error_message: str | None = field("6+", default=None)
    group_id: str
    group_state: str
    protocol_type: str
    protocol_data: str
    members: list[DescribedGroupMember]
    authorized_operations: Int32 = field("3+", default=-2147483648)


class DescribeGroupsResponse(Response, api_key=15, versions="0-6", flexible="5+"):
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    groups: list[DescribedGroup]
