"""The contract of a file system, sentence by sentence, over the real one, the simulated one and the one in memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from barnabas.storage.files import FileSystem, directory_of, join, read_file, replace_file
from barnabas.storage.real_files import RealFileSystem
from barnabas.testing.memory_files import MemoryFileSystem
from barnabas.testing.sim import SimulatedDisk


@pytest.fixture(params=["real", "real with one descriptor", "simulated", "memory"])
def files(request: pytest.FixtureRequest) -> FileSystem:
    if request.param == "simulated":
        return SimulatedDisk(Random(1), now_ms=lambda: 1_700_000_000_123)
    if request.param == "memory":
        return MemoryFileSystem(now_ms=lambda: 1_700_000_000_123)
    return RealFileSystem(max_open_files=1) if "one" in request.param else RealFileSystem()


@pytest.fixture
def root(files: FileSystem, tmp_path: Path) -> str:
    path = str(tmp_path)
    files.make_directory(path)
    return path


def put(files: FileSystem, path: str, content: bytes) -> None:
    file = files.open(path, create=True)
    file.truncate(0)
    file.write_at(0, content)
    file.close()


def test_open_refuses_a_missing_file_unless_told_to_create_it(files: FileSystem, root: str) -> None:
    path = join(root, "a")
    with pytest.raises(FileNotFoundError):
        files.open(path)
    assert not files.exists(path)
    file = files.open(path, create=True)
    assert file.size() == 0
    assert file.path == path
    file.write_at(0, b"kept")
    file.close()
    assert read_file(files, path) == b"kept"
    files.open(path, create=True).close()
    assert read_file(files, path) == b"kept"


def test_open_refuses_directories_and_missing_parents(files: FileSystem, root: str) -> None:
    with pytest.raises(IsADirectoryError):
        files.open(root)
    with pytest.raises(FileNotFoundError):
        files.open(join(root, "missing", "a"), create=True)
    put(files, join(root, "file"), b"")
    with pytest.raises(NotADirectoryError):
        files.open(join(root, "file", "a"), create=True)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_writes_take_any_buffer_and_land_at_their_position(
    files: FileSystem, root: str, kind: Callable[[bytes], bytes | bytearray | memoryview]
) -> None:
    file = files.open(join(root, "a"), create=True)
    file.write_at(0, kind(b"0123456789"))
    file.write_at(3, kind(b"abc"))
    assert file.read_at(0, 10) == b"012abc6789"
    file.write_at(8, kind(b"xyz"))
    assert file.read_at(0, 100) == b"012abc67xyz"
    assert file.size() == 11


def test_a_write_does_not_keep_the_buffer(files: FileSystem, root: str) -> None:
    file = files.open(join(root, "a"), create=True)
    buffer = bytearray(b"before")
    file.write_at(0, memoryview(buffer))
    buffer[:] = b"after!"
    assert file.read_at(0, 6) == b"before"


def test_reads_are_short_only_at_the_end(files: FileSystem, root: str) -> None:
    file = files.open(join(root, "a"), create=True)
    file.write_at(0, b"0123456789")
    assert file.read_at(2, 3) == b"234"
    assert file.read_at(8, 5) == b"89"
    assert file.read_at(10, 5) == b""
    assert file.read_at(99, 5) == b""
    assert file.read_at(0, 0) == b""


def test_a_write_beyond_the_end_leaves_zeros_and_an_empty_one_nothing(files: FileSystem, root: str) -> None:
    file = files.open(join(root, "a"), create=True)
    file.write_at(100, b"")
    assert file.size() == 0
    file.write_at(4, b"x")
    assert file.read_at(0, 10) == b"\0\0\0\0x"


def test_truncate_cuts_and_extends_with_zeros(files: FileSystem, root: str) -> None:
    file = files.open(join(root, "a"), create=True)
    file.write_at(0, b"0123456789")
    file.truncate(4)
    assert file.size() == 4
    file.truncate(6)
    assert file.read_at(0, 10) == b"0123\0\0"


def test_negative_positions_and_sizes_are_refused(files: FileSystem, root: str) -> None:
    file = files.open(join(root, "a"), create=True)
    with pytest.raises(OSError, match="Invalid argument"):
        file.write_at(-1, b"x")
    with pytest.raises(OSError, match="Invalid argument"):
        file.read_at(-1, 1)
    with pytest.raises(OSError, match="Invalid argument"):
        file.truncate(-1)


def test_a_closed_file_refuses_every_use(files: FileSystem, root: str) -> None:
    file = files.open(join(root, "a"), create=True)
    file.write_at(0, b"x")
    file.sync()
    file.close()
    file.close()
    uses: list[Callable[[], object]] = [
        lambda: file.read_at(0, 1),
        lambda: file.write_at(0, b"y"),
        lambda: file.truncate(0),
        file.size,
        file.sync,
        file.fileno,
    ]
    for use in uses:
        with pytest.raises(OSError):  # noqa: PT011
            use()
    assert read_file(files, file.path) == b"x"


def test_one_path_may_be_open_twice(files: FileSystem, root: str) -> None:
    path = join(root, "a")
    first, second = files.open(path, create=True), files.open(path)
    first.write_at(0, b"seen")
    assert second.read_at(0, 4) == b"seen"
    first.close()
    assert second.read_at(0, 4) == b"seen"


def test_fileno_is_the_callers_own_or_refused(files: FileSystem, root: str) -> None:
    file = files.open(join(root, "a"), create=True)
    file.write_at(0, b"0123")
    if isinstance(files, SimulatedDisk | MemoryFileSystem):
        with pytest.raises(OSError, match="no descriptor"):
            file.fileno()
        return
    descriptor = file.fileno()
    file.close()
    files.open(join(root, "b"), create=True)
    assert os.pread(descriptor, 4, 0) == b"0123"
    os.close(descriptor)


def test_names_sizes_and_kinds(files: FileSystem, root: str) -> None:
    files.make_directory(join(root, "d", "e"))
    files.make_directory(join(root, "d", "e"))
    for name in ("10", "9", "b", "a"):
        put(files, join(root, "d", name), b"12345")
    assert files.names(join(root, "d")) == ["10", "9", "a", "b", "e"]
    assert files.is_directory(join(root, "d", "e"))
    assert not files.is_directory(join(root, "d", "a"))
    assert not files.is_directory(join(root, "d", "missing"))
    assert files.exists(join(root, "d"))
    assert not files.exists(join(root, "d", "a", "below a file"))
    assert files.size(join(root, "d", "a")) == 5
    missing: list[Callable[[str], object]] = [
        files.names, files.size, files.modified_ms, files.remove, files.remove_directory, files.sync_directory,
    ]  # fmt: skip
    for ask in missing:
        with pytest.raises(FileNotFoundError):
            ask(join(root, "missing"))
    with pytest.raises(NotADirectoryError):
        files.names(join(root, "d", "a"))
    with pytest.raises(FileExistsError):
        files.make_directory(join(root, "d", "a"))
    with pytest.raises(NotADirectoryError):
        files.make_directory(join(root, "d", "a", "f"))


def test_modified_ms_is_the_time_of_the_last_write(files: FileSystem, root: str) -> None:
    path = join(root, "a")
    put(files, path, b"x")
    if isinstance(files, SimulatedDisk | MemoryFileSystem):
        assert files.modified_ms(path) == 1_700_000_000_123
    else:
        os.utime(path, ns=(0, 1_600_000_000_123_999_999))
        assert files.modified_ms(path) == 1_600_000_000_123
        file = files.open(path)
        file.write_at(0, b"y")
        assert files.modified_ms(path) > 1_600_000_000_123


def test_rename_replaces_and_open_files_follow(files: FileSystem, root: str) -> None:
    old, new, other = join(root, "old"), join(root, "new"), join(root, "other")
    put(files, old, b"moved")
    put(files, new, b"replaced")
    moved, replaced, unrelated = files.open(old), files.open(new), files.open(other, create=True)
    files.rename(old, new)
    assert files.names(root) == ["new", "other"]
    assert moved.path == new
    assert moved.read_at(0, 9) == b"moved"
    assert replaced.path == new
    assert replaced.read_at(0, 9) == b"replaced"
    moved.write_at(0, b"M")
    replaced.write_at(0, b"R")
    unrelated.write_at(0, b"U")
    assert read_file(files, new) == b"Moved"
    assert replaced.read_at(0, 9) == b"Replaced"
    for file in (moved, replaced, unrelated):
        file.sync()
        file.close()


def test_rename_of_a_directory_takes_along_what_is_below(files: FileSystem, root: str) -> None:
    for directory in ("t-1", "t-1/deep", "t-10", "t-1.x", "t"):
        files.make_directory(join(root, directory))
    opened = {
        path: files.open(join(root, path), create=True)
        for path in ("t-1/a", "t-1/deep/b", "t-10/c", "t-1.x/d", "t/e", "t-1/f", "t-1f")
    }
    for path, file in opened.items():
        file.write_at(0, path.encode())
    files.rename(join(root, "t-1"), join(root, "t-1.uuid-delete"))
    for path, file in opened.items():
        now = path.replace("t-1/", "t-1.uuid-delete/")
        assert file.path == join(root, now)
        assert file.read_at(0, 99) == path.encode()
        assert read_file(files, join(root, now)) == path.encode()
    files.rename(join(root, "t-1.uuid-delete", "deep"), join(root, "t", "deeper"))
    assert opened["t-1/deep/b"].path == join(root, "t/deeper/b")
    assert opened["t-1/deep/b"].read_at(0, 99) == b"t-1/deep/b"


def test_rename_refuses_what_cannot_be(files: FileSystem, root: str) -> None:
    put(files, join(root, "file"), b"x")
    files.make_directory(join(root, "empty"))
    files.make_directory(join(root, "d", "below"))
    cases: list[tuple[str, str, type[OSError]]] = [
        ("missing", "x", FileNotFoundError),
        ("file", "missing/x", FileNotFoundError),
        ("file", "d", IsADirectoryError),
        ("d", "file", NotADirectoryError),
        ("empty", "d", OSError),
        ("d", "d/below/x", OSError),
    ]
    for old, new, error in cases:
        with pytest.raises(error):
            files.rename(join(root, old), join(root, new))
    files.rename(join(root, "file"), join(root, "file"))
    files.rename(join(root, "d"), join(root, "empty"))
    assert files.names(root) == ["empty", "file"]
    assert files.names(join(root, "empty")) == ["below"]


def test_a_removed_file_stays_with_whoever_has_it_open(files: FileSystem, root: str) -> None:
    path = join(root, "a")
    put(files, path, b"first")
    file = files.open(path)
    files.open(join(root, "b"), create=True)
    files.remove(path)
    assert not files.exists(path)
    put(files, path, b"second")
    assert file.read_at(0, 9) == b"first"
    file.write_at(5, b"!")
    assert file.read_at(0, 9) == b"first!"
    assert file.path == path
    assert read_file(files, path) == b"second"
    files.rename(path, join(root, "c"))
    assert file.read_at(0, 9) == b"first!"
    file.close()
    with pytest.raises(OSError, match=path):
        file.read_at(0, 1)


def test_directories_are_removed_when_empty(files: FileSystem, root: str) -> None:
    directory = join(root, "d")
    files.make_directory(directory)
    put(files, join(directory, "a"), b"")
    with pytest.raises(OSError, match="not empty"):
        files.remove_directory(directory)
    with pytest.raises(OSError):  # noqa: PT011
        files.remove(directory)
    with pytest.raises(NotADirectoryError):
        files.remove_directory(join(directory, "a"))
    files.remove(join(directory, "a"))
    files.sync_directory(directory)
    files.remove_directory(directory)
    assert files.names(root) == []


def test_a_lock_keeps_others_out_until_released(files: FileSystem, root: str) -> None:
    path = join(root, ".lock")
    lock = files.lock(path)
    assert files.exists(path)
    for _ in range(2):
        with pytest.raises(BlockingIOError):
            files.lock(path)
    files.lock(join(root, ".other"))
    lock.release()
    second = files.lock(path)
    lock.release()
    with pytest.raises(BlockingIOError):
        files.lock(path)
    second.release()


def test_replace_file_puts_the_content_and_leaves_nothing_behind(files: FileSystem, root: str) -> None:
    path = join(root, "checkpoint")
    put(files, f"{path}.tmp", b"left by a crash, and longer than what follows")
    replace_file(files, path, b"one")
    assert read_file(files, path) == b"one"
    replace_file(files, path, b"")
    assert read_file(files, path) == b""
    assert files.names(root) == ["checkpoint"]


def test_directory_of() -> None:
    assert [directory_of(path) for path in ("a/b/c", "/a", "a")] == ["a/b", "/", "."]
