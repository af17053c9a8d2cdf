"""Opening a log: after a clean stop, after others, and over what interrupted work has left behind."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.records import BatchView
from barnabas.records.legacy import LegacyMessage
from barnabas.storage.files import join, read_file
from barnabas.storage.leader_epochs import EpochEnd, EpochEntry
from barnabas.storage.log import PartitionLog
from barnabas.testing.sim.disk import SimulatedDisk
from tests.records.test_legacy import message, wrapper
from tests.storage.logs import (
    DIRECTORY,
    NOW_MS,
    batch,
    check_consistency,
    end_transaction,
    lead,
    new_disk,
    open_log,
    read_all,
    segment_starts,
    topic_settings,
)

VALUE = b"v" * 300
KINDS = (".log", ".index", ".timeindex", ".txnindex")


def path_of(offset: int, kind: str) -> str:
    return join(DIRECTORY, f"{offset:020d}{kind}")


def put(disk: SimulatedDisk, path: str, content: bytes | bytearray) -> None:
    file = disk.open(path, create=True)
    file.truncate(0)
    file.write_at(0, content)
    file.close()


def change_byte(disk: SimulatedDisk, path: str, position: int) -> None:
    content = bytearray(read_file(disk, path))
    content[position] ^= 0x55
    put(disk, path, content)


def filled(disk: SimulatedDisk, count: int = 12) -> PartitionLog:
    """Segments at 0, 5 and 10, with a transaction aborted in the first, epochs 0 and 1, and growing timestamps."""
    log = open_log(disk)
    for number in range(count):
        if number in (5, 10):
            log.roll(NOW_MS)
        if number == 2:
            end_transaction(log, 7, committed=False)
            continue
        header: dict[str, Any] = {}
        if number in (0, 1, 6):
            sequence = (0, 1, 6).index(number)
            header = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence, "transactional": number == 1}
        lead(log, batch([VALUE], timestamp_ms=NOW_MS - 100 + number, **header), epoch=number // 7)
    return log


def reopened(disk: SimulatedDisk, **how: Any) -> PartitionLog:
    return open_log(disk, **how)


def index_files(disk: SimulatedDisk) -> dict[str, bytes]:
    return {
        name: read_file(disk, join(DIRECTORY, name))
        for name in disk.names(DIRECTORY)
        if name.endswith((".index", ".timeindex", ".txnindex"))
    }


# Clean


def test_a_clean_start_finds_all_as_it_was() -> None:
    disk = new_disk()
    log = filled(disk)
    batches, producers, epochs = read_all(log), log.producers.entries(), log.epochs.entries
    log.close()
    before = disk.contents()
    log = reopened(disk)
    assert disk.contents() == before, "a clean start writes nothing"
    assert (read_all(log), log.producers.entries(), log.epochs.entries) == (batches, producers, epochs)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (0, 12, 12)
    check_consistency(log)


def test_a_missing_directory_is_made_and_the_log_is_empty() -> None:
    disk = new_disk()
    log = open_log(disk, log_start_offset=40)
    assert (log.log_start_offset, log.log_end_offset, segment_starts(log)) == (40, 40, [40])
    assert read_all(log) == []


@pytest.mark.parametrize("was_clean", [True, False])
@pytest.mark.parametrize("place", [0, 5, 10])
@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_a_missing_index_is_made_anew(was_clean: bool, place: int, kind: str) -> None:
    disk = new_disk()
    filled(disk).close()
    before = index_files(disk)
    disk.remove(path_of(place, kind))
    log = reopened(disk, was_clean=was_clean, recovery_point=0 if was_clean else 11)
    assert index_files(disk) == before
    check_consistency(log)


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["cut", "falling", "outside"])
def test_an_index_of_the_last_segment_that_cannot_be_right_is_made_anew(kind: str, damage: str) -> None:
    disk = new_disk()
    filled(disk, 15).close()
    before = index_files(disk)
    path = path_of(10, kind)
    good = read_file(disk, path)
    entry_bytes = 8 if kind == ".index" else 12
    assert len(good) >= 2 * entry_bytes
    if damage == "cut":
        put(disk, path, good[:-1])
    elif damage == "falling":
        put(disk, path, good[entry_bytes:] + good[:entry_bytes])
    else:
        put(disk, path, b"\xff" * entry_bytes)
    reopened(disk)
    assert index_files(disk) == before


@pytest.mark.parametrize("content", [b"", b"?" * 40, bytes(24)])
def test_indexes_of_what_is_read_again_do_not_matter(content: bytes) -> None:
    disk = new_disk()
    filled(disk).close()
    before = index_files(disk)
    for name in before:
        put(disk, join(DIRECTORY, name), content)
    log = reopened(disk, was_clean=False)
    assert index_files(disk) == before
    check_consistency(log)


def test_indexes_without_data_are_removed() -> None:
    disk = new_disk()
    filled(disk).close()
    for kind in KINDS[1:]:
        put(disk, path_of(77, kind), b"")
    reopened(disk)
    assert not [name for name in disk.names(DIRECTORY) if "77" in name]


def test_stray_snapshots_are_removed_but_the_newest() -> None:
    disk = new_disk()
    filled(disk).close()
    content = read_file(disk, path_of(12, ".snapshot"))
    for offset in (3, 11):
        put(disk, path_of(offset, ".snapshot"), content)
    log = reopened(disk)
    assert log.snapshots.offsets == [5, 10, 12]
    assert [name for name in disk.names(DIRECTORY) if name.endswith(".snapshot")] == [
        f"{offset:020d}.snapshot" for offset in (5, 10, 12)
    ]


@pytest.mark.parametrize("was_clean", [True, False])
def test_a_snapshot_that_cannot_be_read_costs_time_and_no_truth(was_clean: bool) -> None:
    disk = new_disk()
    log = filled(disk)
    producers = log.producers.entries()
    log.close()
    for offset in (10, 12):
        change_byte(disk, path_of(offset, ".snapshot"), 12)
    log = reopened(disk, was_clean=was_clean, recovery_point=11)
    assert log.producers.entries() == producers


# Unclean


def test_a_torn_tail_is_cut_off_at_every_byte() -> None:
    whole = new_disk()
    log = filled(whole, 11)
    expected = read_all(log)
    whole.crash(power=False)
    content = read_file(whole, path_of(10, ".log"))
    for cut in range(len(content)):
        disk = new_disk()
        disk.make_directory(DIRECTORY)
        for offset in (0, 5):
            put(disk, path_of(offset, ".log"), read_file(whole, path_of(offset, ".log")))
        put(disk, path_of(10, ".log"), content[:cut])
        log = reopened(disk, was_clean=False)
        assert log.log_end_offset == 10
        assert read_all(log) == expected[:-1]
        assert disk.size(path_of(10, ".log")) == 0
        lead(log, batch([b"on"]), epoch=2)
        assert log.log_end_offset == 11


def test_a_wrong_crc_cuts_the_log_and_drops_what_follows() -> None:
    disk = new_disk()
    log = filled(disk)
    expected = read_all(log)
    sizes = [entry.size_bytes for entry in log.segments[1].entries()]
    log.flush()
    disk.crash(power=False)
    change_byte(disk, path_of(5, ".log"), sum(sizes[:3]) - 10)
    log = reopened(disk, was_clean=False, recovery_point=5)
    assert (segment_starts(log), log.log_end_offset) == ([0, 5], 7)
    assert read_all(log) == expected[:7]
    assert not [name for name in disk.names(DIRECTORY) if name.startswith(f"{10:020d}")]
    assert log.epochs.end_offset_for(1, 7) == EpochEnd(-1, -1)
    check_consistency(log)
    disk.crash()
    log = reopened(disk, was_clean=False, recovery_point=log.recovery_point)
    assert read_all(log) == expected[:7], "what was dropped does not come back"


def test_what_was_flushed_is_not_read_again() -> None:
    disk = new_disk()
    filled(disk).flush()
    disk.crash(power=False)
    change_byte(disk, path_of(0, ".log"), 100)
    log = reopened(disk, was_clean=False, recovery_point=5)
    assert (segment_starts(log), log.log_end_offset) == ([0, 5, 10], 12)


def test_offsets_that_fall_cut_the_log() -> None:
    disk = new_disk()
    filled(disk, 4)
    disk.crash(power=False)
    content = read_file(disk, path_of(0, ".log"))
    put(disk, path_of(0, ".log"), content + content[:361])
    log = reopened(disk, was_clean=False)
    assert log.log_end_offset == 4
    assert disk.size(path_of(0, ".log")) == len(content)


def test_a_segment_that_is_missing_in_the_middle_drops_what_follows() -> None:
    disk = new_disk()
    filled(disk)
    disk.crash(power=False)
    disk.remove(path_of(5, ".log"))
    log = reopened(disk, was_clean=False)
    assert (segment_starts(log), log.log_end_offset) == ([0], 5)


def test_a_compacted_log_may_have_gaps_between_segments() -> None:
    disk = new_disk()
    filled(disk)
    disk.crash(power=False)
    disk.remove(path_of(5, ".log"))
    log = open_log(disk, topic_settings(cleanup_policy=("compact",)), was_clean=False)
    assert (segment_starts(log), log.log_end_offset) == ([0, 10], 12)


def test_producers_aborts_and_epochs_are_learnt_from_the_batches() -> None:
    disk = new_disk()
    log = filled(disk)
    producers, epochs = log.producers.entries(), log.epochs.entries
    aborted = log.segments[0].aborted.entries
    assert aborted
    disk.crash(power=False)
    for name in disk.names(DIRECTORY):
        if not name.endswith(".log"):
            disk.remove(join(DIRECTORY, name))
    log = reopened(disk, was_clean=False)
    assert (log.producers.entries(), log.epochs.entries) == (producers, epochs)
    assert log.segments[0].aborted.entries == aborted
    assert read_file(disk, join(DIRECTORY, "leader-epoch-checkpoint")) == b"0\n2\n0 0\n1 7\n"


@pytest.mark.parametrize("was_clean", [True, False])
def test_epochs_below_the_recovery_point_come_from_their_file(was_clean: bool) -> None:
    disk = new_disk()
    log = filled(disk)
    log.close()
    put(disk, join(DIRECTORY, "leader-epoch-checkpoint"), b"0\n3\n0 0\n1 7\n9 12\n")
    log = reopened(disk, was_clean=was_clean, recovery_point=10)
    assert log.epochs.entries == [EpochEntry(0, 0), EpochEntry(1, 7)], "an epoch without records is forgotten"


@pytest.mark.parametrize("was_clean", [True, False])
def test_a_log_that_ends_before_its_start_begins_anew_there(was_clean: bool) -> None:
    disk = new_disk()
    filled(disk).close()
    log = reopened(disk, was_clean=was_clean, log_start_offset=20)
    assert (log.log_start_offset, log.log_end_offset, segment_starts(log)) == (20, 20, [20])
    assert (log.epochs.entries, log.producers.entries()) == ([], [])
    assert lead(log, batch([b"on"]), epoch=3).first_offset == 20
    log.close()
    assert reopened(disk, log_start_offset=20).log_end_offset == 21


def test_a_log_start_within_the_log_is_kept() -> None:
    disk = new_disk()
    filled(disk).close()
    log = reopened(disk, log_start_offset=8)
    assert (log.log_start_offset, segment_starts(log)) == (8, [0, 5, 10])
    assert log.epochs.entries == [EpochEntry(1, 8)]
    assert log.delete_old_segments(NOW_MS) == 1


def test_without_a_saved_start_the_log_begins_with_its_first_segment() -> None:
    disk = new_disk()
    filled(disk).close()
    for kind in (".log", ".index", ".timeindex", ".txnindex"):
        disk.remove(path_of(0, kind))
    assert reopened(disk).log_start_offset == 5


# Interrupted work


def leftovers(disk: SimulatedDisk) -> list[str]:
    return [name for name in disk.names(DIRECTORY) if name.endswith((".cleaned", ".swap", ".deleted", ".tmp"))]


def test_deleted_and_temporary_files_go() -> None:
    disk = new_disk()
    log = filled(disk)
    batches = read_all(log)
    log.close()
    for kind in (*KINDS, ".snapshot"):
        put(disk, path_of(0, f"{kind}.deleted"), b"old")
    put(disk, join(DIRECTORY, "leader-epoch-checkpoint.tmp"), b"0\n")
    log = reopened(disk)
    assert leftovers(disk) == []
    assert read_all(log) == batches


class Cleaning:
    """A cleaning of the first two segments that has left only the batches 1, 2 and 8 of them."""

    def __init__(self) -> None:
        self.disk = new_disk()
        log = filled(self.disk)
        self.before = read_all(log)
        log.close()
        kept = [self.before[place] for place in (1, 2, 8)]
        self.after = [*kept, *self.before[10:]]
        self.data = b"".join(kept)
        self.settings = topic_settings(cleanup_policy=("compact",))

    def rename(self, offset: int, suffix: str, kinds: tuple[str, ...] = KINDS) -> None:
        for kind in kinds:
            if self.disk.exists(path_of(offset, kind)):
                self.disk.rename(path_of(offset, kind), path_of(offset, kind + suffix))

    def open(self, *, was_clean: bool = True) -> list[bytes]:
        log = open_log(self.disk, self.settings, was_clean=was_clean, recovery_point=10)
        assert leftovers(self.disk) == []
        assert log.log_end_offset == 12
        found = read_all(log)
        log.close()
        log = open_log(self.disk, self.settings)
        assert read_all(log) == found
        assert log.offset_for_timestamp(NOW_MS - 92) is not None
        return found


@pytest.mark.parametrize("was_clean", [True, False])
@pytest.mark.parametrize("kinds", [(".log",), (".log", ".index"), KINDS[:3]])
def test_a_cleaning_that_was_not_finished_is_forgotten(was_clean: bool, kinds: tuple[str, ...]) -> None:
    cleaning = Cleaning()
    for kind in kinds:
        put(cleaning.disk, path_of(0, f"{kind}.cleaned"), cleaning.data if kind == ".log" else b"")
    assert cleaning.open(was_clean=was_clean) == cleaning.before


def test_swaps_beside_cleaned_files_are_taken_back() -> None:
    cleaning = Cleaning()
    put(cleaning.disk, path_of(0, ".log.swap"), cleaning.data)
    put(cleaning.disk, path_of(0, ".index.swap"), b"")
    put(cleaning.disk, path_of(0, ".timeindex.cleaned"), b"")
    assert cleaning.open() == cleaning.before


def test_a_swap_before_what_is_unfinished_is_completed() -> None:
    cleaning = Cleaning()
    put(cleaning.disk, path_of(0, ".log.swap"), cleaning.data)
    put(cleaning.disk, path_of(10, ".log.cleaned"), b"")
    assert cleaning.open() == cleaning.after


@pytest.mark.parametrize("was_clean", [True, False])
@pytest.mark.parametrize("renamed", [(), (0,), (5,), (0, 5)])
def test_a_finished_cleaning_is_completed(was_clean: bool, renamed: tuple[int, ...]) -> None:
    cleaning = Cleaning()
    put(cleaning.disk, path_of(0, ".log.swap"), cleaning.data)
    put(cleaning.disk, path_of(0, ".index.swap"), b"")
    for offset in renamed:
        cleaning.rename(offset, ".deleted")
    assert cleaning.open(was_clean=was_clean) == cleaning.after


def test_a_segment_of_which_only_the_data_is_renamed_counts_as_deleted() -> None:
    cleaning = Cleaning()
    put(cleaning.disk, path_of(0, ".log.swap"), cleaning.data)
    cleaning.rename(0, ".deleted")
    cleaning.rename(5, ".deleted", kinds=(".log",))
    assert cleaning.open() == cleaning.after


def test_indexes_that_wait_for_their_names_get_them() -> None:
    cleaning = Cleaning()
    log = open_log(cleaning.disk, cleaning.settings)
    log.close()
    indexes = {kind: read_file(cleaning.disk, path_of(10, kind)) for kind in (".index", ".timeindex")}
    cleaning.rename(10, ".swap", kinds=(".index", ".timeindex"))
    assert cleaning.open() == cleaning.before
    assert {kind: read_file(cleaning.disk, path_of(10, kind)) for kind in indexes} == indexes


def test_a_swap_that_holds_nothing_replaces_its_own_segment_alone() -> None:
    cleaning = Cleaning()
    put(cleaning.disk, path_of(5, ".log.swap"), b"")
    assert cleaning.open() == [*cleaning.before[:5], *cleaning.before[10:]]


# Old formats


@pytest.mark.parametrize("was_clean", [True, False])
def test_segments_of_old_formats_can_be_read_and_written_behind(was_clean: bool) -> None:
    disk = new_disk()
    disk.make_directory(DIRECTORY)
    old = [message(0, b"oldest", magic=0), message(1, b"old", timestamp_ms=500)]
    old.append(wrapper(5, message(0, b"a", timestamp_ms=70), message(3, b"b", timestamp_ms=77)))
    put(disk, path_of(0, ".log"), b"".join(old))
    log = reopened(disk, was_clean=was_clean)
    assert log.log_end_offset == 6
    assert lead(log, batch([b"new"])).first_offset == 6
    for offset, first in ((0, old[0]), (1, old[1]), (2, old[2]), (5, old[2])):
        read = log.read(offset, 1, end_offset=log.log_end_offset)
        assert read.range is not None
        assert read.range.read() == first
    entries = list(log.segments[0].entries())
    assert [type(entry) for entry in entries] == [LegacyMessage] * 3 + [BatchView]
    values = [record.value for entry in entries for record in entry.records()]
    assert values == [b"oldest", b"old", b"a", b"b", b"new"]
    found = log.offset_for_timestamp(400)
    assert found is not None
    assert found[:2] == (500, 1)
    log.close()
    assert reopened(disk).log_end_offset == 7


def test_a_torn_message_of_an_old_format_is_cut_off() -> None:
    disk = new_disk()
    disk.make_directory(DIRECTORY)
    first, second = message(0, b"one"), message(1, b"two")
    damaged = bytearray(second)
    damaged[-1] ^= 1
    for tail in (second[:-1], bytes(damaged)):
        put(disk, path_of(0, ".log"), first + tail)
        log = reopened(disk, was_clean=False)
        assert (log.log_end_offset, log.size_bytes) == (1, len(first))
        log.close()


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_a_damaged_index_of_aborted_transactions_is_made_anew(damage: str) -> None:
    disk = new_disk()
    log = open_log(disk)
    for sequence in range(3):
        lead(log, batch([VALUE], producer_id=7, producer_epoch=0, base_sequence=sequence, transactional=True))
        end_transaction(log, 7, committed=False)
    noted = [entry for segment in log.segments for entry in segment.aborted.entries]
    assert len(noted) == 3
    log.close()
    (name,) = [name for name in disk.names(DIRECTORY) if name.endswith(".txnindex")][:1]
    file = disk.open(f"{DIRECTORY}/{name}")
    if damage == "cut":
        file.truncate(file.size() - 5)
    else:
        file.write_at(10, b"\x7f" * 16)
    file.close()
    again = open_log(disk)
    assert [entry for segment in again.segments for entry in segment.aborted.entries] == noted


def test_an_index_that_ends_within_an_entry_is_made_anew() -> None:
    disk = new_disk()
    filled(disk).close()
    for suffix in (".index", ".timeindex"):
        name = next(name for name in disk.names(DIRECTORY) if name.endswith(suffix))
        whole = disk.contents()[f"{DIRECTORY}/{name}".lstrip("/")]
        assert whole
        file = disk.open(f"{DIRECTORY}/{name}")
        file.truncate(file.size() - 3)
        file.close()
        open_log(disk).close()
        assert disk.contents()[f"{DIRECTORY}/{name}".lstrip("/")] == whole
