"""The two indexes: what they find, what they keep, and how they look in their files."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.storage.errors import CorruptLogError
from barnabas.storage.files import read_file, replace_content
from barnabas.storage.indexes import OffsetEntry, OffsetIndex, TimeEntry, TimeIndex
from barnabas.testing.sim.disk import SimulatedDisk
from tests.storage.logs import new_disk

BASE = 1000
OFFSETS = "/data/00000000000000001000.index"
TIMES = "/data/00000000000000001000.timeindex"


def offset_index(disk: SimulatedDisk, max_bytes: int = 800) -> OffsetIndex:
    return OffsetIndex(disk, OFFSETS, BASE, max_bytes)


def time_index(disk: SimulatedDisk, max_bytes: int = 1200) -> TimeIndex:
    return TimeIndex(disk, TIMES, BASE, max_bytes)


def filled_offsets(disk: SimulatedDisk) -> OffsetIndex:
    index = offset_index(disk)
    index.create()
    for offset, position in [(1004, 100), (1009, 250), (1020, 900)]:
        index.append(offset, position)
    return index


def filled_times(disk: SimulatedDisk) -> TimeIndex:
    index = time_index(disk)
    index.create()
    for timestamp_ms, offset in [(50, 1004), (70, 1009), (95, 1020)]:
        index.append(timestamp_ms, offset)
    return index


def test_an_offset_is_looked_up_from_the_entry_before() -> None:
    index = filled_offsets(new_disk())
    found = [index.lookup(offset).position for offset in (1000, 1003, 1004, 1008, 1009, 1019, 1020, 2**40)]
    assert found == [0, 0, 100, 100, 250, 250, 900, 900]
    assert index.lookup(1003) == OffsetEntry(BASE, 0)
    assert index.last_entry == OffsetEntry(1020, 900)


def test_a_position_is_looked_up_from_both_sides() -> None:
    index = filled_offsets(new_disk())
    assert [index.entry_at(position).offset for position in (0, 99, 100, 899, 900, 5000)] == [
        BASE,
        BASE,
        1004,
        1009,
        1020,
        1020,
    ]
    start = OffsetEntry(BASE, 0)
    assert index.upper_bound(start, 100) == OffsetEntry(1004, 100)
    assert index.upper_bound(start, 101) == OffsetEntry(1009, 250)
    assert index.upper_bound(OffsetEntry(1009, 250), 650) == OffsetEntry(1020, 900)
    assert index.upper_bound(OffsetEntry(1009, 250), 651) is None


def test_a_timestamp_is_looked_up_from_the_entry_before() -> None:
    index = filled_times(new_disk())
    found = [index.lookup(timestamp_ms).offset for timestamp_ms in (0, 49, 50, 69, 70, 95, 10**15)]
    assert found == [BASE, BASE, 1004, 1004, 1009, 1020, 1020]
    assert index.lookup(49) == TimeEntry(-1, BASE)
    assert index.last_entry == TimeEntry(95, 1020)


def test_time_entries_are_added_only_when_time_goes_on() -> None:
    index = filled_times(new_disk())
    index.append(95, 1030)
    index.append(60, 1031)
    index.append(99, 1020)
    assert index.last_entry == TimeEntry(95, 1020)


def test_records_without_timestamps_make_no_entry() -> None:
    index = time_index(new_disk())
    index.create()
    index.append(-1, BASE, closing=True)
    assert len(index) == 0


def test_the_files_hold_big_endian_relative_entries() -> None:
    disk = new_disk()
    filled_offsets(disk).write()
    filled_times(disk).write()
    assert read_file(disk, OFFSETS) == struct.pack(">6i", 4, 100, 9, 250, 20, 900)
    assert read_file(disk, TIMES) == struct.pack(">qiqiqi", 50, 4, 70, 9, 95, 20)


def test_indexes_come_back_from_their_files_also_after_more_entries_and_cuts() -> None:
    disk = new_disk()
    offsets, times = filled_offsets(disk), filled_times(disk)
    offsets.write()
    times.write()
    offsets.append(1030, 1200)
    times.append(99, 1030)
    offsets.write()
    times.write()
    assert (offset_index(disk).last_entry, time_index(disk).last_entry) == ((1030, 1200), (99, 1030))
    offsets.truncate_to(1009)
    times.truncate_to(1010)
    offsets.write()
    times.write()
    assert (offset_index(disk).last_entry, time_index(disk).last_entry) == ((1004, 100), (70, 1009))
    assert (len(read_file(disk, OFFSETS)), len(read_file(disk, TIMES))) == (8, 24)


def test_entries_at_the_cut_go() -> None:
    disk = new_disk()
    offsets, times = filled_offsets(disk), filled_times(disk)
    offsets.truncate_to(1021)
    times.truncate_to(1021)
    assert (len(offsets), len(times)) == (3, 3)
    offsets.truncate_to(1020)
    times.truncate_to(1020)
    assert (offsets.last_entry.offset, times.last_entry.offset) == (1009, 1009)
    offsets.truncate_to(BASE)
    times.truncate_to(BASE)
    assert (len(offsets), len(times)) == (0, 0)


def test_what_is_written_can_be_unloaded_and_what_is_not_stays() -> None:
    disk = new_disk()
    offsets, times = filled_offsets(disk), filled_times(disk)
    offsets.unload()
    times.unload()
    assert (len(offsets), len(times)) == (3, 3)
    offsets.write()
    times.write()
    offsets.unload()
    times.unload()
    before = disk.calls
    assert (offsets.last_entry, times.last_entry) == ((1020, 900), (95, 1020))
    assert disk.calls > before, "the entries were read again"


def test_synced_indexes_survive_a_power_loss() -> None:
    disk = new_disk()
    offsets, times = filled_offsets(disk), filled_times(disk)
    offsets.write()
    times.write()
    offsets.write(sync=True)
    times.write(sync=True)
    disk.sync_directory("/data")
    disk.crash()
    assert (offset_index(disk).last_entry, time_index(disk).last_entry) == ((1020, 900), (95, 1020))


def test_zeros_that_were_reserved_are_no_entries() -> None:
    disk = new_disk()
    replace_content(disk, OFFSETS, 0, struct.pack(">4i", 4, 100, 9, 250) + bytes(80), sync=False)
    replace_content(disk, TIMES, 0, struct.pack(">qi", 50, 4) + bytes(120), sync=False)
    assert (len(offset_index(disk)), len(time_index(disk))) == (2, 1)


def test_a_record_of_the_year_1970_is_an_entry() -> None:
    disk = new_disk()
    index = time_index(disk)
    index.create()
    index.append(0, BASE, closing=True)
    index.write()
    assert time_index(disk).last_entry == TimeEntry(0, BASE)


def test_a_full_index_says_so() -> None:
    offsets, times = offset_index(new_disk(), 16), time_index(new_disk(), 36)
    offsets.create()
    times.create()
    assert [offsets.append(offset, offset) for offset in (1001, 1002)] == [False, True]
    times.append(1, 1001)
    times.append(2, 1002)
    assert times.append(3, 1003), "one place is kept"
    assert len(times) == 2
    times.append(4, 1004, closing=True)
    assert times.last_entry == TimeEntry(4, 1004)


BAD_OFFSETS = {
    "half an entry": struct.pack(">3i", 4, 100, 9),
    "offsets that fall": struct.pack(">4i", 9, 100, 4, 250),
    "positions that fall": struct.pack(">4i", 4, 250, 9, 100),
    "a negative offset": struct.pack(">2i", -4, 100),
    "a position behind the end": struct.pack(">2i", 4, 1000),
}
BAD_TIMES = {
    "half an entry": struct.pack(">q", 4),
    "timestamps that fall": struct.pack(">qiqi", 9, 1, 8, 2),
    "offsets that fall": struct.pack(">qiqi", 8, 2, 9, 1),
    "a negative offset": struct.pack(">qi", 8, -1),
}


@pytest.mark.parametrize("name", BAD_OFFSETS)
def test_an_offset_index_that_cannot_be_right_is_found(name: str) -> None:
    disk = new_disk()
    replace_content(disk, OFFSETS, 0, BAD_OFFSETS[name], sync=False)
    with pytest.raises(CorruptLogError, match=r"00000000000000001000\.index, byte"):
        offset_index(disk).check(1000)


@pytest.mark.parametrize("name", BAD_TIMES)
def test_a_time_index_that_cannot_be_right_is_found(name: str) -> None:
    disk = new_disk()
    replace_content(disk, TIMES, 0, BAD_TIMES[name], sync=False)
    with pytest.raises(CorruptLogError, match=r"00000000000000001000\.timeindex, byte"):
        time_index(disk).check()


def test_good_indexes_pass_the_check() -> None:
    disk = new_disk()
    filled_offsets(disk).check(901)
    filled_times(disk).check()


steps = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 100), st.integers(-50, 50)), max_size=30)


@given(steps, st.integers(BASE - 2, BASE + 160), st.integers(-10, 1500))
def test_lookups_equal_a_search_through_all_entries(
    moves: list[tuple[int, int, int]], offset: int, timestamp_ms: int
) -> None:
    disk = new_disk()
    offsets, times = offset_index(disk, 10_000), time_index(disk, 10_000)
    offsets.create()
    times.create()
    entries, highest = [(BASE, 0)], [(-1, BASE)]
    last_offset, position, now_ms = BASE, 0, 0
    for by_offset, by_position, by_ms in moves:
        last_offset, position, now_ms = last_offset + by_offset, position + by_position, now_ms + by_ms
        offsets.append(last_offset, position)
        times.append(now_ms, last_offset)
        entries.append((last_offset, position))
        if now_ms > highest[-1][0]:
            highest.append((now_ms, last_offset))
    assert offsets.lookup(offset) == max([entry for entry in entries if entry[0] <= offset], default=(BASE, 0))
    assert times.lookup(timestamp_ms) == max(
        [entry for entry in highest if entry[0] <= timestamp_ms], default=(-1, BASE)
    )
