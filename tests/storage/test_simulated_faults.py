"""The simulated disk crashes in each operation, fails as it is told, and does the same again for the same seed."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from random import Random

import pytest

from barnabas.storage.files import FileSystem, read_file, replace_file
from barnabas.testing.sim import SimulatedCrash, SimulatedDisk
from barnabas.testing.sim.faults import Effect


def crashed(workload: Callable[[], object]) -> bool:
    try:
        workload()
    except SimulatedCrash:
        return True
    return False


# Crash points


def numbered_runs(make: Callable[[int], SimulatedDisk], workload: Callable[[SimulatedDisk], object]) -> Iterator[
    tuple[SimulatedDisk, int, bool]
]:  # fmt: skip
    """A run for each operation in which to crash, up to the first run that gets through."""
    operation = 1
    while True:
        disk = make(operation)
        disk.crash_at(disk.operations + operation)
        died = crashed(lambda disk=disk: workload(disk))  # type: ignore[misc]
        yield disk, operation, died
        if not died:
            return
        operation += 1


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("power", [False, True])
def test_replace_file_gives_old_or_new_at_every_crash_point(power: bool, ordered: bool) -> None:
    old, new = b"old" * 400, b"newer" * 500
    points = 0
    for seed in range(60):

        def make(operation: int, seed: int = seed) -> SimulatedDisk:
            disk = SimulatedDisk(Random(f"{seed} {operation}"), ordered_names=ordered)
            disk.make_directory("d")
            disk.sync_directory("")
            replace_file(disk, "d/checkpoint", old)
            return disk

        for disk, operation, died in numbered_runs(make, lambda disk: replace_file(disk, "d/checkpoint", new)):
            disk.crash(power=power)
            assert read_file(disk, "d/checkpoint") in ([old, new] if died else [new])
            assert set(disk.names("d")) <= {"checkpoint", "checkpoint.tmp"}
            replace_file(disk, "d/checkpoint", b"recovered")
            disk.crash()
            assert read_file(disk, "d/checkpoint") == b"recovered"
            points = max(points, operation)
    assert points == 7  # create, truncate, write, sync, rename, sync of the directory, and one run to the end


def test_replacing_without_sync_is_caught() -> None:
    """The sweep can fail: the mistake that it is there for shows."""

    def careless(files: FileSystem) -> None:
        file = files.open("a.tmp", create=True)
        file.write_at(0, b"new")
        files.rename("a.tmp", "a")
        files.sync_directory("/")

    found = set()
    for seed in range(50):
        disk = SimulatedDisk(Random(seed))
        replace_file(disk, "a", b"old")
        careless(disk)
        disk.crash()
        found.add(read_file(disk, "a"))
    assert found > {b"new", b""}


@pytest.mark.parametrize(
    ("effect", "allowed"),
    [("none", [b""]), ("whole", [b"0123456789"]), ("part", [b"0123456789"[:size] for size in range(11)])],
)
def test_the_operation_in_which_it_crashes_has_the_asked_effect(effect: Effect, allowed: list[bytes]) -> None:
    found = set()
    for seed in range(200):
        disk = SimulatedDisk(Random(seed))
        file = disk.open("a", create=True)
        disk.crash_at(disk.operations + 1, effect=effect)
        with pytest.raises(SimulatedCrash, match="operation 2: write_at a"):
            file.write_at(0, b"0123456789")
        disk.crash(power=False)
        found.add(read_file(disk, "a"))
    assert found == set(allowed)


def test_nothing_works_between_the_crash_and_the_restart() -> None:
    disk = SimulatedDisk(Random(1))
    file = disk.open("a", create=True)
    lock = disk.lock("l")
    disk.crash_at(disk.operations + 1, effect="none")
    with pytest.raises(SimulatedCrash):
        disk.make_directory("d/e")
    uses: list[Callable[[], object]] = [
        lambda: file.read_at(0, 1), lambda: file.write_at(0, b"x"), file.size, file.sync, lambda: file.truncate(0),
        lambda: disk.exists("a"), lambda: disk.open("a"), lambda: disk.open("b", create=True), lambda: disk.names(""),
        lambda: disk.rename("a", "b"), lambda: disk.remove("a"), lambda: disk.sync_directory(""),
        lambda: disk.make_directory("x"), lambda: disk.lock("l"), lambda: disk.modified_ms("a"),
    ]  # fmt: skip
    for use in uses:
        with pytest.raises(SimulatedCrash):
            use()
    file.close()
    lock.release()
    disk.crash(power=False)
    assert disk.contents() == {"a": b"", "l": b""}


def test_a_handler_of_errors_does_not_survive_the_crash() -> None:
    disk = SimulatedDisk(Random(1))
    disk.crash_at(1)

    def stubborn() -> None:
        try:
            disk.open("a", create=True)
        except Exception:
            pytest.fail("lived on")

    assert crashed(stubborn)


def test_several_directories_may_be_made_in_part() -> None:
    outcomes = set()
    for seed in range(60):
        disk = SimulatedDisk(Random(seed))
        disk.crash_at(1)
        assert crashed(lambda disk=disk: disk.make_directory("a/b"))  # type: ignore[misc]
        disk.crash(power=False)
        outcomes.add(tuple(disk.contents()))
    assert outcomes == {(), ("a",), ("a", "a/b")}


# Faults


def test_a_full_disk_takes_what_fits_and_goes_on_when_space_returns() -> None:
    disk = SimulatedDisk(Random(1), capacity_bytes=10)
    file = disk.open("a", create=True)
    file.write_at(0, b"012345")
    with pytest.raises(OSError, match="No space") as caught:
        file.write_at(6, b"6789ab")
    assert caught.value.errno == errno.ENOSPC
    assert file.read_at(0, 99) == b"0123456789"
    file.write_at(2, b"in place")
    for grow in (lambda: file.write_at(10, b"x"), lambda: file.truncate(11), lambda: disk.open("b", create=True)):
        with pytest.raises(OSError, match="No space"):
            grow()
    assert disk.names("") == ["a"]
    file.truncate(5)
    disk.open("b", create=True).write_at(0, b"01234")
    assert disk.used_bytes == 10
    disk.capacity_bytes = None
    file.write_at(5, bytes(100))
    assert disk.used_bytes == 110


def test_space_returns_with_the_last_user_of_a_removed_file() -> None:
    disk = SimulatedDisk(Random(1), capacity_bytes=10)
    for name in ("a", "b"):
        file = disk.open(name, create=True)
        file.write_at(0, b"01234")
        file.close()
    reader = disk.open("a")
    disk.remove("a")
    disk.rename("b", "c")
    assert disk.used_bytes == 10
    reader.close()
    reader.close()
    assert disk.used_bytes == 5
    disk.open("d", create=True).close()
    disk.rename("d", "c")
    assert disk.used_bytes == 0


def test_planned_failures_strike_the_named_operations_and_paths() -> None:
    disk = SimulatedDisk(Random(1))
    one, other = disk.open("one", create=True), disk.open("other", create=True)
    disk.fail_next(errno.EIO, name="read_at", path="one", count=2)
    other.read_at(0, 1)
    one.write_at(0, b"x")
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            one.read_at(0, 1)
    assert one.read_at(0, 1) == b"x"
    for name, call in (
        ("rename", lambda: disk.rename("one", "two")),
        ("remove", lambda: disk.remove("one")),
        ("make_directory", lambda: disk.make_directory("d/e")),
        ("open", lambda: disk.open("new", create=True)),
        ("lock", lambda: disk.lock("l")),
        ("truncate", lambda: one.truncate(0)),
        ("names", lambda: disk.names("")),
    ):
        disk.fail_next(errno.ENOSPC, name=name)
        with pytest.raises(OSError, match="No space"):
            call()
        assert disk.contents() == {"one": b"x", "other": b""}


def test_a_failed_write_may_have_landed_in_part() -> None:
    found = set()
    for seed in range(100):
        disk = SimulatedDisk(Random(seed))
        file = disk.open("a", create=True)
        disk.fail_next(errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            file.write_at(0, b"012")
        found.add(file.read_at(0, 9))
    assert found == {b"", b"0", b"01", b"012"}


def test_the_hook_sees_every_operation_and_may_fail_or_crash_it() -> None:
    seen: list[tuple[int, str, str]] = []

    def hook(number: int, name: str, path: str) -> None:
        seen.append((number, name, path))
        if number == 4:
            raise OSError(errno.EIO, "from the hook")
        if number == 5:
            raise SimulatedCrash

    disk = SimulatedDisk(Random(1), hook=hook)
    disk.make_directory("d")
    file = disk.open("/d/a", create=True)
    file.read_at(0, 1)
    with pytest.raises(OSError, match="from the hook"):
        file.truncate(0)
    with pytest.raises(SimulatedCrash):
        file.size()
    with pytest.raises(SimulatedCrash):
        file.size()
    assert seen == [(1, "make_directory", "d"), (2, "open", "/d/a"), (3, "read_at", "/d/a"), (4, "truncate", "/d/a"),
                    (5, "size", "/d/a")]  # fmt: skip
    assert (disk.calls, disk.operations) == (5, 3)


# Determinism


def make_directories(disk: SimulatedDisk, count: int) -> None:
    for number in range(count):
        disk.make_directory(f"{number}")


def busy_run(seed: int) -> list[dict[str, bytes | None]]:
    plan = Random(7)  # the workload is the same in all runs
    disk = SimulatedDisk(Random(seed))
    states = []
    for _ in range(5):
        for number in range(60):
            path = f"d{plan.randrange(3)}/{plan.randrange(8)}"
            disk.make_directory(path[:2])
            file = disk.open(path, create=True)
            file.write_at(plan.randrange(2000), bytes([number]) * plan.randrange(1500))
            action = plan.randrange(8)
            if action == 0:
                disk.remove(path)
            elif action == 1:
                disk.rename(path, f"{path}-")
            elif action == 2:
                disk.sync_directory(path[:2])
            elif action < 6:
                file.sync()
        disk.sync_directory("")
        disk.crash_at(disk.operations + 10)
        crashed(lambda: make_directories(disk, 20))
        disk.crash()
        states.append(disk.contents())
    return states


def test_a_seed_and_a_workload_give_one_outcome() -> None:
    assert busy_run(1) == busy_run(1)
    assert busy_run(1) != busy_run(2)


def test_parent_steps_in_paths_are_refused() -> None:
    with pytest.raises(ValueError, match="not supported"):
        SimulatedDisk(Random(1)).exists("a/../b")
