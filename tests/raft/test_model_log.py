"""The log in memory that simulations run on: what it promises, and what it forgets."""

from __future__ import annotations

from random import Random

import pytest

from barnabas.base.errors import BarnabasError
from barnabas.raft.ports import LogStore
from barnabas.raft.types import ElectionState, ReplicaKey, Snapshot, SnapshotId
from barnabas.testing.sim.faults import SimulatedCrash
from barnabas.testing.sim.model_log import BatchCache, ModelDisk, ModelLog


def disk_of(seed: int = 1) -> ModelDisk:
    return ModelDisk(Random(seed), BatchCache())


def opened(disk: ModelDisk) -> LogStore:
    log: LogStore = ModelLog(disk, lambda: 1_000)
    log.open()
    return log


def sync(log: LogStore) -> None:
    job = log.begin_sync()
    assert job is not None
    job.run()
    log.finish_sync(job)


def values_in(log: LogStore) -> list[bytes]:
    return [value for batch in log.batches(0, log.end_offset) for value in batch.values]


def test_a_kill_keeps_everything_and_a_power_loss_a_prefix_of_what_no_sync_covered() -> None:
    ends = set()
    for seed in range(100):
        disk = disk_of(seed)
        log = opened(disk)
        log.append([b"synced"], 1)
        sync(log)
        for number in range(4):
            log.append([b"%d" % number], 1)
        assert values_in(opened(disk)) == [b"synced", b"0", b"1", b"2", b"3"]
        disk = disk_of(seed)
        log = opened(disk)
        log.append([b"synced"], 1)
        sync(log)
        for number in range(4):
            log.append([b"%d" % number], 1)
        disk.lose_power()
        found = values_in(opened(disk))
        assert found == [b"synced", b"0", b"1", b"2", b"3"][: len(found)]
        assert found[:1] == [b"synced"]
        ends.add(len(found))
    assert {1, 3, 5} <= ends


def test_a_power_loss_may_bring_back_what_was_cut_off_and_not_synced() -> None:
    found = set()
    for seed in range(30):
        disk = disk_of(seed)
        log = opened(disk)
        log.append([b"a"], 1)
        log.append([b"b"], 1)
        sync(log)
        log.truncate(1)
        log.append([b"c"], 2)
        disk.lose_power()
        found.add(tuple(values_in(opened(disk))))
    assert found == {(b"a", b"b"), (b"a",), (b"a", b"c")}


def test_a_sync_covers_what_was_there_when_it_began_and_was_not_cut_off_since() -> None:
    log = opened(disk_of())
    log.append([b"a"], 1)
    job = log.begin_sync()
    log.append([b"b"], 1)
    assert job is not None
    job.run()
    log.finish_sync(job)
    assert (log.synced_offset, log.end_offset) == (1, 2)
    job = log.begin_sync()
    log.truncate(0)
    log.append([b"c"], 2)
    assert job is not None
    job.run()
    log.finish_sync(job)
    assert log.synced_offset == 0


def test_fetched_batches_are_kept_as_they_came_and_must_fit() -> None:
    leader, follower = opened(disk_of()), opened(disk_of())
    leader.append([b"a", b"b"], 1)
    leader.append([b"c"], 2)
    follower.append_fetched(leader.read(0, 1 << 20))
    assert bytes(follower.read(0, 1 << 20)) == bytes(leader.read(0, 1 << 20))
    assert [batch.base_offset for batch in follower.batches(0, 3)] == [0, 2]
    assert bytes(follower.read(1, 1)) == bytes(leader.read(0, 1))
    with pytest.raises(BarnabasError, match="does not follow"):
        follower.append_fetched(leader.read(0, 1))


def test_a_vote_is_never_taken_back() -> None:
    disk = disk_of()
    state = ElectionState(3, -1, ReplicaKey(2))
    opened(disk).save_election(state, kraft_version=0, voter_ids=[1, 2, 3])
    disk.lose_power()
    assert ModelLog(disk, lambda: 0).open().election == state


def test_a_snapshot_that_the_log_does_not_hold_replaces_it_when_it_is_opened() -> None:
    disk = disk_of()
    log = opened(disk)
    log.append([b"a", b"b", b"c"], 1)
    snapshot = Snapshot(SnapshotId(5, 4), 1_000, [b"state"])
    log.begin_snapshot(snapshot, [])()
    found = ModelLog(disk, lambda: 0).open()
    assert (found.start_offset, found.end_offset, list(found.snapshots)) == (5, 5, [SnapshotId(5, 4)])
    assert list(ModelLog(disk, lambda: 0).read_snapshot(SnapshotId(5, 4))[0].values) == [b"state"]


def test_cleaning_deletes_what_the_newest_snapshot_covers() -> None:
    log = opened(disk_of())
    for number in range(5):
        log.append([b"%d" % number], 1)
    for end_offset in (2, 4):
        log.begin_snapshot(Snapshot(SnapshotId(end_offset, 1), 1_000, [b"state"]), [])()
    assert log.clean() == 4
    assert values_in(log) == [b"4"]
    assert log.read_snapshot_bytes(SnapshotId(2, 1), 0, 100) is None


def test_a_snapshot_travels_in_pieces_and_must_be_whole() -> None:
    source, target = opened(disk_of()), opened(disk_of())
    snapshot_id = SnapshotId(7, 2)
    source.begin_snapshot(Snapshot(snapshot_id, 1_000, [b"one", b"two"]), [])()
    receiver = target.receive_snapshot(snapshot_id)
    position, size_bytes = 0, 1
    while position < size_bytes:
        piece = source.read_snapshot_bytes(snapshot_id, position, 50)
        assert piece is not None
        if position:
            with pytest.raises(BarnabasError, match="cannot be used"):
                receiver.finish()
        receiver.write(position, piece[0])
        position, size_bytes = position + len(piece[0]), piece[1]
    receiver.finish()
    target.start_anew(snapshot_id)
    assert list(target.read_snapshot(snapshot_id)[0].values) == [b"one", b"two"]
    assert target.end_offset == target.synced_offset == 7


def test_a_full_disk_refuses_and_a_process_dies_in_the_operation_that_was_named() -> None:
    disk = disk_of()
    log = opened(disk)
    disk.is_full = True
    with pytest.raises(OSError, match="No space left"):
        log.append([b"a"], 1)
    disk.is_full = False
    died = []
    disk.die_at(2, lambda: died.append(True))
    log.append([b"a"], 1)
    with pytest.raises(SimulatedCrash):
        log.append([b"b"], 1)
    assert died == [True]
