"""What `timestamp_now` tells is what a reader finds, and it costs nobody a disk or an index."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path
from random import Random

import pytest

from barnabas.records.batch import HEADER
from barnabas.storage.log import PartitionLog
from barnabas.storage.real_files import RealFileSystem
from barnabas.storage.recovery import load_log
from barnabas.storage.validation import prepare_from_client
from barnabas.testing.sim.disk import SimulatedDisk
from tests.storage.logs import NOW_MS, PARTITION, batch, new_disk, open_log, topic_settings

COUNT = 60
READS = ("read_at", "sync", "write_at")


def filled(disk: SimulatedDisk) -> PartitionLog:
    """Batches of three records, a second apart, in several segments with an index entry every few batches."""
    log = open_log(disk)
    fill(log)
    return log


def fill(log: PartitionLog) -> None:
    for number in range(COUNT):
        data = batch([b"x" * 10] * 3, timestamp_ms=NOW_MS + number * 1000)
        log.append(prepare_from_client(data, log.settings, NOW_MS), leader_epoch=0, now_ms=NOW_MS)
    log.set_high_watermark(log.log_end_offset)
    assert len(log.segments) > 3


def calls_of(disk: SimulatedDisk) -> list[str]:
    """What is asked of the disk from now on."""
    calls: list[str] = []
    disk.hook = lambda _number, name, _path: calls.append(name)
    return calls


def told(log: PartitionLog) -> list[int | None]:
    return [log.timestamp_now(offset) for offset in range(log.log_end_offset)]


RIGHT = [NOW_MS + offset // 3 * 1000 for offset in range(COUNT * 3)]


@pytest.mark.parametrize("are_loaded", [True, False])
def test_what_is_in_memory_is_told(are_loaded: bool) -> None:
    disk = new_disk()
    log = filled(disk)
    if not are_loaded:
        for segment in log.segments[:-1]:
            segment.unload_indexes()
    assert told(log) == RIGHT
    assert {each.offset_index.is_loaded for each in log.segments[:-1]} == {are_loaded}
    assert log.timestamp_now(log.log_end_offset) is None


def test_in_an_index_that_was_not_closed_zeros_are_no_entries() -> None:
    disk = new_disk()
    log = filled(disk)
    for segment in log.segments[:-1]:
        segment.unload_indexes()
        file = disk.open(segment.offset_index.path)
        file.write_at(file.size(), bytes(80))
        file.close()
    assert told(log) == RIGHT


@pytest.mark.parametrize("are_loaded", [True, False])
def test_what_lies_on_a_disk_only_is_not_waited_for(are_loaded: bool) -> None:
    disk = new_disk()
    log = filled(disk)
    if not are_loaded:
        for segment in log.segments[:-1]:
            segment.unload_indexes()
    disk.cold_reads = 1.0
    calls = calls_of(disk)
    assert told(log) == [None] * len(RIGHT)
    assert not set(READS) & set(calls)


@pytest.mark.parametrize("change", [-100, -1, 1, 100, 100_000, -(2**30)])
@pytest.mark.parametrize("field", [0, 1])
def test_a_wrong_index_is_left_to_readers(field: int, change: int, caplog: pytest.LogCaptureFixture) -> None:
    disk = new_disk()
    log = filled(disk)
    entry = struct.Struct(">ii")
    for segment in log.segments[:-1]:
        segment.unload_indexes()
        file = disk.open(segment.offset_index.path)
        entries = list(entry.iter_unpack(file.read_at(0, file.size())))
        for place, each in enumerate(entries):
            changed = list(each)
            changed[field] += change
            file.write_at(place * entry.size, entry.pack(*changed))
        file.close()
    calls = calls_of(disk)
    found = told(log)
    assert not {"write_at", "sync", "truncate"} & set(calls)
    assert not caplog.records
    # An entry may leave out a batch of those after it, for all that can be seen without more reading.
    assert set(found) <= {*RIGHT, None}
    assert found[log.segments[-1].base_offset :] == RIGHT[log.segments[-1].base_offset :]


def test_damage_and_failures_are_left_to_readers() -> None:
    disk = new_disk()
    log = filled(disk)
    file = log.segments[0].file
    file.write_at(8, b"\x00" * (HEADER.size - 8))
    assert log.timestamp_now(0) is None
    disk.fail_next(5, name="read_at", count=1000)
    assert set(told(log)) == {None}


def test_a_gap_is_passed_over() -> None:
    disk = new_disk()
    log = filled(disk)
    first, second = log.segments[:2]
    first.cut_at(0, 0)
    assert log.timestamp_now(0) == RIGHT[second.base_offset]


def test_what_lay_on_the_disk_only_is_told_to_who_asks_again(tmp_path: Path) -> None:
    """As of a group that stopped, after the node was restarted: nobody reads there."""
    files, folder = RealFileSystem(), str(tmp_path / "clicks-3")
    files.make_directory(folder)
    log = load_log(files, folder, PARTITION, topic_settings(), was_clean=True, now_ms=NOW_MS, randomness=Random(5))
    fill(log)
    log.flush()
    os.sync()
    for segment in log.segments:
        segment.unload_indexes()
        for path in (segment.file.path, segment.offset_index.path):
            with Path(path).open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    while log.timestamp_now(0) != RIGHT[0]:
        time.sleep(0.001)  # the disk has its own time
    log.close()


def test_who_would_have_to_look_through_a_segment_gives_up() -> None:
    disk = new_disk()
    log = open_log(disk, topic_settings(internal_segment_bytes=1_000_000, index_interval_bytes=10_000_000))
    for _ in range(200):
        data = batch([b"x" * 1000])
        log.append(prepare_from_client(data, log.settings, NOW_MS), leader_epoch=0, now_ms=NOW_MS)
    assert log.timestamp_now(10) == NOW_MS
    assert log.timestamp_now(100) is None
    assert log.timestamp_now(199) == NOW_MS, "of what was written last, one knows where it is"
