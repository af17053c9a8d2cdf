"""FetchSnapshot (59): downloads a snapshot of the metadata log, piece by piece."""

from barnabas.base.ids import Uuid
from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int16, Int32, Int64, Records, UInt16


class SnapshotId(Struct):
    end_offset: Int64
    epoch: Int32


class PartitionSnapshot(Struct):
    partition: Int32
    current_leader_epoch: Int32
    snapshot_id: SnapshotId
    position: Int64
    replica_directory_id: Uuid = field("1+", tag=0, default=Uuid.ZERO, ignorable=True)


class TopicSnapshot(Struct):
    name: str
    partitions: list[PartitionSnapshot]


class FetchSnapshotRequest(Request, api_key=59, versions="0-1", flexible="0+", listeners="controller"):
    cluster_id: str | None = field(tag=0, default=None)
    replica_id: Int32 = field(default=-1)
    max_bytes: Int32 = field(default=2147483647)
    topics: list[TopicSnapshot]


class LeaderIdAndEpoch(Struct):
    leader_id: Int32
    leader_epoch: Int32


class PartitionSnapshotResult(Struct):
    index: Int32
    error_code: Int16 = field(default=0)
    snapshot_id: SnapshotId
    current_leader: LeaderIdAndEpoch | None = field(tag=0, default=None, nullable="none")
    size: Int64
    position: Int64
    unaligned_records: Records


class TopicSnapshotResult(Struct):
    name: str
    partitions: list[PartitionSnapshotResult]


class NodeEndpoint(Struct):
    node_id: Int32
    host: str
    port: UInt16


class FetchSnapshotResponse(Response, api_key=59, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    topics: list[TopicSnapshotResult]
    node_endpoints: list[NodeEndpoint] = field("1+", tag=0, factory=list)
