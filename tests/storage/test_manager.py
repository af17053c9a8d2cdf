"""All logs of a node together: start, stop, several directories, one of which may fail, and the periodic work."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from random import Random

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.storage.directories import deleted_name, parse_partition_name
from barnabas.storage.errors import CorruptLogError, DirectoryInUseError, LogDirectoryError, LogError
from barnabas.storage.real_files import RealFileSystem
from barnabas.testing.sim.disk import SimulatedCrash, SimulatedDisk
from tests.storage.logs import check_consistency, read_all
from tests.storage.managers import TOPIC_ID, A, B, C, append, started
from tests.storage.runtime import InlineRuntime


def test_logs_are_there_after_a_restart() -> None:
    disk = SimulatedDisk(Random(1))
    logs = started(disk, "/one", "/two")
    for partition in (A, B, C):
        append(logs.create(partition, TOPIC_ID), b"x", b"y")
    asyncio.run(logs.stop(broker_epoch=7))

    again = started(disk, "/one", "/two")
    assert set(again.logs) == {A, B, C}
    assert [directory.was_clean for directory in again.directories] == [True, True]
    assert again.directories[0].previous_broker_epoch == 7
    log = again.get(B)
    assert log is not None
    assert (log.log_end_offset, log.high_watermark, log.recovery_point, log.topic_id) == (2, 2, 2, TOPIC_ID)
    assert len(read_all(log)) == 2


def test_new_logs_go_where_the_fewest_are() -> None:
    logs = started(SimulatedDisk(Random(1)), "/one", "/two")
    for number in range(6):
        logs.create(TopicPartition("t", number))
    places = [log.directory.split("/")[1] for log in logs.logs.values()]
    assert sorted(places) == ["one"] * 3 + ["two"] * 3
    assert logs.create(TopicPartition("t", 0)) is logs.get(TopicPartition("t", 0))


def test_a_killed_process_loses_nothing() -> None:
    disk = SimulatedDisk(Random(1))
    logs = started(disk)
    append(logs.create(A), *(b"%d" % number * 50 for number in range(40)))
    disk.crash(power=False)
    again = started(disk)
    assert [directory.was_clean for directory in again.directories] == [False]
    log = again.get(A)
    assert log is not None
    assert log.log_end_offset == 40


def test_two_nodes_cannot_share_a_directory(tmp_path: Path) -> None:
    first = started(RealFileSystem(), str(tmp_path))
    with pytest.raises(DirectoryInUseError, match=rf"log directory {tmp_path}: another process is using it"):
        started(RealFileSystem(), str(tmp_path))
    asyncio.run(first.stop())
    asyncio.run(started(RealFileSystem(), str(tmp_path)).stop())


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(LogError, match=r"no log directory can be used: log directory .*/file/data: "):
        started(RealFileSystem(), f"{tmp_path}/file/data")


def test_a_failing_disk_takes_only_its_own_logs_along() -> None:
    disk = SimulatedDisk(Random(1))
    logs = started(disk, "/one", "/two")
    log_a, log_b = logs.create(A), logs.create(B)
    append(log_a, b"x")
    append(log_b, b"y")
    disk.fail_next(errno.EIO, path=log_a.directory, name="write_at")
    with pytest.raises(LogDirectoryError) as failure:
        append(log_a, b"lost")
    assert logs.directory_failed(logs.directory_of(log_a), str(failure.value)) == [A]
    with pytest.raises(LogError, match="a-0 is offline") as refusal:
        logs.get(A)
    assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    append(log_b, b"goes on")
    asyncio.run(logs.stop())
    again = started(disk, "/one", "/two")
    assert [directory.was_clean for directory in again.directories] == [False, True]
    recovered = again.get(A)
    assert recovered is not None
    assert recovered.log_end_offset == 1


def test_a_directory_that_fails_at_the_start_is_left_out() -> None:
    disk = SimulatedDisk(Random(1))
    asyncio.run(started(disk, "/one", "/two").stop())
    disk.fail_next(errno.EIO, path="/one", name="lock")
    logs = started(disk, "/one", "/two")
    assert [directory.is_online for directory in logs.directories] == [False, True]
    assert logs.create(A).directory == "/two/a-0"


def test_a_corrupt_partition_is_offline_and_the_others_are_not() -> None:
    disk = SimulatedDisk(Random(1))
    logs = started(disk)
    for partition in (A, C):
        append(logs.create(partition), b"x")
    asyncio.run(logs.stop())
    file = disk.open("/one/a-0/leader-epoch-checkpoint")
    file.truncate(0)
    file.write_at(0, b"0\n5\nnonsense\n")
    again = started(disk)
    assert set(again.logs) == {C}
    with pytest.raises(LogError, match=r"a-0 is offline: .*leader-epoch-checkpoint"):
        again.get(A)


def test_what_is_found_corrupt_on_reading_goes_offline_alone() -> None:
    disk = SimulatedDisk(Random(1))
    logs = started(disk)
    for partition in (A, C):
        append(logs.create(partition), *(b"%d" % number * 100 for number in range(30)))
    log = logs.create(A)
    log.segments[0].file.truncate(log.segments[0].size_bytes - 50)
    log.segments[0].size_bytes -= 50
    with pytest.raises(CorruptLogError, match=r"/one/a-0/0{20}\.log, byte \d+: the file ends within a batch") as found:
        log.read(log.segments[1].base_offset - 1, 100, end_offset=30)
    logs.partition_failed(A, found.value)
    with pytest.raises(LogError, match=r"a-0 is offline: .*ends within a batch"):
        logs.get(A)
    assert logs.get(C) is not None


def test_a_deleted_partition_is_gone_at_once_and_its_files_later() -> None:
    disk = SimulatedDisk(Random(1))
    runtime = InlineRuntime()
    logs = started(disk, runtime=runtime)
    append(logs.create(A), b"x")
    logs.delete(A)
    assert logs.get(A) is None
    (name,) = [name for name in disk.names("/one") if name.endswith("-delete")]
    assert name.startswith("a-0.")
    assert len(name) == len("a-0.") + 32 + len("-delete")
    asyncio.run(logs.remove_deleted())
    assert name in disk.names("/one")
    runtime.clock.advance(60_000)
    asyncio.run(logs.remove_deleted())
    assert not [name for name in disk.names("/one") if "a-0" in name]
    assert logs.create(A).log_end_offset == 0


def test_a_deletion_that_was_interrupted_is_finished() -> None:
    disk = SimulatedDisk(Random(1))
    logs = started(disk)
    append(logs.create(A), b"x")
    logs.delete(A)
    disk.crash(power=False)
    again = started(disk)
    assert again.get(A) is None
    asyncio.run(again.remove_deleted())
    assert not [name for name in disk.names("/one") if name.endswith("-delete")]


def test_checkpoints_shorten_recovery() -> None:
    disk = SimulatedDisk(Random(1))
    logs = started(disk)
    log = logs.create(A)
    append(log, *(b"%d" % number * 100 for number in range(60)))
    log.flush()
    log.advance_log_start(5)
    for task in logs.tasks():
        asyncio.run(task.run())  # type: ignore[arg-type]
    append(log, b"unflushed")
    disk.crash(power=True)
    again = started(disk)
    assert again.directories[0].recovery_points == {A: 60}
    recovered = again.get(A)
    assert recovered is not None
    assert recovered.log_end_offset >= 60
    assert (recovered.log_start_offset, recovered.high_watermark) == (5, 60)


def test_the_periodic_work_flushes_deletes_and_compacts() -> None:
    disk = SimulatedDisk(Random(1))
    runtime = InlineRuntime()
    logs = started(disk, runtime=runtime, cleanup_policy=["compact", "delete"], retention_ms=1000, flush_messages=1)
    log = logs.create(A)
    append(log, *(b"%d" % number * 100 for number in range(60)))
    size_bytes = log.size_bytes
    asyncio.run(logs.flush_due_logs())
    assert log.recovery_point == 60
    asyncio.run(logs.compact_logs())
    assert log.size_bytes < size_bytes
    assert logs.directories[0].cleaner_offsets[A] > 0
    runtime.clock.advance(2000)
    asyncio.run(logs.delete_old_segments())
    assert (log.log_start_offset, log.log_end_offset) == (60, 60)
    asyncio.run(logs.expire_producers())


def test_descriptors_stay_bounded_with_many_logs(tmp_path: Path) -> None:
    files = RealFileSystem(max_open_files=32)
    logs = started(files, str(tmp_path))
    before = len(os.listdir("/proc/self/fd"))
    for number in range(200):
        append(logs.create(TopicPartition("many", number)), b"x")
    assert len(os.listdir("/proc/self/fd")) <= before + 33
    for number in range(200):
        append(logs.create(TopicPartition("many", number)), b"y")
    asyncio.run(logs.stop())
    again = started(files, str(tmp_path))
    assert {log.log_end_offset for log in again.logs.values()} == {2}
    asyncio.run(again.stop())


def test_a_truncated_log_recovers_from_a_power_loss() -> None:
    for seed in range(40):
        disk = SimulatedDisk(Random(seed), sector_bytes=1)
        logs = started(disk)
        log = logs.create(A)
        append(log, *(b"%d" % number * 100 for number in range(60)))
        log.flush()
        asyncio.run(logs.save_recovery_points())
        logs.truncate(A, 5)
        append(log, *(b"new %d" % number * 90 for number in range(70)))
        disk.crash(power=True)
        recovered = started(disk).get(A)
        assert recovered is not None
        assert recovered.log_end_offset >= 5
        check_consistency(recovered)


def test_a_process_killed_within_a_truncation_leaves_no_hole() -> None:
    operation = 0
    while True:
        operation += 1
        disk = SimulatedDisk(Random(operation))
        logs = started(disk)
        append(logs.create(A), *(b"%d" % number * 100 for number in range(60)))
        disk.crash_at(disk.operations + operation)
        try:
            logs.truncate(A, 5)
        except SimulatedCrash:
            disk.crash(power=False)
        else:
            break
        recovered = started(disk).get(A)
        assert recovered is not None
        offsets = [offset for data in read_all(recovered) for offset in [int.from_bytes(data[:8], "big")]]
        assert offsets == list(range(recovered.log_end_offset))
    assert operation > 10


def test_too_many_open_files_take_nothing_offline() -> None:
    disk = SimulatedDisk(Random(1))
    logs = started(disk)
    disk.fail_next(errno.EMFILE, name="sync_directory")
    with pytest.raises(LogError, match="as many files open as it may"):
        logs.create(A)
    assert logs.directories[0].is_online
    append(logs.create(A), b"goes on")


def test_a_full_disk_takes_nothing_offline() -> None:
    disk = SimulatedDisk(Random(1))
    logs = started(disk)
    log = logs.create(A)
    append(log, b"x")
    disk.capacity_bytes = disk.used_bytes
    for task in logs.tasks():
        asyncio.run(task.run())  # type: ignore[arg-type]
    with pytest.raises(LogError, match="the disk is full"):
        append(log, b"y" * 1000)
    with pytest.raises(LogError, match="the disk is full"):
        logs.create(B)
    assert logs.directories[0].is_online
    disk.capacity_bytes = None
    append(log, b"goes on")
    asyncio.run(logs.save_high_watermarks())
    assert logs.get(A) is log


def test_one_failing_flush_does_not_stop_the_task() -> None:
    disk = SimulatedDisk(Random(1))
    logs = started(disk, flush_ms=0)
    for partition in (A, B, C):
        append(logs.create(partition), b"x")
    disk.fail_next(errno.EIO, name="sync", path="a-0")
    asyncio.run(logs.flush_due_logs())
    assert not logs.directories[0].is_online


def test_a_second_node_does_not_run_on_the_rest_of_the_directories() -> None:
    disk = SimulatedDisk(Random(1))
    first = started(disk, "/one")
    with pytest.raises(DirectoryInUseError, match="log directory /one: another process is using it"):
        started(disk, "/two", "/one")
    asyncio.run(first.stop())
    asyncio.run(started(disk, "/two", "/one").stop())


@pytest.mark.parametrize("name", ["copy.log", "x.cleaned", "abc.log.swap", "notes.txt", "123.index"])
def test_strangers_in_a_partitions_directory_are_left_alone(name: str) -> None:
    disk = SimulatedDisk(Random(1))
    logs = started(disk)
    append(logs.create(A), b"x")
    asyncio.run(logs.stop())
    disk.open(f"/one/a-0/{name}", create=True).write_at(0, b"stranger")
    disk.open("/one/backup-1", create=True).write_at(0, b"a file, not a partition")
    for crash in (False, True):
        again = started(disk)
        log = again.get(A)
        assert log is not None
        assert log.log_end_offset == 1
        if crash:
            asyncio.run(again.stop())
        else:
            disk.crash(power=False)
    assert name in disk.names("/one/a-0")


def test_a_log_that_was_compacted_once_keeps_its_gaps() -> None:
    disk = SimulatedDisk(Random(1))
    compacted = started(disk, cleanup_policy=["compact"], min_cleanable_dirty_ratio=0.01)
    log = compacted.create(A)
    append(log, *(b"%d" % number * 100 for number in range(80)))
    log.flush()
    asyncio.run(compacted.compact_logs())
    left = read_all(log)
    disk.crash(power=False)
    recovered = started(disk, cleanup_policy=["delete"]).get(A)
    assert recovered is not None
    assert read_all(recovered) == left


@pytest.mark.parametrize(
    ("name", "partition"),
    [("a-0", TopicPartition("a", 0)), ("a-b-12", TopicPartition("a-b", 12)), ("a", None), ("a-", None), ("-1", None)],
)
def test_names_of_partitions(name: str, partition: TopicPartition | None) -> None:
    assert parse_partition_name(name) == partition


def test_names_of_deleted_partitions_fit() -> None:
    assert len(deleted_name(TopicPartition("x" * 249, 12345), Random(1))) == 255


def test_a_log_that_belongs_to_nobody_is_set_aside_and_kept() -> None:
    disk = SimulatedDisk(Random(1))
    logs = started(disk)
    append(logs.create(A), b"x")
    logs.set_aside(A)
    assert logs.get(A) is None
    [name] = [name for name in disk.names("/one") if name.endswith("-stray")]
    assert disk.size(f"/one/{name}/00000000000000000000.log") > 0
    assert logs.create(A).log_end_offset == 0
    asyncio.run(logs.remove_deleted())
    asyncio.run(logs.stop())
    assert set(started(disk).logs) == {A}
    assert name in disk.names("/one")


def test_logs_made_away_from_the_loop_are_spread_and_told_of_when_they_fail() -> None:
    disk = SimulatedDisk(Random(1))
    logs = started(disk, "/one", "/two")
    disk.fail_next(errno.ENOSPC, path="/one/t-0/")
    wanted = [(TopicPartition("t", number), TOPIC_ID) for number in range(4)]
    asyncio.run(logs.create_many(wanted))
    assert set(logs.logs) == {partition for partition, _ in wanted[1:]}
    assert all(log.topic_id == TOPIC_ID for log in logs.logs.values())
    asyncio.run(logs.create_many(wanted))
    assert sorted(len(directory.logs) for directory in logs.directories) == [2, 2]


def test_who_asks_is_told_of_partitions_that_go_offline() -> None:
    disk = SimulatedDisk(Random(1))
    logs = started(disk, "/one", "/two")
    log_a = logs.create(A)
    logs.create(B)
    told: list[TopicPartition] = []
    logs.on_offline = lambda partition, reason: told.append(partition)
    logs.partition_failed(B, LogError(ErrorCode.KAFKA_STORAGE_ERROR, "corrupt"))
    disk.fail_next(errno.EIO, path="/one/replication-offset-checkpoint")
    append(log_a, b"x")
    asyncio.run(logs.save_high_watermarks())
    assert told == [B, A]


def test_an_idle_node_does_not_write_its_checkpoints_again() -> None:
    disk = SimulatedDisk(Random(1))
    logs = started(disk)
    append(logs.create(A), b"x")
    asyncio.run(logs.save_high_watermarks())
    operations = disk.operations
    asyncio.run(logs.save_high_watermarks())
    assert disk.operations == operations
