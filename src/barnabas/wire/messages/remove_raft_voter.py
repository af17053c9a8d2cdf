"""RemoveRaftVoter (81): removes a voter from the metadata quorum."""

from barnabas.base.ids import Uuid
from barnabas.wire.message import Request, Response
from barnabas.wire.schema import field
from barnabas.wire.types import Int16, Int32


class RemoveRaftVoterRequest(Request, api_key=81, versions="0", flexible="0+", listeners="controller broker"):
    cluster_id: str | None
    voter_id: Int32
    voter_directory_id: Uuid


class RemoveRaftVoterResponse(Response, api_key=81, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: str | None = field(default="")
