"""What the simulated disk may forget, and what it must keep."""

from __future__ import annotations

import errno
from random import Random
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.storage.files import read_file
from barnabas.testing.sim import SimulatedDisk, SimulatedFile

# A write of so many bytes of one value at a position, or a new size, or a sync, or the process starting anew.
Step = tuple[Literal["write"], int, int] | tuple[Literal["truncate"], int] | tuple[Literal["sync", "restart"]]

positions = st.integers(0, 3000)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), positions, st.integers(0, 1500)),
        st.tuples(st.just("truncate"), positions),
        st.tuples(st.just("sync")),
        st.tuples(st.just("restart")),
    ),
    max_size=12,
)
seeds = st.integers(0, 2**32)


def synced_file(disk: SimulatedDisk, path: str, content: bytes) -> SimulatedFile:
    file = disk.open(path, create=True)
    file.truncate(0)
    file.write_at(0, content)
    file.sync()
    disk.sync_directory(".")
    return file


# What a power loss leaves of files


@settings(max_examples=300, deadline=None)
@given(steps, seeds, st.sampled_from([1, 512]))
def test_every_byte_after_a_power_loss_has_an_origin(plan: list[Step], seed: int, sector_bytes: int) -> None:
    disk = SimulatedDisk(Random(seed), sector_bytes=sector_bytes)
    file = synced_file(disk, "a", b"")
    now, safe = bytearray(), b""
    unsynced: list[tuple[int, bytes | None]] = []  # position and data, or new size and None
    for number, step in enumerate(plan):
        if step[0] == "write":
            data = bytes([1 + number]) * step[2]
            file.write_at(step[1], data)
            if data:
                now.extend(bytes(max(step[1] - len(now), 0)))
                now[step[1] : step[1] + len(data)] = data
                unsynced.append((step[1], data))
        elif step[0] == "truncate":
            file.truncate(step[1])
            now = now[: step[1]] + bytes(max(step[1] - len(now), 0))
            unsynced.append((step[1], None))
        elif step[0] == "sync":
            file.sync()
            safe, unsynced = bytes(now), []
        else:
            disk.crash(power=False)
            file = disk.open("a")
        assert file.read_at(0, 10_000) == now

    disk.crash()
    found = read_file(disk, "a")
    cuts = [size_bytes for size_bytes, data in unsynced if data is None]
    ends = [position + len(data) for position, data in unsynced if data is not None]
    assert min([len(safe), *cuts]) <= len(found) <= max([len(safe), *cuts, *ends])
    if not unsynced:
        assert found == safe
    torn = {end for position, data in unsynced if data for end in range(position, position + len(data) + 1)
            if end % sector_bytes == 0}  # fmt: skip
    starts = [position for position, data in unsynced if data]
    assert len(found) in {len(safe), *cuts, *ends, *torn, *starts}
    for place, byte in enumerate(found):
        origins = {data[place - position] for position, data in unsynced
                   if data is not None and position <= place < position + len(data)}  # fmt: skip
        if place < len(safe):
            origins.add(safe[place])
        if place >= min([len(safe), *cuts]):
            origins.add(0)
        assert byte in origins
    assert disk.used_bytes == len(found)
    disk.crash()
    assert read_file(disk, "a") == found  # what a crash left is on the disk for good


def test_all_fates_of_a_write_are_met() -> None:
    """None, whole, torn between sectors, its end without its beginning, a size without data, a later without an
    earlier one."""
    met: set[tuple[str, bool]] = set()
    for seed in range(300):
        disk = SimulatedDisk(Random(seed))
        file = synced_file(disk, "a", b"s" * 100)
        file.write_at(100, b"1" * 1500)
        file.write_at(1600, b"2" * 600)
        disk.crash()
        content = read_file(disk, "a")
        assert content[:100] == b"s" * 100
        first, second = content[100:1600], content[1600:]
        met |= {
            "nothing": content == b"s" * 100,
            "everything": content == b"s" * 100 + b"1" * 1500 + b"2" * 600,
            "first alone": first == b"1" * 1500 and not second,
            "second alone": first == bytes(1500) and second == b"2" * 600,
            "torn": first.rstrip(b"\0") in (b"1" * 412, b"1" * 924, b"1" * 1436),
            "end without beginning": first[:412] == bytes(412) and first.endswith(b"1"),
            "size alone": content[100:] == bytes(2100),
        }.items()
    assert {name for name, happened in met if happened} == {name for name, _ in met}


def test_unsynced_truncation_may_be_undone() -> None:
    found = set()
    for seed in range(40):
        disk = SimulatedDisk(Random(seed))
        synced_file(disk, "a", b"0123").truncate(2)
        disk.crash()
        found.add(read_file(disk, "a"))
    assert found == {b"01", b"0123"}


def test_a_killed_process_loses_nothing_but_its_handles() -> None:
    disk = SimulatedDisk(Random(1))
    disk.make_directory("d")
    file = disk.open("d/a", create=True)
    file.write_at(0, b"unsynced")
    removed = disk.open("d/b", create=True)
    removed.write_at(0, b"gone")
    disk.remove("d/b")
    lock = disk.lock("d/.lock")
    disk.crash(power=False)
    assert disk.contents() == {"d": None, "d/.lock": b"", "d/a": b"unsynced"}
    assert disk.used_bytes == 8
    for use in (file.size, file.sync, removed.size, lambda: file.read_at(0, 1), lambda: file.write_at(0, b"x")):
        with pytest.raises(OSError, match="Bad file descriptor"):
            use()
    file.close()
    new_lock = disk.lock("d/.lock")
    lock.release()
    with pytest.raises(BlockingIOError):
        disk.lock("d/.lock")
    new_lock.release()


def test_the_machines_cache_outlives_the_process_but_not_the_power() -> None:
    found = set()
    for seed in range(40):
        disk = SimulatedDisk(Random(seed))
        synced_file(disk, "a", b"").write_at(0, b"x")
        disk.crash(power=False)
        disk.crash(power=True)
        found.add(read_file(disk, "a"))
    assert found == {b"", b"x", b"\0"}


def test_after_a_failed_sync_a_later_one_covers_only_what_is_written_anew() -> None:
    found = set()
    for seed in range(60):
        disk = SimulatedDisk(Random(seed))
        file = synced_file(disk, "a", b"s")
        file.write_at(1, b"failed")
        disk.fail_next(errno.EIO, name="sync")
        with pytest.raises(OSError, match="Input/output"):
            file.sync()
        file.write_at(7, b"new")
        file.sync()
        assert file.read_at(0, 99) == b"sfailednew"
        disk.crash()
        found.add(read_file(disk, "a"))
    assert found == {b"sfailednew", b"s\0\0\0\0\0\0new"}


# What a power loss leaves of names


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["create", "rename", "remove", "sync"]), st.integers(0, 3), st.integers(0, 3)),
             max_size=14),
    seeds,
    st.booleans(),
)  # fmt: skip
def test_names_are_found_in_a_state_they_were_in(plan: list[tuple[str, int, int]], seed: int, ordered: bool) -> None:
    disk = SimulatedDisk(Random(seed), ordered_names=ordered)
    disk.make_directory("d")
    disk.sync_directory(".")
    now: dict[str, bytes] = {}
    states = [dict(now)]  # since the directory was synced
    for number, (action, first, second) in enumerate(plan):
        old, new = f"d/{first}", f"d/{second}"
        if action == "create" and old not in now:
            now[old] = str(number).encode()
            file = disk.open(old, create=True)
            file.write_at(0, now[old])
            file.sync()
            # Created and written are two steps; the crash falls after both, so the content is always found.
        elif action == "rename" and old in now:
            disk.rename(old, new)
            now[new] = now.pop(old)
        elif action == "remove" and old in now:
            disk.remove(old)
            del now[old]
        elif action == "sync":
            disk.sync_directory("d")
            states.clear()
        states.append(dict(now))
        assert {path: content for path, content in disk.contents().items() if content is not None} == now

    disk.crash()
    found = {path: content for path, content in disk.contents().items() if content is not None}
    for path in {*found, *(path for state in states for path in state)}:
        assert found.get(path) in [state.get(path) for state in states]
    assert len(set(found.values())) == len(found)  # no file under two names
    if ordered:
        assert found in states


def test_names_of_different_files_may_survive_out_of_order_unless_told_otherwise() -> None:
    found: dict[bool, set[tuple[str, ...]]] = {False: set(), True: set()}
    for ordered, outcomes in found.items():
        for seed in range(60):
            disk = SimulatedDisk(Random(seed), ordered_names=ordered)
            disk.open("a", create=True)
            disk.open("b", create=True)
            disk.crash()
            outcomes.add(tuple(disk.contents()))
    assert found == {False: {(), ("a",), ("b",), ("a", "b")}, True: {(), ("a",), ("a", "b")}}


def test_a_change_of_a_name_survives_only_with_those_it_builds_upon() -> None:
    outcomes = set()
    for seed in range(200):
        disk = SimulatedDisk(Random(seed))
        disk.open("a", create=True)
        disk.rename("a", "b")
        disk.rename("b", "c")
        disk.crash()
        outcomes.add(tuple(disk.contents()))
    assert outcomes == {(), ("a",), ("b",), ("c",)}


def test_a_file_needs_all_directories_above_it_synced() -> None:
    outcomes = set()
    for seed in range(60):
        disk = SimulatedDisk(Random(seed))
        disk.make_directory("d/e")
        disk.open("d/e/a", create=True).sync()
        disk.sync_directory("d/e")
        disk.crash()
        outcomes.add(tuple(disk.contents()))
    assert outcomes == {(), ("d",), ("d", "d/e", "d/e/a")}


def test_a_rename_between_directories_is_one_change() -> None:
    outcomes = set()
    for synced in ("", "from", "to"):
        for seed in range(30):
            disk = SimulatedDisk(Random(seed))
            disk.make_directory("from")
            disk.make_directory("to")
            disk.sync_directory("/")
            disk.open("from/a", create=True)
            disk.rename("from/a", "to/b")
            if synced:
                disk.sync_directory(synced)
            disk.crash()
            outcomes.add((synced, tuple(path for path, content in disk.contents().items() if content is not None)))
    assert outcomes == {("", ()), ("", ("from/a",)), ("", ("to/b",)), ("from", ("to/b",)), ("to", ("to/b",))}
