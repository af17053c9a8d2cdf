"""Compaction of a log on disk: the newest value of each key stays, offsets stay, a crash at any point harms nothing."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from barnabas.base.errors import BarnabasError
from barnabas.records import iter_batches
from barnabas.storage.cleaner import CleanerOptions, CleaningJob, LogCleaner, plan_for
from barnabas.storage.directories import LogDirectory
from barnabas.storage.log import PartitionLog
from barnabas.storage.settings import TopicSettings
from barnabas.storage.validation import prepare_from_client
from barnabas.testing.sim.disk import SimulatedCrash, SimulatedDisk
from tests.storage.logs import NOW_MS, PARTITION, batch, open_log, read_all, topic_settings
from tests.storage.runtime import InlineRuntime

SETTINGS = topic_settings(cleanup_policy=["compact"], min_cleanable_dirty_ratio=0.1, file_delete_delay_ms=0)

Record = tuple[bytes, bytes | None]


def new_disk(seed: int = 1) -> SimulatedDisk:
    disk = SimulatedDisk(Random(seed))
    disk.make_directory("/data")
    disk.sync_directory("/")
    return disk


def fill(log: PartitionLog, count: int, seed: int = 1, settings: TopicSettings = SETTINGS) -> dict[int, Record]:
    """Append single-record batches with few keys; what was written, by offset."""
    random, written = Random(seed), {}
    for _ in range(count):
        key, value = b"k%d" % random.randrange(6), random.randbytes(60) if random.random() < 0.9 else None
        prepared = prepare_from_client(batch([value], key=key), settings, NOW_MS)
        appended = log.append(prepared, leader_epoch=0, now_ms=NOW_MS)
        written[appended.first_offset] = key, value
    log.set_high_watermark(log.log_end_offset)
    return written


def records(log: PartitionLog) -> dict[int, Record]:
    found = {}
    for data in read_all(log):
        for each in iter_batches(data):
            for record in each:
                assert record.key is not None
                found[record.offset] = record.key, record.value
    return found


def newest(written: dict[int, Record]) -> dict[bytes, bytes | None]:
    return {key: value for _, (key, value) in sorted(written.items())}


def clean(log: PartitionLog, checkpoint: int | None = None, now_ms: int = NOW_MS, limit_bytes: int = 1 << 20) -> int:
    job = CleaningJob(log, plan_for(log, checkpoint, now_ms), limit_bytes, now_ms)
    cleaned = job.run()
    assert job.apply_to(log, cleaned, now_ms)
    return cleaned.end_offset


def clean_and_remove(log: PartitionLog) -> None:
    clean(log)
    log.remove_deleted(NOW_MS)


def test_the_newest_value_of_every_key_stays_at_its_offset() -> None:
    log = open_log(new_disk(), SETTINGS)
    written = fill(log, 120)
    before_bytes, active_base = log.size_bytes, log.active_segment.base_offset
    clean(log)
    left = records(log)
    assert left.items() <= written.items()
    assert newest(left) == newest(written)
    assert {offset: each for offset, each in written.items() if offset >= active_base}.items() <= left.items()
    assert log.size_bytes < before_bytes / 2
    below = [key for offset, (key, _) in left.items() if offset < active_base]
    assert len(below) == len(set(below))


def test_a_cleaned_log_survives_restarts() -> None:
    disk = new_disk()
    log = open_log(disk, SETTINGS)
    fill(log, 120)
    clean(log)
    left, end = records(log), log.log_end_offset
    log.close()
    for was_clean in (True, False):
        log = open_log(disk, SETTINGS, was_clean=was_clean, recovery_point=end)
        assert (records(log), log.log_end_offset) == (left, end)
        log.abandon()


def test_tombstones_go_once_their_time_has_come() -> None:
    log = open_log(new_disk(), SETTINGS)
    log.append(prepare_from_client(batch([None], key=b"gone"), SETTINGS, NOW_MS), leader_epoch=0, now_ms=NOW_MS)
    fill(log, 60)
    clean(log)
    assert b"gone" in newest(records(log))
    clean(log, checkpoint=0, now_ms=NOW_MS + SETTINGS.delete_retention_ms + 1)
    assert b"gone" not in newest(records(log))


def test_a_small_key_map_needs_several_rounds() -> None:
    log = open_log(new_disk(), SETTINGS)
    written = fill(log, 120)
    checkpoint, rounds = 0, 0
    while plan_for(log, checkpoint, NOW_MS).dirty_bytes:
        end = clean(log, checkpoint, limit_bytes=300)
        assert end > checkpoint
        checkpoint, rounds = end, rounds + 1
    assert rounds > 1
    assert newest(records(log)) == newest(written)


def test_segments_that_changed_meanwhile_are_left_alone() -> None:
    disk = new_disk()
    log = open_log(disk, SETTINGS)
    fill(log, 120)
    job = CleaningJob(log, plan_for(log, None, NOW_MS), 1 << 20, NOW_MS)
    cleaned = job.run()
    log.advance_log_start(log.segments[2].base_offset)
    log.delete_old_segments(NOW_MS)
    before = records(log)
    assert not job.apply_to(log, cleaned, NOW_MS)
    assert records(log) == before
    assert not [name for name in disk.names("/data/clicks-3") if "cleaned" in name]


def test_a_segment_that_was_cut_meanwhile_is_not_replaced() -> None:
    log = open_log(new_disk(), SETTINGS)
    fill(log, 120)
    job = CleaningJob(log, plan_for(log, None, NOW_MS), 1 << 20, NOW_MS)
    cleaned = job.run()
    # Cut, but still there; and closed again by what is appended.
    log.truncate_to(log.segments[-2].base_offset + 3, NOW_MS)
    fill(log, 60, seed=9)
    before = records(log)
    assert not job.apply_to(log, cleaned, NOW_MS)
    assert records(log) == before


def test_a_corrupt_log_is_not_compacted_but_stays_readable() -> None:
    disk = new_disk()
    log = open_log(disk, SETTINGS)
    fill(log, 120)
    file = log.segments[0].file
    file.write_at(80, b"\xff\xff")
    directory = LogDirectory(disk, "/data", lambda: 0)
    directory.open()
    directory.logs[PARTITION] = log
    cleaner = LogCleaner(InlineRuntime(), CleanerOptions())
    assert asyncio.run(cleaner.clean_dirtiest(directory))
    problem: BarnabasError = cleaner.uncleanable[PARTITION]
    assert "00000000000000000000.log" in str(problem)
    assert not asyncio.run(cleaner.clean_dirtiest(directory))
    assert not [name for name in disk.names("/data/clicks-3") if "cleaned" in name]
    later = log.segments[1].base_offset
    assert log.read(later, 100, end_offset=log.log_end_offset).range is not None


@pytest.mark.parametrize("power", [True, False], ids=["power loss", "killed process"])
@pytest.mark.parametrize("seed", range(3))
def test_every_crash_point_of_a_compaction(seed: int, power: bool) -> None:
    def run(operation: int | None) -> tuple[SimulatedDisk, dict[int, Record], int]:
        disk = new_disk(seed * 1000 + (operation or 0))
        log = open_log(disk, SETTINGS)
        written = fill(log, 60, seed)
        log.flush()
        start = disk.operations
        disk.crash_at(None if operation is None else start + operation)
        if operation is None:
            clean_and_remove(log)
            return disk, written, disk.operations - start
        with pytest.raises(SimulatedCrash):
            clean_and_remove(log)
        disk.crash(power=power)
        return disk, written, operation

    _, _, operations = run(None)
    assert operations > 30
    for operation in range(1, operations + 1):
        disk, written, _ = run(operation)
        log = open_log(disk, SETTINGS, was_clean=False, recovery_point=60)
        left = records(log)
        note = f"crash in operation {operation}"
        assert left.items() <= written.items(), note
        assert newest(left) == newest(written), note
        assert log.log_end_offset == 60, note
        names = disk.names("/data/clicks-3")
        assert not [name for name in names if name.endswith((".swap", ".cleaned", ".deleted"))], note
        bases = [segment.base_offset for segment in log.segments]
        assert bases == sorted(set(bases)), note
