"""Indexes that are wrong cost time and a warning; they never let a reader miss a record."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from barnabas.storage import inspection
from barnabas.storage.log import PartitionLog
from barnabas.testing.memory_files import MemoryFileSystem
from tests.storage.damaged_logs import (
    CLICKS,
    COUNT,
    STEP_MS,
    Disk,
    contents,
    disk_of,
    filled,
    lead,
    read_every_offset,
    segment_path,
)
from tests.storage.logs import NOW_MS
from tests.storage.managers import TOPIC_ID, started

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")


@pytest.fixture(autouse=True, params=[0, 16 * 1024], ids=["large", "small"])
def small_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the verdict at the start looks at the index, or reads these segments as small ones."""
    monkeypatch.setattr(inspection, "_SMALL_BYTES", request.param)


def opened(disk: Disk) -> tuple[PartitionLog, MemoryFileSystem]:
    files = disk_of(disk)
    return started(files).create(CLICKS, TOPIC_ID), files


def found_times(log: PartitionLog) -> list[int | None]:
    times = [log.offset_for_timestamp(NOW_MS + number * STEP_MS) for number in range(COUNT)]
    return [None if time is None else time.offset for time in times]


def wrong_entries(data: bytes, form: struct.Struct) -> Iterator[bytes]:
    """The index with one entry changed: every field a little or much higher or lower."""
    for start in range(0, len(data), form.size):
        entry = form.unpack_from(data, start)
        for field in range(2):
            for change in (-223, -100, -1, 1, 2, 3, 100, 223, 446, 100_000, -(2**30)):
                changed = list(entry)
                changed[field] += change
                yield data[:start] + form.pack(*changed) + data[start + form.size :]


@pytest.mark.parametrize("segment", [0, 5, 10])
def test_an_offset_index_with_any_wrong_entry_skips_nothing(segment: int) -> None:
    disk = filled(is_clean=True)
    right = read_every_offset(opened(disk)[0])
    path = segment_path(segment, ".index")
    assert len(disk[path]) >= 2 * OFFSET_ENTRY.size
    for content in wrong_entries(disk[path], OFFSET_ENTRY):
        log, _ = opened({**disk, path: content})
        assert log.log_end_offset == COUNT
        assert read_every_offset(log) == right, content.hex()
        assert found_times(log) == list(range(COUNT)), content.hex()


@pytest.mark.parametrize("segment", [0, 5, 10])
def test_a_time_index_with_any_wrong_entry_skips_nothing(segment: int) -> None:
    disk = filled(is_clean=True)
    path = segment_path(segment, ".timeindex")
    assert len(disk[path]) >= 3 * TIME_ENTRY.size
    for content in wrong_entries(disk[path], TIME_ENTRY):
        log, _ = opened({**disk, path: content})
        assert found_times(log) == list(range(COUNT)), content.hex()
        assert log.offset_of_max_timestamp() == (NOW_MS + (COUNT - 1) * STEP_MS, COUNT - 1, 2)


@pytest.mark.parametrize("segment", [0, 5, 10])
@pytest.mark.parametrize("kept", [0, 1, 2])
def test_a_time_index_that_lost_its_last_entries_is_made_anew(
    segment: int, kept: int, caplog: pytest.LogCaptureFixture
) -> None:
    disk = filled(is_clean=True)
    path = segment_path(segment, ".timeindex")
    log, files = opened({**disk, path: disk[path][: kept * TIME_ENTRY.size]})
    assert found_times(log) == list(range(COUNT))
    assert "the timestamp of the last batch is not in it; the indexes are made anew" in caplog.text
    assert contents(files)[path] == disk[path]


def test_a_wrong_index_is_made_anew_and_the_warning_names_it(caplog: pytest.LogCaptureFixture) -> None:
    disk = filled(is_clean=True)
    path = segment_path(5, ".index")
    entries = list(OFFSET_ENTRY.iter_unpack(disk[path]))
    # The first entry leads to the batch behind the one that it means.
    entries[0] = (entries[0][0], entries[1][1])
    log, files = opened({**disk, path: b"".join(OFFSET_ENTRY.pack(*entry) for entry in entries)})
    assert len(read_every_offset(log)) == COUNT
    assert caplog.text.count("the indexes are made anew") == 1
    assert f"{path}: it points to byte" in caplog.text
    assert contents(files)[path] == disk[path]


def test_an_index_of_the_segment_that_is_written_to_may_be_wrong_too() -> None:
    disk = filled(is_clean=True)
    path = segment_path(10, ".timeindex")
    log, _ = opened({**disk, path: disk[path][: TIME_ENTRY.size]})
    for number in range(COUNT, COUNT + 4):
        lead(log, number)
    assert [offset for offset, _ in read_every_offset(log)] == list(range(COUNT + 4))
    found = log.offset_for_timestamp(NOW_MS + 17 * STEP_MS)
    assert found is not None
    assert found.offset == 17
