"""Few descriptors for many files, and what the machine does to calls."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.base.errors import known
from barnabas.storage.files import File, read_file, replace_file
from barnabas.storage.real_files import RealFile, RealFileSystem

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")


def open_count_below(directory: Path) -> int:
    """How many descriptors of this process lead to files below a directory, removed ones included."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{name}").startswith(f"{directory}/")
        except FileNotFoundError:  # that of the listing itself
            continue
    return count


@linux_only
def test_descriptors_stay_bounded_and_files_open_again(tmp_path: Path) -> None:
    files = RealFileSystem(max_open_files=7)
    opened = [files.open(f"{tmp_path}/{number}", create=True) for number in range(100)]
    for position in range(3):
        for number, file in enumerate(opened):
            file.write_at(position, bytes([number]))
            assert open_count_below(tmp_path) <= 7
    assert all(file.read_at(0, 9) == bytes([number] * 3) for number, file in enumerate(opened))
    for file in opened:
        file.close()
    assert open_count_below(tmp_path) == 0


@linux_only
def test_what_is_used_keeps_its_descriptor(tmp_path: Path) -> None:
    files = RealFileSystem(max_open_files=3)
    busy = files.open(f"{tmp_path}/busy", create=True)
    others = [files.open(f"{tmp_path}/{number}", create=True) for number in range(20)]
    busy.write_at(0, b"x")
    descriptor = busy.descriptor
    for other in others:
        other.write_at(0, b"x")
        busy.write_at(0, b"x")
        assert busy.descriptor == descriptor


@linux_only
def test_renames_and_removals_reach_files_without_descriptor(tmp_path: Path) -> None:
    files = RealFileSystem(max_open_files=2)
    files.make_directory(f"{tmp_path}/t-0")
    paths = [f"{tmp_path}/t-0/{number}" for number in range(6)]
    opened = [files.open(path, create=True) for path in paths]
    for number, file in enumerate(opened):
        file.write_at(0, bytes([number]))
    files.rename(paths[0], f"{paths[0]}.deleted")
    files.rename(f"{tmp_path}/t-0", f"{tmp_path}/t-0-delete")
    files.remove(f"{tmp_path}/t-0-delete/0.deleted")
    files.remove(f"{tmp_path}/t-0-delete/5")
    files.rename(f"{tmp_path}/t-0-delete/1", f"{tmp_path}/t-0-delete/2")
    for _ in range(2):
        assert [file.read_at(0, 1) for file in opened] == [bytes([number]) for number in range(6)]
    # 0, 2 and 5 have no name any more: they keep theirs, and one is left to pass round.
    assert open_count_below(tmp_path) == 4
    for number in (0, 2, 5):
        opened[number].close()
    assert [opened[number].read_at(0, 1) for number in (1, 3, 4)] == [b"\1", b"\3", b"\4"]
    assert open_count_below(tmp_path) <= 2


def test_a_stranger_under_the_path_is_not_touched(tmp_path: Path) -> None:
    files = RealFileSystem(max_open_files=1)
    file = files.open(f"{tmp_path}/a", create=True)
    files.open(f"{tmp_path}/b", create=True)
    (tmp_path / "c").write_bytes(b"not ours")
    os.rename(f"{tmp_path}/c", f"{tmp_path}/a")
    with pytest.raises(OSError, match="another file") as caught:
        file.write_at(0, b"x")
    assert caught.value.errno == errno.ESTALE
    assert (tmp_path / "a").read_bytes() == b"not ours"


def test_a_failed_rename_changes_nothing(tmp_path: Path) -> None:
    files = RealFileSystem(max_open_files=1)
    file = files.open(f"{tmp_path}/a", create=True)
    file.write_at(0, b"a")
    files.make_directory(f"{tmp_path}/d")
    with pytest.raises(IsADirectoryError):
        files.rename(f"{tmp_path}/a", f"{tmp_path}/d")
    files.open(f"{tmp_path}/b", create=True)
    assert file.path == f"{tmp_path}/a"
    assert file.read_at(0, 1) == b"a"


def test_paths_are_compared_in_plain_form(tmp_path: Path) -> None:
    files = RealFileSystem(max_open_files=1)
    file = files.open(f"{tmp_path}//a", create=True)
    files.open(f"{tmp_path}/b", create=True)
    files.make_directory(f"{tmp_path}/c")
    files.rename(f"{tmp_path}/./a", f"{tmp_path}/c//d")
    assert file.path == f"{tmp_path}/c/d"
    assert file.size() == 0


def test_short_writes_and_reads_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RealFileSystem().open(f"{tmp_path}/a", create=True)
    pwrite, pread = os.pwrite, os.pread
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: pwrite(fd, data[:3], position))
    monkeypatch.setattr(os, "pread", lambda fd, size, position: pread(fd, min(size, 4), position))
    file.write_at(2, b"0123456789")
    file.write_at(12, memoryview(b"abcdefgh"))
    assert file.read_at(2, 18) == b"0123456789abcdefgh"
    assert file.read_at(10, 100) == b"89abcdefgh"


def test_without_space_the_error_comes_after_what_fitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RealFileSystem().open(f"{tmp_path}/a", create=True)
    pwrite = os.pwrite

    def fill(fd: int, data: Any, position: int) -> int:
        if position >= 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwrite(fd, data[: 4 - position], position)

    monkeypatch.setattr(os, "pwrite", fill)
    with pytest.raises(OSError, match="No space"):
        file.write_at(0, b"0123456789")
    assert file.read_at(0, 10) == b"0123"


def test_descriptors_are_given_back_when_the_process_runs_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = RealFileSystem(max_open_files=100)
    opened = [files.open(f"{tmp_path}/{number}", create=True) for number in range(3)]
    real_open = os.open

    def scarce(path: str, flags: int, mode: int = 0o777) -> int:
        if sum(file.descriptor >= 0 for file in opened) > 1:
            raise OSError(errno.EMFILE, "Too many open files")
        return real_open(path, flags, mode)

    monkeypatch.setattr(os, "open", scarce)
    opened.append(files.open(f"{tmp_path}/new", create=True))
    assert opened[-1].size() == 0
    opened.append(files.open(f"{tmp_path}/newer", create=True))
    assert all(file.size() == 0 for file in opened)


def test_a_disk_that_fails_is_not_taken_for_a_missing_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: str) -> None:
        raise OSError(errno.EIO, "Input/output error", path)

    monkeypatch.setattr(os, "stat", fail)
    for ask in (RealFileSystem().exists, RealFileSystem().is_directory):
        with pytest.raises(OSError, match="Input/output"):
            ask("/somewhere")


def test_a_close_during_a_sync_waits_for_it_and_keeps_others_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = RealFileSystem(max_open_files=1)
    file = files.open(f"{tmp_path}/a", create=True)
    began, may_end = threading.Event(), threading.Event()
    synced: list[os.stat_result] = []

    def slow_sync(descriptor: int) -> None:
        began.set()
        may_end.wait(10)
        synced.append(os.fstat(descriptor))

    monkeypatch.setattr("barnabas.storage.real_files._sync", slow_sync)
    inode = os.stat(f"{tmp_path}/a").st_ino
    thread = threading.Thread(target=file.sync)
    thread.start()
    began.wait(10)
    # Neither the search for a free descriptor nor the close may take it away from the running call.
    others = [files.open(f"{tmp_path}/b{number}", create=True) for number in range(3)]
    file.close()
    with pytest.raises(OSError, match="closed"):
        file.size()
    others += [files.open(f"{tmp_path}/c{number}", create=True) for number in range(3)]
    may_end.set()
    thread.join(10)
    assert [status.st_ino for status in synced] == [inode]
    for other in others:
        other.close()
    if sys.platform == "linux":
        assert open_count_below(tmp_path) == 0


def test_threads_never_meet_in_a_wrong_file(tmp_path: Path) -> None:
    files = RealFileSystem(max_open_files=2)
    opened = [files.open(f"{tmp_path}/{number}", create=True) for number in range(9)]
    wrong: list[str] = []

    def work(mine: list[RealFile], mark: int) -> None:
        for turn in range(400):
            for number, file in enumerate(mine):
                stamp = bytes([mark, number, turn % 251, 7])
                file.write_at(turn * 4, stamp)
                if file.read_at(turn * 4, 4) != stamp:
                    wrong.append(file.path)
            if turn % 50 == 0:
                files.rename(mine[0].path, f"{mine[0].path}x")

    switch_interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(opened[mark::3], mark)) for mark in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    finally:
        sys.setswitchinterval(switch_interval)
    assert wrong == []
    for mark in range(3):
        for number, file in enumerate(opened[mark::3]):
            content = read_file(files, file.path)
            assert content == b"".join(bytes([mark, number, turn % 251, 7]) for turn in range(400))


@linux_only
def test_the_lock_holds_between_processes_and_against_record_locks(tmp_path: Path) -> None:
    path = f"{tmp_path}/.lock"
    # What the JVM does for FileChannel.tryLock.
    attempt = [
        sys.executable,
        "-c",
        "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)",
    ]
    lock = RealFileSystem().lock(path)
    with pytest.raises(BlockingIOError, match=path):
        RealFileSystem().lock(path)
    assert subprocess.run([*attempt, path], capture_output=True, check=False).returncode != 0
    lock.release()
    assert subprocess.run([*attempt, path], capture_output=True, check=False).returncode == 0


def test_at_least_one_descriptor_is_needed() -> None:
    with pytest.raises(ValueError, match="max_open_files=0"):
        RealFileSystem(max_open_files=0)


def test_what_is_in_memory_is_read_without_waiting(tmp_path: Path) -> None:
    files = RealFileSystem()
    file = files.open(f"{tmp_path}/a", create=True)
    file.write_at(0, b"0123456789")
    file.read_at(0, 10)
    assert file.read_now(2, 5) == b"23456"
    assert file.read_now(8, 5) in (None, b"89")
    file.close()
    with pytest.raises(OSError, match="closed"):
        file.read_now(0, 1)
    with pytest.raises(OSError, match="closed"):
        file.map_now(0, 1)


def test_where_nobody_can_tell_what_is_in_memory_reads_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EOPNOTSUPP, "not on this file system")

    monkeypatch.setattr(os, "preadv", refuse)
    files = RealFileSystem()
    file = files.open(f"{tmp_path}/a", create=True)
    file.write_at(0, b"0123456789")
    assert file.read_now(2, 5) == b"23456"
    assert not files.knows_cached


def test_what_is_not_in_memory_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def would_block(*_: object) -> int:
        raise BlockingIOError

    files = RealFileSystem()
    if not files.knows_cached:
        pytest.skip("this system cannot tell what it has in memory")
    monkeypatch.setattr(os, "preadv", would_block)
    file = files.open(f"{tmp_path}/a", create=True)
    file.write_at(0, b"0123456789")
    assert file.read_now(2, 5) is None
    monkeypatch.setattr(os, "preadv", lambda *_: 3)
    assert file.read_now(2, 5) is None


@pytest.fixture
def mappable(tmp_path: Path) -> Iterator[File]:
    """A file of which parts can be mapped."""
    file = RealFileSystem().open(f"{tmp_path}/a", create=True)
    file.write_at(0, b"0123456789" * 10_000)
    if file.map_now(0, 10) is None:
        pytest.skip("this system cannot tell what it has in memory")
    yield file
    file.close()


@pytest.mark.parametrize(("position", "size_bytes"), [(0, 100_000), (4095, 2), (4096, 4096), (12_345, 50_000)])
def test_what_is_in_memory_can_be_sent_from_where_it_lies(mappable: File, position: int, size_bytes: int) -> None:
    assert bytes(known(mappable.map_now(position, size_bytes), "")) == mappable.read_at(position, size_bytes)


def test_what_a_file_does_not_hold_is_not_mapped(mappable: File) -> None:
    # The rest of its last page reads as zeros.
    assert mappable.map_now(99_990, 11) is None
    assert mappable.map_now(200_000, 1) is None


def test_what_is_not_in_memory_is_not_mapped(mappable: File) -> None:
    mappable.sync()
    descriptor = mappable.fileno()
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    if mappable.read_now(0, 100_000) is not None:
        pytest.skip("this file system keeps everything in memory")
    assert mappable.map_now(0, 100_000) is None


def test_who_sends_from_a_file_that_was_cut_fails_and_lives_on(mappable: File) -> None:
    mapped = known(mappable.map_now(8192, 50_000), "")
    mappable.truncate(4096)
    receiving, sending = os.pipe()
    with pytest.raises(OSError, match="Bad address"):
        os.write(sending, mapped)
    os.close(receiving)
    os.close(sending)


def test_a_disk_has_a_size(tmp_path: Path) -> None:
    space = RealFileSystem().space(str(tmp_path))
    assert 0 < space.usable_bytes <= space.total_bytes


def mode(path: Path) -> str:
    return oct(path.stat().st_mode & 0o777)


@pytest.fixture
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("umask", [0o000, 0o022], indirect=True)
def test_what_is_made_is_its_owners_alone(tmp_path: Path) -> None:
    files = RealFileSystem()
    files.make_directory(f"{tmp_path}/above/below")
    files.open(f"{tmp_path}/above/below/file", create=True).close()
    files.lock(f"{tmp_path}/above/below/.lock").release()
    replace_file(files, f"{tmp_path}/above/checkpoint", b"text")
    assert [mode(tmp_path / each) for each in ("above", "above/below")] == ["0o700", "0o700"]
    made = ("above/below/file", "above/below/.lock", "above/checkpoint")
    assert [mode(tmp_path / each) for each in made] == ["0o600"] * 3
    files.make_read_only(f"{tmp_path}/above/checkpoint")
    assert mode(tmp_path / "above/checkpoint") == "0o400"


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("umask", [0o277], indirect=True)
def test_a_umask_may_take_more_away(tmp_path: Path) -> None:
    files = RealFileSystem()
    files.open(f"{tmp_path}/file", create=True).close()
    files.make_directory(f"{tmp_path}/directory")
    assert (mode(tmp_path / "file"), mode(tmp_path / "directory")) == ("0o400", "0o500")


def test_what_is_there_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "directory/file").touch()
    for path, wide in ((tmp_path / "directory", 0o755), (tmp_path / "directory/file", 0o644)):
        path.chmod(wide)
    files = RealFileSystem()
    files.make_directory(f"{tmp_path}/directory")
    files.open(f"{tmp_path}/directory/file", create=True).close()
    assert (mode(tmp_path / "directory"), mode(tmp_path / "directory/file")) == ("0o755", "0o644")


def test_a_file_in_the_place_of_a_directory_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        RealFileSystem().make_directory(f"{tmp_path}/file")
