"""The files of `RaftLog`: their names, what a stop leaves of them, and what is noted as committed."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.raft.committed_offset import CommittedOffsetNote
from barnabas.raft.raft_log import RaftLog
from barnabas.raft.types import ElectionState, SnapshotId
from barnabas.storage.checkpoints import read_topic_id
from barnabas.storage.errors import DirectoryInUseError, LogDirectoryError, PassingError
from barnabas.storage.files import FileSystem, read_file
from tests.raft.stores import (
    DIRECTORY,
    NOTE,
    OnSimulatedDisk,
    commit,
    fetched,
    receive,
    snapshot_bytes,
    snapshot_of,
    sync,
    take_snapshot,
    values_of,
)


def started(make_store: OnSimulatedDisk) -> RaftLog:
    store = make_store()
    store.open()
    return store


def noted(files: FileSystem, directory_id: Uuid | None) -> int | None:
    return CommittedOffsetNote(files, NOTE, directory_id).offset


def test_the_files_have_kafkas_names() -> None:
    make_store = OnSimulatedDisk()
    store = started(make_store)
    store.append([b"a"], 1)
    commit(store)
    take_snapshot(store, snapshot_of(1, 1, b"state"))
    store.save_election(ElectionState(1, 1), kraft_version=0, voter_ids=[1])
    assert make_store.disk.names(DIRECTORY) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000001-0000000001.checkpoint",
        "leader-epoch-checkpoint",
        "partition.metadata",
        "quorum-state",
    ]
    assert make_store.disk.names("/data") == ["__cluster_metadata-0", "metadata-committed-offset"]
    assert read_topic_id(make_store.disk, DIRECTORY) == Uuid.METADATA_TOPIC
    store.close()


def test_another_log_has_its_own_names() -> None:
    topic_id = Uuid(bytes(range(16)))
    make_store = OnSimulatedDisk(
        partition=TopicPartition("__ledger", 3), topic_id=topic_id, note_path="/data/ledger-committed"
    )
    store = RaftLog(make_store.disk, "/data/__ledger-3", make_store.options, make_store.runtime)
    store.open()
    store.append([b"a"], 1)
    commit(store)
    store.close()
    assert make_store.disk.names("/data") == ["__ledger-3", "ledger-committed"]
    assert read_topic_id(make_store.disk, "/data/__ledger-3") == topic_id
    make_store.disk.remove("/data/__ledger-3/00000000000000000000.log")
    with pytest.raises(BarnabasError, match="the log of __ledger-3 has lost what was committed"):
        store.open()


def test_what_is_being_received_has_a_name_that_a_start_removes() -> None:
    make_store = OnSimulatedDisk()
    store = started(make_store)
    receiver = store.receive_snapshot(SnapshotId(10, 5))
    receiver.write(0, b"some of it")
    (part,) = [name for name in make_store.disk.names(DIRECTORY) if name.startswith("00000000000000000010-0000000005-")]
    assert part.endswith(".checkpoint.part")
    for name in ("00000000000000000003-0000000001.checkpoint.deleted", "notes.txt"):
        make_store.disk.open(f"{DIRECTORY}/{name}", create=True)
    make_store.kill()
    started(make_store).close()
    left = [name for name in make_store.disk.names(DIRECTORY) if "checkpoint" in name or name == "notes.txt"]
    assert left == ["notes.txt"]


def test_a_lock_is_taken_if_it_is_named_and_released_in_the_end() -> None:
    make_store = OnSimulatedDisk(lock_path="/data/.lock")
    first = started(make_store)
    with pytest.raises(DirectoryInUseError, match="log directory /data: another process is using it"):
        started(make_store)
    first.close()
    second = started(make_store)
    second.abandon()
    started(make_store).close()


def test_a_start_that_fails_leaves_no_lock() -> None:
    make_store = OnSimulatedDisk(lock_path="/data/.lock")
    store = started(make_store)
    store.append([b"a"], 1)
    store.close()
    make_store.disk.fail_next(errno.EIO, name="sync", path=".log")
    with pytest.raises(LogDirectoryError):
        started(make_store)
    started(make_store).close()


def test_a_full_disk_takes_nothing_and_goes_on_later() -> None:
    make_store = OnSimulatedDisk()
    store = started(make_store)
    make_store.disk.capacity_bytes = make_store.disk.used_bytes + 10
    with pytest.raises(PassingError, match="the disk is full"):
        store.append([b"a"], 1)
    with pytest.raises(PassingError, match="the disk is full"):
        store.append_fetched(fetched(0, 2, b"a"))
    make_store.disk.capacity_bytes = None
    store.append_fetched(fetched(0, 1, b"b"))
    assert values_of(store) == [b"b"]
    store.close()


# What is noted as committed


def test_only_what_is_committed_and_synced_is_noted() -> None:
    make_store = OnSimulatedDisk()
    disk, directory_id = make_store.disk, make_store.options.directory_id
    store = started(make_store)
    # It is there from the beginning: a log without a note is judged by other signs.
    assert noted(disk, directory_id) == 0
    for _ in range(4):
        store.append([b"a"], 1)
    sync(store)
    assert noted(disk, directory_id) == 0
    store.set_high_watermark(3)
    assert noted(disk, directory_id) == 3
    store.append([b"a"], 1)
    store.set_high_watermark(5)
    assert noted(disk, directory_id) == 4
    sync(store)
    assert noted(disk, directory_id) == 5
    store.append([b"a"], 1)
    store.close()
    assert noted(disk, directory_id) == 5


def test_a_note_that_a_power_loss_has_torn_still_says_that_there_was_one() -> None:
    """Without any note, records of two leaders behind a torn one would count as damage."""
    make_store = OnSimulatedDisk()
    disk, directory_id = make_store.disk, make_store.options.directory_id
    started(make_store).close()
    file = disk.open(NOTE)
    file.write_at(0, b"#" * file.size())
    file.close()
    assert noted(disk, directory_id) == 0
    # It is written anew at once.
    started(make_store).close()
    assert b"#" not in read_file(disk, NOTE)
    assert noted(disk, Uuid(b"another id......")) is None


def test_the_note_costs_no_sync() -> None:
    make_store = OnSimulatedDisk()
    store = started(make_store)
    store.append([b"a"], 1)
    sync(store)
    synced: list[str] = []
    make_store.disk.hook = lambda number, name, path: synced.append(path) if name.startswith("sync") else None
    store.set_high_watermark(1)
    assert synced == []
    make_store.disk.hook = None
    store.close()


def test_a_received_snapshot_is_noted_once_it_counts() -> None:
    make_store = OnSimulatedDisk()
    store = started(make_store)
    receive(store, SnapshotId(10, 5), snapshot_bytes(5, [b"state"]))
    assert noted(make_store.disk, make_store.options.directory_id) == 0
    store.start_anew(SnapshotId(10, 5))
    assert noted(make_store.disk, make_store.options.directory_id) == 10
    store.close()


def test_an_own_snapshot_ends_where_the_log_is_synced() -> None:
    """The leader says that it is committed before our sync is done; a machine that dies then must not find a hole."""
    make_store = OnSimulatedDisk()
    for number in range(10):
        store = started(make_store)
        epoch = number + 1
        for _ in range(3):
            store.append_fetched(fetched(store.end_offset, epoch, b"a" * 100, b"b" * 100))
        store.set_high_watermark(store.end_offset)
        take_snapshot(store, snapshot_of(store.end_offset, epoch, b"state"))
        end_offset = store.end_offset
        store.append_fetched(fetched(end_offset, epoch, b"later"))
        make_store.lose_power()
        store = started(make_store)
        assert store.end_offset in (end_offset, end_offset + 1)
        store.close()


def test_a_snapshot_that_is_in_use_stays_and_all_behind_it() -> None:
    store = started(OnSimulatedDisk(retention_bytes=0, delete_delay_ms=0))
    for number in range(4):
        store.append([b"x" * 300], 1)
        commit(store)
        take_snapshot(store, snapshot_of(number + 1, 1, b"state"))
    assert store.clean({SnapshotId(2, 1), SnapshotId(3, 1)}) == 2
    assert store.snapshots == [SnapshotId(2, 1), SnapshotId(3, 1), SnapshotId(4, 1)]
    assert [each.base_offset for each in store.batches(2, 4)] == [2, 3]
    assert store.clean({SnapshotId(3, 1)}) == 3
    assert store.clean() == 4
    assert store.snapshots == [SnapshotId(4, 1)]
    store.close()


@pytest.mark.parametrize("options", [{"retention_bytes": 0}, {"retention_bytes": -1, "retention_ms": 1000}])
def test_files_go_some_time_after_they_were_deleted(options: dict[str, Any]) -> None:
    make_store = OnSimulatedDisk(delete_delay_ms=500, **options)
    store = started(make_store)
    for number in range(3):
        store.append([b"x" * 300], 1)
        commit(store)
        take_snapshot(store, snapshot_of(number + 1, 1, b"state"))
    make_store.runtime.clock.advance(5000)
    assert store.clean() == 3
    assert store.snapshots == [SnapshotId(3, 1)]
    assert len([name for name in make_store.disk.names(DIRECTORY) if name.endswith(".checkpoint.deleted")]) == 2
    make_store.runtime.clock.advance(500)
    store.clean()
    assert not [name for name in make_store.disk.names(DIRECTORY) if name.endswith(".deleted")]
    store.close()
