"""ListGroups (16): the groups that a broker coordinates.

v4 filters by state, v5 by type.
"""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int16, Int32


class ListGroupsRequest(Request, api_key=16, versions="0-5", flexible="3+"):
    states_filter: list[str] = field("4+", factory=list)
    types_filter: list[str] = field("5+", factory=list)


class ListedGroup(Struct):
    group_id: str
    protocol_type: str
    group_state: str = field("4+", default="", ignorable=True)
    group_type: str = field("5+", default="", ignorable=True)


class ListGroupsResponse(Response, api_key=16, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field(default=0)
    groups: list[ListedGroup]
