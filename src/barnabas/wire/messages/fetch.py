"""Fetch (1): reads record batches, waiting for `min_bytes` up to `max_wait_ms`.

v4 isolation level; v7 sessions, in which only changes are sent; v10 allows zstd; v11 reading from a follower; v12
followers truncate by `diverging_epoch`; v13 names topics by id; v15 moves the replica into a tag; v16 hints at the
new leader.
"""

from barnabas.base.ids import Uuid
from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int8, Int16, Int32, Int64, Records


class ReplicaState(Struct):
    replica_id: Int32 = field(default=-1)
    replica_epoch: Int64 = field(default=-1)


class FetchPartition(Struct):
    partition: Int32
    current_leader_epoch: Int32 = field("9+", default=-1, ignorable=True)
    fetch_offset: Int64
    last_fetched_epoch: Int32 = field("12+", default=-1)
    log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
    partition_max_bytes: Int32
    replica_directory_id: Uuid = field("17+", tag=0, default=Uuid.ZERO, ignorable=True)
    high_watermark: Int64 = field("18+", tag=1, default=9223372036854775807, ignorable=True)


class FetchTopic(Struct):
    topic: str = field("0-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=Uuid.ZERO, ignorable=True)
    partitions: list[FetchPartition]


class ForgottenTopic(Struct):
    topic: str = field("7-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=Uuid.ZERO, ignorable=True)
    partitions: list[Int32]


class FetchRequest(Request, api_key=1, versions="0-18", flexible="12+", served="4-18", listeners="broker controller"):
    cluster_id: str | None = field("12+", tag=0, default=None, ignorable=True)
    replica_id: Int32 = field("0-14", default=-1)
    replica_state: ReplicaState | None = field("15+", tag=1, default=None, nullable="none")
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = field("3+", default=2147483647, ignorable=True)
    isolation_level: Int8 = field("4+", default=0, ignorable=True)
    session_id: Int32 = field("7+", default=0, ignorable=True)
    session_epoch: Int32 = field("7+", default=-1, ignorable=True)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic] = field("7+", factory=list)
    rack_id: str = field("11+", default="", ignorable=True)


class EpochEndOffset(Struct):
    epoch: Int32 = field(default=-1)
    end_offset: Int64 = field(default=-1)


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = field(default=-1)
    leader_epoch: Int32 = field(default=-1)


class SnapshotId(Struct):
    end_offset: Int64 = field(default=-1)
    epoch: Int32 = field(default=-1)


class AbortedTransaction(Struct):
    producer_id: Int64
    first_offset: Int64


class PartitionData(Struct):
    partition_index: Int32
    error_code: Int16 = field(default=0)
    high_watermark: Int64
    last_stable_offset: Int64 = field("4+", default=-1, ignorable=True)
    log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset | None = field("12+", tag=0, default=None, nullable="none")
    current_leader: LeaderIdAndEpoch | None = field("12+", tag=1, default=None, nullable="none")
    snapshot_id: SnapshotId | None = field("12+", tag=2, default=None, nullable="none")
    aborted_transactions: list[AbortedTransaction] | None = field("4+", factory=list, ignorable=True)
    preferred_read_replica: Int32 = field("11+", default=-1)
    records: Records | None


class FetchableTopicResponse(Struct):
    topic: str = field("0-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=Uuid.ZERO, ignorable=True)
    partitions: list[PartitionData]


class NodeEndpoint(Struct):
    node_id: Int32
    host: str
    port: Int32
    rack: str | None = field(default=None)


class FetchResponse(Response, api_key=1, versions="0-18", flexible="12+"):
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field("7+", default=0, ignorable=True)
    session_id: Int32 = field("7+", default=0)
    responses: list[FetchableTopicResponse]
    node_endpoints: list[NodeEndpoint] = field("16+", tag=0, factory=list)
