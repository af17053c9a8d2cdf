"""The `quorum-state` file: whom this node voted for and follows. One line of JSON, with `data_version` added."""

from barnabas.base.ids import Uuid
from barnabas.wire.message import Message
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int32, Int64


class Voter(Struct):
    voter_id: Int32


class QuorumStateData(Message, versions="0-1", flexible="0+"):
    cluster_id: str = field("0", default="")
    leader_id: Int32 = field(default=-1)
    leader_epoch: Int32 = field(default=-1)
    voted_id: Int32 = field(default=-1)
    voted_directory_id: Uuid = field("1+", default=Uuid.ZERO)
    applied_offset: Int64 = field("0", default=0)
    current_voters: list[Voter] | None = field("0", factory=list)
