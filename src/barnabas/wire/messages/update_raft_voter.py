"""UpdateRaftVoter (82): a voter tells its new endpoints and versions."""

from barnabas.base.ids import Uuid
from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int16, Int32, UInt16


class Listener(Struct):
    name: str
    host: str
    port: UInt16


class KRaftVersionFeature(Struct):
    min_supported_version: Int16
    max_supported_version: Int16


class UpdateRaftVoterRequest(Request, api_key=82, versions="0", flexible="0+", listeners="controller"):
    cluster_id: str | None
    current_leader_epoch: Int32
    voter_id: Int32
    voter_directory_id: Uuid
    listeners: list[Listener]
    k_raft_version_feature: KRaftVersionFeature


class CurrentLeader(Struct):
    leader_id: Int32 = field(default=-1)
    leader_epoch: Int32 = field(default=-1)
    host: str
    port: Int32


class UpdateRaftVoterResponse(Response, api_key=82, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    current_leader: CurrentLeader | None = field(tag=0, default=None, nullable="none")
