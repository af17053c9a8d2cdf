"""What a start that came to nothing, a stop with partitions offline, and failing disks leave to the next start."""

from __future__ import annotations

import asyncio
import errno
import logging
from random import Random

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.storage.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    read_offsets,
)
from barnabas.storage.errors import CorruptLogError, LogError
from barnabas.storage.manager import LogManager
from barnabas.testing.sim.disk import SimulatedDisk
from barnabas.testing.sim.loop import VirtualTimeLoop
from barnabas.testing.sim.runtime import SimulatedRuntime
from tests.storage.logs import read_all, topic_settings
from tests.storage.managers import TOPIC_ID, A, B, C, append, manager, started
from tests.storage.runtime import InlineRuntime

CHECKPOINTS = [RECOVERY_POINT_FILE, LOG_START_FILE, HIGH_WATERMARK_FILE]


def checkpoints(disk: SimulatedDisk) -> list[dict[TopicPartition, int]]:
    return [read_offsets(disk, f"/one/{name}") for name in CHECKPOINTS]


def filled(*, is_clean: bool) -> SimulatedDisk:
    """A disk with logs of ten records of which the first three were deleted."""
    disk = SimulatedDisk(Random(1))
    logs = started(disk)
    for partition in (A, B, C):
        log = logs.create(partition)
        append(log, *[b"x"] * 10)
        log.advance_log_start(3)
        log.flush()
    asyncio.run(logs.stop(broker_epoch=4))
    if not is_clean:
        disk.remove(f"/one/{CLEAN_SHUTDOWN_FILE}")
        disk.sync_directory("/one")
    return disk


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_start_that_failed_before_logs_were_loaded_changes_nothing(is_clean: bool) -> None:
    disk = filled(is_clean=is_clean)
    before = checkpoints(disk)
    logs = manager(disk)
    logs.open_directories()
    asyncio.run(logs.stop())
    assert checkpoints(disk) == before == [{A: 10, B: 10, C: 10}, {A: 3, B: 3, C: 3}, {A: 10, B: 10, C: 10}]
    again = started(disk)
    assert (again.directories[0].was_clean, again.directories[0].previous_broker_epoch) == (
        (True, 4) if is_clean else (False, -1)
    )
    assert {log.log_start_offset for log in again.logs.values()} == {3}


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("after_ms", [0.1, 1, 2, 3, 4])
def test_a_start_that_was_given_up_while_logs_were_loaded_changes_nothing(after_ms: float, is_clean: bool) -> None:
    disk = filled(is_clean=is_clean)
    before = checkpoints(disk)
    loop = VirtualTimeLoop()
    logs = LogManager(disk, ["/one"], lambda topic: topic_settings(), SimulatedRuntime(loop, Random(3)))
    start = loop.create_task(logs.start())
    loop.run_for(after_ms / 1000)
    start.cancel()
    loop.run_until_complete(asyncio.wait([start]))
    assert start.cancelled()
    loop.run_until_complete(logs.stop())
    operations = disk.operations
    loop.run_for(1)
    assert disk.operations == operations, "the directory is not locked any more, so nobody may touch it"
    assert checkpoints(disk) == before
    again = started(disk)
    assert again.directories[0].was_clean is is_clean
    assert {(log.log_start_offset, log.log_end_offset) for log in again.logs.values()} == {(3, 10)}


def test_a_partition_that_is_offline_makes_the_stop_unclean_and_keeps_its_checkpoints() -> None:
    disk = filled(is_clean=True)
    file = disk.open("/one/a-0/leader-epoch-checkpoint")
    content = file.read_at(0, file.size())
    file.truncate(0)
    file.write_at(0, b"nonsense\n")
    logs = started(disk)
    logs.partition_failed(B, CorruptLogError("/one/b", 0, "torn"))
    assert set(logs.logs) == {C}
    asyncio.run(logs.save_log_starts())
    asyncio.run(logs.stop())
    assert checkpoints(disk) == [{A: 10, B: 10, C: 10}, {A: 3, B: 3, C: 3}, {A: 10, B: 10, C: 10}]
    file.truncate(0)
    file.write_at(0, content)
    again = started(disk)
    assert not again.directories[0].was_clean
    assert {(log.log_start_offset, log.log_end_offset) for log in again.logs.values()} == {(3, 10)}
    assert set(again.logs) == {A, B, C}


def test_a_log_that_tore_while_it_was_offline_is_recovered() -> None:
    disk = filled(is_clean=True)
    logs = started(disk)
    whole = logs.get(A)
    assert whole is not None
    data = read_all(whole)[-1]
    append(whole, b"y")
    logs.partition_failed(A, CorruptLogError("/one/a", 0, "torn"))
    asyncio.run(logs.stop())
    file = disk.open("/one/a-0/00000000000000000000.log")
    file.write_at(file.size(), data[:40])
    recovered = started(disk).get(A)
    assert recovered is not None
    assert (recovered.log_end_offset, len(read_all(recovered))) == (11, 8)


def test_a_disk_that_is_full_at_the_stop_gives_its_lock_back() -> None:
    disk = SimulatedDisk(Random(1))
    logs = started(disk, "/one", "/two")
    for partition in (A, B):
        append(logs.create(partition), b"x")
    disk.fail_next(errno.ENOSPC, path="/one/replication-offset-checkpoint")
    asyncio.run(logs.stop())
    again = started(disk, "/one", "/two")
    assert [directory.was_clean for directory in again.directories] == [False, True]
    assert {log.log_end_offset for log in again.logs.values()} == {1}


def test_a_partition_on_a_disk_that_fails_at_the_start_is_offline_and_not_made_anew_elsewhere() -> None:
    disk = SimulatedDisk(Random(1))
    logs = started(disk, "/one", "/two")
    for partition in (A, B, C, TopicPartition("d", 0)):
        append(logs.create(partition), b"x")
    asyncio.run(logs.stop())
    disk.fail_next(errno.EIO, path="/one/a-0/")
    again = started(disk, "/one", "/two")
    for partition in (A, C):
        with pytest.raises(LogError, match="is offline: log directory /one"):
            again.create(partition)
    assert set(again.logs) == {B, TopicPartition("d", 0)}


def test_who_asks_is_told_once_of_each_directory_that_fails_and_of_the_last_one() -> None:
    disk = SimulatedDisk(Random(1))
    logs = started(disk, "/one", "/two")
    told: list[tuple[str, bool]] = []
    logs.on_directory_failed = lambda directory, is_last: told.append((directory.path, is_last))
    append(logs.create(A), b"x")
    append(logs.create(B), b"x")
    disk.fail_next(errno.EIO, path="/one/replication-offset-checkpoint")
    asyncio.run(logs.save_high_watermarks())
    assert told == [("/one", False)]
    logs.directory_failed(logs.directories[0], "again")
    assert told == [("/one", False)]
    disk.fail_next(errno.EIO, path="/two/c-1")
    asyncio.run(logs.create_many([(C, TOPIC_ID)]))
    assert told == [("/one", False), ("/two", True)]
    with pytest.raises(LogError, match="no log directory can be used") as refusal:
        logs.create(TopicPartition("d", 0))
    assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR


# What it tells


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    # Others in this process may have something to say too.
    of_ours = [record for record in caplog.records if record.name.startswith("barnabas.storage")]
    lines = [record.getMessage() for record in of_ours if record.levelno >= logging.INFO]
    caplog.clear()
    return lines


def test_a_torn_end_is_told_with_how_much_was_cut(caplog: pytest.LogCaptureFixture) -> None:
    disk = filled(is_clean=False)
    file = disk.open("/one/a-0/00000000000000000000.log")
    file.write_at(file.size(), b"torn " * 8)
    caplog.set_level(logging.INFO)
    started(disk)
    first, *_, last = told(caplog)
    assert first == "Recovering 3 logs from /one since no clean shutdown file was found"
    assert last.startswith("Loaded 3 logs from /one in 0 ms: 3 segments with ")
    assert last.endswith(" bytes were read, 40 bytes were cut from 1 logs")


def test_segments_that_are_dropped_count_as_cut(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimulatedDisk(Random(1))
    logs = started(disk)
    log = logs.create(A)
    append(log, *[b"x" * 500] * 10)
    sizes = [segment.size_bytes for segment in log.segments]
    assert len(sizes) > 2
    disk.crash(power=False)
    disk.open(f"/one/{A}/00000000000000000000.log").truncate(sizes[0] - 10)
    caplog.set_level(logging.INFO)
    started(disk)
    whole_batch = sizes[0] // (log.segments[1].base_offset)
    cut_bytes = whole_batch - 10 + sum(sizes[1:])
    assert told(caplog)[-1].endswith(
        f"1 segments with {sizes[0] - 10:,} bytes were read, {cut_bytes:,} bytes were cut from 1 logs"
    )


def test_after_a_clean_stop_nothing_is_read_and_that_is_told(caplog: pytest.LogCaptureFixture) -> None:
    disk = filled(is_clean=True)
    caplog.set_level(logging.INFO)
    logs = started(disk)
    assert told(caplog) == [
        "Skipping recovery of 3 logs from /one since clean shutdown file was found",
        "Loaded 3 logs from /one in 0 ms",
    ]
    asyncio.run(logs.stop())
    assert told(caplog) == ["Closed 3 logs of /one and wrote clean shutdown file"]


def test_a_stop_that_was_not_clean_is_told(caplog: pytest.LogCaptureFixture) -> None:
    logs = started(filled(is_clean=True))
    logs.partition_failed(B, CorruptLogError("/one/b", 0, "torn"))
    caplog.clear()
    asyncio.run(logs.stop())
    assert told(caplog) == ["/one was not closed cleanly: the next start recovers its logs"]


def test_a_long_recovery_tells_how_far_it_is_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    disk = filled(is_clean=False)
    runtime = InlineRuntime()
    logs = manager(disk, runtime=runtime)
    disk.hook = lambda number, name, path: runtime.clock.advance(6000) if path.endswith("partition.metadata") else None
    caplog.set_level(logging.INFO)
    asyncio.run(logs.start())
    assert [line for line in told(caplog) if "are loaded" in line] == ["1 of 3 logs from /one are loaded"]
