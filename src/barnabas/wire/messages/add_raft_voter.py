"""AddRaftVoter (80): adds a voter to the metadata quorum.

v1 can ask to be answered once the change is committed.
"""

from barnabas.base.ids import Uuid
from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int16, Int32, UInt16


class Listener(Struct):
    name: str
    host: str
    port: UInt16


class AddRaftVoterRequest(Request, api_key=80, versions="0-1", flexible="0+", listeners="controller broker"):
    cluster_id: str | None
    timeout_ms: Int32
    voter_id: Int32
    voter_directory_id: Uuid
    listeners: list[Listener]
    ack_when_committed: bool = field("1+", default=True)


class AddRaftVoterResponse(Response, api_key=80, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: str | None = field(default="")
