"""Logs of replicas to test with. A test of the port takes `make_store`, which stands for the files of one replica."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, Protocol

from barnabas.base.ids import Uuid
from barnabas.raft.batches import ControlRecord, build_batches, build_control, build_snapshot
from barnabas.raft.log_options import RaftLogOptions
from barnabas.raft.ports import FoundReplica, LogStore
from barnabas.raft.raft_log import RaftLog
from barnabas.raft.types import Snapshot, SnapshotId
from barnabas.records.control import ControlType
from barnabas.testing.sim.disk import SimulatedDisk
from barnabas.wire.stored.control_records import (
    Endpoint,
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    QuorumVoter,
    Voter,
    VotersRecord,
)
from tests.storage.runtime import InlineRuntime

NOW_MS = 1_700_000_000_000
DIRECTORY = "/data/__cluster_metadata-0"
NOTE = "/data/metadata-committed-offset"


class MakeStore(Protocol):
    """The files of one replica. Each call gives a store on them that is not open yet; one is open at a time."""

    def __call__(self) -> LogStore: ...

    def kill(self) -> None:
        """The process that had the store open dies."""
        ...

    def lose_power(self) -> None: ...


class OnSimulatedDisk:
    """`RaftLog` on a disk that forgets."""

    def __init__(self, **options: Any) -> None:
        self.disk = new_disk(1)
        self.runtime = InlineRuntime()
        self.options = small_options(**options)

    def __call__(self) -> RaftLog:
        return RaftLog(self.disk, DIRECTORY, self.options, self.runtime)

    def kill(self) -> None:
        self.disk.crash(power=False)

    def lose_power(self) -> None:
        self.disk.crash(power=True)


def new_disk(seed: int, **how: Any) -> SimulatedDisk:
    disk = SimulatedDisk(Random(seed), **how)
    disk.make_directory("/data")
    disk.sync_directory("/")
    return disk


def small_options(**changes: Any) -> RaftLogOptions:
    small: dict[str, Any] = {
        "segment_bytes": 700,
        "max_batch_bytes": 400,
        "retention_bytes": 2500,
        "delete_delay_ms": 0,
        "directory_id": Uuid(bytes(range(16))),
    }
    return RaftLogOptions(**{**small, **changes})


def opened(make_store: MakeStore) -> tuple[LogStore, FoundReplica]:
    store = make_store()
    return store, store.open()


# What is written


def fetched(offset: int, epoch: int, *values: bytes, limit_bytes: int = 400) -> bytes:
    """Batches as a leader sends them."""
    return b"".join(
        build_batches(values, base_offset=offset, epoch=epoch, timestamp_ms=NOW_MS, limit_bytes=limit_bytes)
    )


def fetched_control(offset: int, epoch: int, *records: ControlRecord) -> bytes:
    return bytes(build_control(records, base_offset=offset, epoch=epoch, timestamp_ms=NOW_MS))


def leader_change(leader_id: int = 1) -> ControlRecord:
    voter = Voter(voter_id=leader_id)
    message = LeaderChangeMessage(version=0, leader_id=leader_id, voters=[voter], granting_voters=[voter])
    return ControlRecord(ControlType.LEADER_CHANGE, message)


def kraft_version(level: int = 1) -> ControlRecord:
    return ControlRecord(ControlType.KRAFT_VERSION, KRaftVersionRecord(version=0, k_raft_version=level))


def voters(*ids: int) -> ControlRecord:
    known = [
        QuorumVoter(
            voter_id=each,
            voter_directory_id=Uuid(each.to_bytes(16, "big")),
            endpoints=[Endpoint(name="CONTROLLER", host=f"host{each}", port=9093)],
            k_raft_version_feature=KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
        )
        for each in ids
    ]
    return ControlRecord(ControlType.KRAFT_VOTERS, VotersRecord(version=0, voters=known))


def snapshot_of(end_offset: int, epoch: int, *values: bytes) -> Snapshot:
    return Snapshot(SnapshotId(end_offset, epoch), NOW_MS, values)


def snapshot_bytes(epoch: int, values: Iterable[bytes], controls: Sequence[ControlRecord] = ()) -> bytes:
    return b"".join(build_snapshot(values, epoch=epoch, timestamp_ms=NOW_MS, last_contained_ms=NOW_MS, voters=controls))


# What is done in several steps


def sync(store: LogStore) -> None:
    job = store.begin_sync()
    if job is not None:
        job.run()
        store.finish_sync(job)


def commit(store: LogStore) -> None:
    """Everything that is there."""
    sync(store)
    store.set_high_watermark(store.end_offset)


def take_snapshot(store: LogStore, snapshot: Snapshot, *controls: ControlRecord) -> None:
    size_bytes = store.begin_snapshot(snapshot, controls)()
    store.add_snapshot(snapshot.snapshot_id, size_bytes, snapshot.last_contained_ms)


def receive(store: LogStore, snapshot_id: SnapshotId, content: bytes, piece_bytes: int = 100) -> None:
    receiver = store.receive_snapshot(snapshot_id)
    for position in range(0, len(content), piece_bytes):
        receiver.write(position, content[position : position + piece_bytes])
    receiver.finish()


def values_of(store: LogStore, start_offset: int = 0) -> list[bytes]:
    return [value for batch in store.batches(start_offset, store.end_offset) for value in batch.values]
