"""Deleting topics: whatever goes on with their logs, nothing of them comes back, and nobody else suffers."""

from __future__ import annotations

import asyncio
import errno
from random import Random

import pytest

from barnabas.base.ids import TopicPartition, Uuid
from barnabas.storage.checkpoints import CLEANER_FILE, LOG_START_FILE, RECOVERY_POINT_FILE, read_offsets
from barnabas.storage.errors import CorruptLogError
from barnabas.storage.manager import LogManager
from barnabas.testing.sim.disk import SimulatedDisk
from tests.storage.managers import TOPIC_ID, A, B, append, started
from tests.storage.runtime import InlineRuntime

OTHER_ID = Uuid(bytes(range(16, 32)))
COMPACTED = {"cleanup_policy": ["compact"], "min_cleanable_dirty_ratio": 0.01}


def values(prefix: bytes, count: int = 60) -> list[bytes]:
    return [prefix + b"%d" % number * 100 for number in range(count)]


def names(disk: SimulatedDisk, ending: str) -> list[str]:
    return [name for name in disk.names("/one") if name.endswith(ending)]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_log_that_is_deleted_while_it_is_compacted(moment: str) -> None:
    disk, runtime = SimulatedDisk(Random(1)), InlineRuntime()
    logs = started(disk, runtime=runtime, **COMPACTED)
    append(logs.create(A, TOPIC_ID), *values(b"x"))
    other = logs.create(B)

    def delete_and_create() -> None:
        logs.delete(A)
        logs.create(A, OTHER_ID)

    setattr(runtime, moment, delete_and_create)
    asyncio.run(logs.compact_logs())
    assert logs.directories[0].is_online
    assert logs.get(B) is other
    assert logs.directories[0].cleaner_offsets == {}
    new = logs.get(A)
    assert new is not None
    assert new.log_end_offset == 0
    runtime.clock.advance(60_000)
    asyncio.run(logs.remove_deleted())
    assert not names(disk, "-delete")
    append(new, *values(b"y"))
    asyncio.run(logs.compact_logs())
    assert logs.directories[0].cleaner_offsets[A] > 0


@pytest.mark.parametrize("moment", ["before", "after"])
def test_segments_that_are_removed_while_they_are_compacted(moment: str) -> None:
    disk, runtime = SimulatedDisk(Random(1)), InlineRuntime()
    logs = started(disk, runtime=runtime, file_delete_delay_ms=0, **COMPACTED)
    log = logs.create(A)
    append(log, *values(b"x"))

    def delete_records() -> None:
        log.advance_log_start(log.segments[2].base_offset)
        log.delete_old_segments(runtime.clock.now_ms())
        log.remove_deleted(runtime.clock.now_ms())

    setattr(runtime, moment, delete_records)
    asyncio.run(logs.compact_logs())
    assert logs.get(A) is log
    assert logs.directories[0].cleaner_offsets[A] > 0, "it is tried again with what is left"


def test_a_new_topic_is_compacted_although_the_old_one_of_its_name_could_not_be() -> None:
    disk = SimulatedDisk(Random(1))
    logs = started(disk, **COMPACTED)
    log = logs.create(A)
    append(log, *values(b"x"))
    log.segments[0].file.write_at(80, b"\xff\xff")
    asyncio.run(logs.compact_logs())
    assert A not in logs.directories[0].cleaner_offsets
    logs.delete(A)
    append(logs.create(A), *values(b"x"))
    asyncio.run(logs.compact_logs())
    assert logs.directories[0].cleaner_offsets[A] > 0


def fail(logs: LogManager) -> None:
    logs.partition_failed(A, CorruptLogError("/one/a-0/x", 0, "torn"))


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_partition_that_is_deleted_while_it_is_offline_does_not_come_back(is_restarted: bool) -> None:
    disk, runtime = SimulatedDisk(Random(1)), InlineRuntime()
    logs = started(disk, runtime=runtime)
    append(logs.create(A, TOPIC_ID), b"old")
    if is_restarted:
        asyncio.run(logs.stop())
        disk.open("/one/a-0/leader-epoch-checkpoint").write_at(0, b"nonsense")
        logs = started(disk, runtime=runtime)
    else:
        fail(logs)
    logs.delete(A)
    assert logs.create(A, OTHER_ID).log_end_offset == 0
    asyncio.run(logs.remove_deleted())
    assert sorted(name for name in disk.names("/one") if name.startswith("a-0")) == ["a-0"]


def test_what_lies_in_the_place_of_a_new_topic_is_set_aside() -> None:
    disk = SimulatedDisk(Random(1))
    logs = started(disk)
    append(logs.create(A, TOPIC_ID), b"old")
    # A full disk does not let the directory be renamed.
    disk.fail_next(errno.ENOSPC, name="rename", path="/one/a-0")
    logs.delete(A)
    assert logs.directories[0].is_online
    new = logs.create(A, OTHER_ID)
    assert (new.log_end_offset, new.topic_id) == (0, OTHER_ID)
    [stray] = names(disk, "-stray")
    assert disk.size(f"/one/{stray}/00000000000000000000.log") > 0


def test_a_creation_that_did_not_come_to_its_end_is_taken_up_again() -> None:
    disk = SimulatedDisk(Random(1))
    logs = started(disk)
    disk.fail_next(errno.ENOSPC, path="/one/a-0/0")
    asyncio.run(logs.create_many([(A, TOPIC_ID)]))
    assert logs.get(A) is None
    assert logs.create(A, TOPIC_ID).topic_id == TOPIC_ID
    assert not names(disk, "-stray")


def test_a_new_topic_does_not_go_by_the_checkpoints_of_the_old_one_after_a_crash() -> None:
    disk = SimulatedDisk(Random(1))
    logs = started(disk, **COMPACTED)
    log = logs.create(A, TOPIC_ID)
    append(log, *values(b"x"))
    asyncio.run(logs.compact_logs())
    log.advance_log_start(50)
    log.flush()
    for task in logs.tasks():
        asyncio.run(task.run())  # type: ignore[arg-type]
    assert read_offsets(disk, f"/one/{LOG_START_FILE}") == {A: 50}
    logs.delete(A)
    append(logs.create(A, OTHER_ID), b"new", b"newer")
    for name in (LOG_START_FILE, RECOVERY_POINT_FILE, CLEANER_FILE):
        assert read_offsets(disk, f"/one/{name}") == {}
    disk.crash(power=False)
    recovered = started(disk).get(A)
    assert recovered is not None
    assert (recovered.log_start_offset, recovered.log_end_offset) == (0, 2)


def test_many_partitions_are_deleted_away_from_the_loop_with_one_sync() -> None:
    disk, runtime = SimulatedDisk(Random(1)), InlineRuntime()
    logs = started(disk, runtime=runtime)
    doomed = [TopicPartition("many", number) for number in range(50)]
    for partition in doomed:
        append(logs.create(partition), b"x")
    kept = logs.create(A)
    on_the_loop: list[int] = []
    # Whatever touches the disk before the work is done elsewhere would be done on the loop.
    before = disk.operations
    runtime.before = lambda: on_the_loop.append(disk.operations - before)
    asyncio.run(logs.delete_many([*doomed, TopicPartition("unknown", 0)]))
    assert on_the_loop == [0]
    assert disk.operations - before < 2 * len(doomed)
    assert logs.logs == {A: kept}
    assert len(names(disk, "-delete")) == 50
    runtime.clock.advance(60_000)
    asyncio.run(logs.remove_deleted())
    assert not names(disk, "-delete")
    assert logs.create(doomed[0]).log_end_offset == 0


def test_a_disk_that_fails_while_partitions_are_deleted_takes_the_others_offline() -> None:
    disk = SimulatedDisk(Random(1))
    logs = started(disk, "/one", "/two")
    append(logs.create(A), b"x")
    logs.create(B)
    disk.fail_next(errno.EIO, name="rename", path="/one/a-0")
    asyncio.run(logs.delete_many([A]))
    assert [directory.is_online for directory in logs.directories] == [False, True]
    assert set(logs.logs) == {B}


def test_retention_lets_others_have_their_turn_between_segments() -> None:
    disk, runtime = SimulatedDisk(Random(1)), InlineRuntime()
    logs = started(disk, runtime=runtime, retention_ms=1000)
    log = logs.create(A)
    append(log, *values(b"x"))
    count = len(log.segments)
    assert count > 4
    runtime.clock.advance(5000)

    async def watch() -> list[int]:
        work = asyncio.ensure_future(logs.delete_old_segments())
        seen = []
        while not work.done():
            seen.append(len(log.segments))
            await asyncio.sleep(0)
        return seen

    seen = asyncio.run(watch())
    assert len(set(seen)) >= count
    assert (log.log_start_offset, len(log.segments)) == (60, 1)
