"""FindCoordinator (10): which broker coordinates a group, transaction or share partition.

v1 tells what kind of key it is; v4 asks for many keys at once, in another shape.
"""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int8, Int16, Int32


class FindCoordinatorRequest(Request, api_key=10, versions="0-6", flexible="3+"):
    key: str = field("0-3", default="")
    key_type: Int8 = field("1+", default=0)
    coordinator_keys: list[str] = field("4+", factory=list)


class Coordinator(Struct):
    key: str
    node_id: Int32
    host: str
    port: Int32
    error_code: Int16 = field(default=0)
    error_message: str | None = field(default="")


class FindCoordinatorResponse(Response, api_key=10, versions="0-6", flexible="3+"):
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field("0-3", default=0)
    error_message: str | None = field("1-3", default="", ignorable=True)
    node_id: Int32 = field("0-3", default=0)
    host: str = field("0-3", default="")
    port: Int32 = field("0-3", default=0)
    coordinators: list[Coordinator] = field("4+", factory=list)
