"""The index of aborted transactions: what a reader of committed data must leave out."""

from __future__ import annotations

import errno
import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import InvariantError
from barnabas.storage.aborted import AbortedTransaction, AbortedTransactions
from barnabas.storage.errors import CorruptLogError
from barnabas.storage.files import read_file
from barnabas.testing.sim.disk import SimulatedDisk
from tests.oracles import needs_kafka, run_java

PATH = "t-0/00000000000000000000.txnindex"
ENTRIES = [AbortedTransaction(7, 2, 5, 1), AbortedTransaction(8, 1, 9, 10), AbortedTransaction(7, 12, 20, 21)]


def new_disk() -> SimulatedDisk:
    disk = SimulatedDisk(random.Random(1))
    disk.make_directory("t-0")
    disk.sync_directory("")
    return disk


def index_with(entries: list[AbortedTransaction], disk: SimulatedDisk | None = None) -> AbortedTransactions:
    index = AbortedTransactions(disk or new_disk(), PATH)
    for entry in entries:
        index.append(entry)
    return index


class TestFile:
    def test_bytes(self) -> None:
        disk = new_disk()
        index = index_with(ENTRIES[:1], disk)
        assert read_file(disk, PATH) == bytes.fromhex(
            "0000 0000000000000007 0000000000000002 0000000000000005 0000000000000001"
        )
        index.close()
        assert index.entries == ENTRIES[:1]
        index.append(ENTRIES[1])
        assert AbortedTransactions(disk, PATH).entries == ENTRIES[:2]

    def test_without_aborts_there_is_no_file(self) -> None:
        disk = new_disk()
        index = AbortedTransactions(disk, PATH)
        assert index.entries == []
        assert index.search(0, 10) == ([], False)
        index.truncate_to(0)
        index.clear()
        index.flush()
        index.sanity_check(0)
        assert disk.names("t-0") == []

    def test_truncation_goes_by_the_marker(self) -> None:
        disk = new_disk()
        index = index_with(ENTRIES, disk)
        index.truncate_to(21)
        assert index.entries == ENTRIES
        index.truncate_to(9)
        assert index.entries == ENTRIES[:1] == AbortedTransactions(disk, PATH).entries
        index.append(ENTRIES[2])
        index.clear()
        assert index.entries == []
        assert disk.size(PATH) == 0

    def test_a_segment_may_be_renamed(self) -> None:
        disk = new_disk()
        index = index_with(ENTRIES[:2], disk)
        disk.rename(PATH, PATH + ".deleted")
        index.path = PATH + ".deleted"
        index.append(ENTRIES[2])
        assert disk.names("t-0") == ["00000000000000000000.txnindex.deleted"]
        assert AbortedTransactions(disk, PATH + ".deleted").entries == ENTRIES

    def test_a_failed_append_is_not_there_and_the_next_takes_its_place(self) -> None:
        disk = new_disk()
        index = index_with(ENTRIES[:1], disk)
        disk.fail_next(errno.ENOSPC, name="write_at")
        with pytest.raises(OSError, match=re.escape(PATH)):
            index.append(ENTRIES[1])
        assert index.entries == ENTRIES[:1]
        index.append(ENTRIES[2])
        assert AbortedTransactions(disk, PATH).entries == [ENTRIES[0], ENTRIES[2]]

    @pytest.mark.parametrize("seed", range(20))
    def test_what_was_flushed_survives(self, seed: int) -> None:
        disk = SimulatedDisk(random.Random(seed), sector_bytes=1)
        disk.make_directory("t-0")
        disk.sync_directory("")
        index = index_with(ENTRIES[:2], disk)
        index.flush()
        index.append(ENTRIES[2])
        disk.crash()
        found = AbortedTransactions(disk, PATH)
        try:
            found.sanity_check(0)
        except CorruptLogError:
            found.truncate_to(10)
        assert found.entries[:2] == ENTRIES[:2]


class TestBadFiles:
    @pytest.mark.parametrize(
        ("content", "byte", "reason"),
        [
            (
                bytes(34),
                0,
                "AbortedTransaction(producer_id=0, first_offset=0, last_offset=0, last_stable_offset=0) cannot be",
            ),
            (bytes(33), 0, "33 bytes are no entry, which has 34"),
            (b"\0\1" + bytes(32), 0, "version 1 is unknown; only 0 can be read"),
        ],
    )
    def test_are_named(self, content: bytes, byte: int, reason: str) -> None:
        disk = new_disk()
        disk.open(PATH, create=True).write_at(0, content)
        with pytest.raises(CorruptLogError) as caught:
            AbortedTransactions(disk, PATH).sanity_check(0)
        assert str(caught.value) == f"{PATH}, byte {byte}: {reason}"

    def test_entries_belong_to_the_segment_and_rise(self) -> None:
        disk = new_disk()
        index = index_with(ENTRIES, disk)
        index.sanity_check(5)
        with pytest.raises(CorruptLogError, match=re.escape(f"{PATH}, byte 0: {ENTRIES[0]} is not above offset 5")):
            index.sanity_check(6)
        disk.open(PATH).write_at(34, read_file(disk, PATH)[68:] + read_file(disk, PATH)[34:68])
        with pytest.raises(CorruptLogError, match=re.escape(f"{PATH}, byte 68: {ENTRIES[1]} is not above offset 20")):
            index.sanity_check(0)

    def test_a_torn_end_is_passed_over_and_written_over(self) -> None:
        disk = new_disk()
        index = index_with(ENTRIES[:2], disk)
        disk.open(PATH).truncate(50)
        index.close()
        assert index.entries == ENTRIES[:1]
        index.append(ENTRIES[2])
        assert AbortedTransactions(disk, PATH).entries == [ENTRIES[0], ENTRIES[2]]

    def test_clear_heals(self) -> None:
        disk = new_disk()
        disk.open(PATH, create=True).write_at(0, b"\xff" * 50)
        index = AbortedTransactions(disk, PATH)
        with pytest.raises(CorruptLogError):
            index.search(0, 10)
        index.clear()
        index.sanity_check(0)
        assert disk.size(PATH) == 0

    def test_markers_must_rise(self) -> None:
        index = index_with(ENTRIES[:2])
        with pytest.raises(InvariantError, match="does not lie above"):
            index.append(ENTRIES[0])


@st.composite
def transactions(draw: st.DrawFn) -> list[AbortedTransaction]:
    """What a log would note: each entry's last stable offset is that of the first transaction still open then."""
    found, open_since = [], dict[int, int]()
    records = draw(st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=40))
    for offset, (producer, ends) in enumerate(records):
        if producer not in open_since:
            open_since[producer] = offset
        elif ends:
            first = open_since.pop(producer)
            found.append(AbortedTransaction(producer, first, offset, min(open_since.values(), default=offset + 1)))
    return found


@given(transactions(), st.integers(0, 40), st.integers(1, 40))
def test_search_finds_what_overlaps(entries: list[AbortedTransaction], fetch_offset: int, length: int) -> None:
    upper = fetch_offset + length
    found, complete = index_with(entries).search(fetch_offset, upper)
    overlapping = [each for each in entries if each.last_offset >= fetch_offset and each.first_offset < upper]
    assert [each for each in found if each in overlapping] == found
    # What the stop rule leaves out must not overlap.
    assert found == overlapping
    assert complete == any(each.last_stable_offset >= upper for each in entries)


@needs_kafka()
def test_kafka_does_the_same(tmp_path: Path) -> None:
    randomness = random.Random(3)
    script, ours = [], []

    def listed(entries: list[AbortedTransaction]) -> str:
        return ",".join(":".join(map(str, entry)) for entry in entries)

    for _ in range(40):
        disk = new_disk()
        index = index_with([], disk)
        script.append("aborted")
        ours.append("ok")
        last = 0
        for _ in range(20):
            command = randomness.choice(["abort", "abort", "search", "search", "cut_aborted"])
            if command == "abort":
                first = last + randomness.randrange(-4, 4) if last else 0
                last = max(last, first) + randomness.randrange(1, 5)
                entry = AbortedTransaction(
                    randomness.randrange(3), max(first, 0), last, randomness.choice([last + 1, max(first - 2, 0)])
                )
                index.append(entry)
                script.append("abort " + " ".join(map(str, entry)))
                ours.append(read_file(disk, PATH).hex() + ".")
            elif command == "search":
                start = randomness.randrange(last + 2)
                end = start + randomness.randrange(1, 10)
                found, complete = index.search(start, end)
                script.append(f"search {start} {end}")
                ours.append(("complete " if complete else "more ") + listed(found))
            else:
                offset = randomness.randrange(max(last - 5, 0), last + 2)
                index.truncate_to(offset)
                script.append(f"cut_aborted {offset}")
                ours.append(read_file(disk, PATH).hex() + "." if disk.exists(PATH) else "none")
                last = index.entries[-1].last_offset if index.entries else 0
        if index.entries:
            script.append("read_aborted " + read_file(disk, PATH).hex())
            ours.append(listed(index.entries))
    theirs = run_java("PartitionState.java", "\n".join(script), arguments=(str(tmp_path),)).splitlines()
    assert list(zip(script, theirs, strict=True)) == list(zip(script, ours, strict=True))
