"""The log of a node in a file: it is rotated, it is nobody else's, and a disk that is full does not stop the node."""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.base.errors import BarnabasError
from barnabas.cli.log_files import OUTPUT_BYTES, RotatedLog, private_output


def record(text: str) -> logging.LogRecord:
    return logging.LogRecord("node", logging.INFO, __file__, 1, text, (), None)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[RotatedLog]:
    handler = RotatedLog(str(tmp_path / "logs/server.log"), size_bytes=100, older=2)
    yield handler
    handler.close()


def test_a_full_log_is_renamed_and_the_oldest_goes(log: RotatedLog, tmp_path: Path) -> None:
    for number in range(50):
        log.handle(record(f"line {number} of those that are written"))
    files = sorted((tmp_path / "logs").iterdir())
    assert [each.name for each in files] == ["server.log", "server.log.1", "server.log.2"]
    assert all(0 < each.stat().st_size <= 100 for each in files)
    assert files[0].read_text().splitlines()[-1].startswith("line 49 ")
    assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o600}
    assert stat.S_IMODE((tmp_path / "logs").stat().st_mode) == 0o700


def test_it_belongs_to_one_process_also_after_it_was_rotated(log: RotatedLog) -> None:
    for number in range(10):
        log.handle(record(f"line {number} of those that are written"))
    with pytest.raises(BarnabasError, match="log of another node"):
        RotatedLog(log.baseFilename)
    log.close()
    RotatedLog(log.baseFilename).close()


def test_a_full_disk_costs_lines_and_is_told_once(
    log: RotatedLog, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log.handle(record("before"))

    def fail() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for _ in range(2):
        monkeypatch.setattr(log, "flush", fail)
        for _ in range(3):
            log.handle(record("lost"))
        told = capsys.readouterr().err
        assert told.count("\n") == 1
        assert told.startswith(log.baseFilename)
        assert "No space left on device" in told
        monkeypatch.undo()
        log.handle(record("after"))
    assert capsys.readouterr().err == ""


def test_what_is_printed_beside_the_log_does_not_grow_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "logs/server.out"
    with private_output(path) as output:
        output.write(b"x" * OUTPUT_BYTES)
    with private_output(path) as output:
        output.write(b"y")
    assert path.stat().st_size == OUTPUT_BYTES + 1
    with private_output(path) as output:
        output.write(b"z")
    assert path.read_bytes() == b"z"
    assert (tmp_path / "logs/server.out.1").stat().st_size == OUTPUT_BYTES + 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def at(seconds: int, text: str) -> logging.LogRecord:
    made = record(text)
    made.created = float(seconds)
    return made


def test_a_period_ends_its_file_over_restarts_too(tmp_path: Path) -> None:
    path, hour = tmp_path / "server.log", 3600
    log = RotatedLog(str(path), older=2, roll_ms=hour * 1000)
    for seconds in (10 * hour, 10 * hour + 3599, 11 * hour):
        log.handle(at(seconds, f"at {seconds}"))
    log.close()
    assert (tmp_path / "server.log.1").read_text() == f"at {10 * hour}\nat {10 * hour + 3599}\n"
    assert path.read_text() == f"at {11 * hour}\n"
    os.utime(path, (11 * hour, 11 * hour))
    log = RotatedLog(str(path), older=2, roll_ms=hour * 1000)
    for seconds in (11 * hour + 5, 14 * hour):
        log.handle(at(seconds, f"at {seconds}"))
    log.close()
    assert (tmp_path / "server.log.1").read_text() == f"at {11 * hour}\nat {11 * hour + 5}\n"
    assert path.read_text() == f"at {14 * hour}\n"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["server.log", "server.log.1", "server.log.2"]


def test_an_empty_file_of_an_earlier_period_is_not_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.touch()
    os.utime(path, (0, 0))
    log = RotatedLog(str(path), older=2, roll_ms=1000)
    log.handle(at(5, "first"))
    log.close()
    assert [each.name for each in tmp_path.iterdir()] == ["server.log"]
