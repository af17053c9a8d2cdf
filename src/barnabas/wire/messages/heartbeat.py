"""Heartbeat (12): a member of a classic group says that it lives."""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import field
from barnabas.wire.types import Int16, Int32


class HeartbeatRequest(Request, api_key=12, versions="0-4", flexible="4+"):
    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: str | None = field("3+", default=None)


class HeartbeatResponse(Response, api_key=12, versions="0-4", flexible="4+"):
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field(default=0)
