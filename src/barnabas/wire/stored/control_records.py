"""What control batches hold: the outcome of transactions, and the bookkeeping of the metadata quorum.

A control record's key is its version as int16 (0), then its type as int16; see `barnabas.records.control`. The value
of an `EndTxnMarker` has its version as int16 in front; the others have it as their first field.
"""

from barnabas.base.ids import Uuid
from barnabas.wire.message import Message
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int16, Int32, Int64, UInt16


class EndTxnMarker(Message, versions="0"):
    coordinator_epoch: Int32


class Voter(Struct):
    voter_id: Int32
    voter_directory_id: Uuid = field("1+", default=Uuid.ZERO)


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    version: Int16
    leader_id: Int32
    voters: list[Voter]
    granting_voters: list[Voter]


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    version: Int16
    last_contained_log_timestamp: Int64


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    version: Int16


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    version: Int16
    k_raft_version: Int16


class Endpoint(Struct):
    name: str
    host: str
    port: UInt16


class KRaftVersionFeature(Struct):
    min_supported_version: Int16
    max_supported_version: Int16


class QuorumVoter(Struct):
    voter_id: Int32
    voter_directory_id: Uuid
    endpoints: list[Endpoint]
    k_raft_version_feature: KRaftVersionFeature


class VotersRecord(Message, versions="0", flexible="0+"):
    version: Int16
    voters: list[QuorumVoter]
