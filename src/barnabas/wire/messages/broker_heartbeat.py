"""BrokerHeartbeat (63): a broker says that it lives, and asks to be fenced or to stop.

v1 reports disks that failed.
"""

from barnabas.base.ids import Uuid
from barnabas.wire.message import Request, Response
from barnabas.wire.schema import field
from barnabas.wire.types import Int16, Int32, Int64


class BrokerHeartbeatRequest(Request, api_key=63, versions="0-2", flexible="0+", listeners="controller"):
    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)
    current_metadata_offset: Int64
    want_fence: bool
    want_shut_down: bool
    offline_log_dirs: list[Uuid] = field("1+", tag=0, factory=list)
    cordoned_log_dirs: list[Uuid] | None = field("2+", tag=1, default=None)


class BrokerHeartbeatResponse(Response, api_key=63, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    is_caught_up: bool = field(default=False)
    is_fenced: bool = field(default=True)
    should_shut_down: bool
