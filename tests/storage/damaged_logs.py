"""A disk with one log of three segments, ways to damage its files one at a time, and what a start makes of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.records import iter_batches
from barnabas.storage.errors import LogError
from barnabas.storage.files import directory_of, read_file
from barnabas.storage.log import PartitionLog
from barnabas.storage.manager import LogManager
from barnabas.storage.validation import prepare_from_client
from barnabas.testing.memory_files import MemoryFileSystem
from tests.storage.logs import NOW_MS, batch
from tests.storage.managers import TOPIC_ID, started

CLICKS = TopicPartition("clicks", 0)
DIRECTORY = "/one/clicks-0"
COUNT = 15
STEP_MS = 1000

Disk = dict[str, bytes]
Mutation = tuple[str, str, Callable[[Disk], None]]


def value_of(number: int) -> bytes:
    return b"%02d" % number * 75


def lead(log: PartitionLog, number: int) -> None:
    header: dict[str, Any] = {}
    if number % 3 == 0:
        header = {"producer_id": 7, "producer_epoch": 0, "base_sequence": number // 3}
    data = batch([value_of(number)], timestamp_ms=NOW_MS + number * STEP_MS, **header)
    log.append(prepare_from_client(data, log.settings, NOW_MS), leader_epoch=number // 7, now_ms=NOW_MS)
    log.set_high_watermark(log.log_end_offset)


def filled(*, is_clean: bool, **settings: Any) -> Disk:
    """Offsets 0 to 14, in segments that begin at 0, 5 and 10. After a kill, all below 12 was flushed."""
    files = MemoryFileSystem(lambda: NOW_MS)
    logs = started(files, **settings)
    log = logs.create(CLICKS, TOPIC_ID)
    for number in range(COUNT):
        if number in (5, 10):
            log.roll(NOW_MS)
        if number == 12:
            log.flush()
        lead(log, number)
    if is_clean:
        asyncio.run(logs.stop())
    else:
        for directory in logs.directories:
            directory.checkpoint_all()
    return contents(files)


def contents(files: MemoryFileSystem, directory: str = "/one") -> Disk:
    found: Disk = {}
    for name in files.names(directory):
        path = f"{directory}/{name}"
        if files.is_directory(path):
            found |= contents(files, path)
        else:
            found[path] = read_file(files, path)
    return found


def disk_of(content: Disk) -> MemoryFileSystem:
    files = MemoryFileSystem(lambda: NOW_MS)
    for path, data in content.items():
        files.make_directory(directory_of(path))
        file = files.open(path, create=True)
        file.write_at(0, data)
        file.close()
    return files


def segment_path(offset: int, kind: str = ".log") -> str:
    return f"{DIRECTORY}/{offset:020d}{kind}"


def mutations(disk: Disk, *, flip_every: int) -> Iterator[Mutation]:
    """Every file: deleted, emptied, cut at several places, with a bit flipped here and there."""
    for path, data in disk.items():
        if path.endswith("/.lock"):
            continue
        yield path, "delete", partial(_remove, path=path)
        yield path, "empty", partial(_cut, path=path, size_bytes=0)
        for cut in sorted({1, len(data) // 2, len(data) - 1, *range(0, len(data), max(1, 8 * flip_every))} - {0}):
            if cut < len(data):
                yield path, f"cut at {cut}", partial(_cut, path=path, size_bytes=cut)
        for position in range(0, len(data), flip_every):
            yield path, f"flip at {position}", partial(_flip, path=path, position=position)


def _remove(disk: Disk, *, path: str) -> None:
    del disk[path]


def _cut(disk: Disk, *, path: str, size_bytes: int) -> None:
    disk[path] = disk[path][:size_bytes]


def _flip(disk: Disk, *, path: str, position: int) -> None:
    data = bytearray(disk[path])
    data[position] ^= 1 << position % 8
    disk[path] = bytes(data)


class Outcome(NamedTuple):
    """What a start made of a disk."""

    #: "right", "refused", "failed" (an error met the reader), "less".
    kind: str
    end_offset: int
    warnings: list[str]


class _Warnings(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def start(files: MemoryFileSystem, *, is_stopped: bool = False, **settings: Any) -> Outcome:
    """Start on a disk, read everything as a consumer does, and look for every timestamp."""
    told = _Warnings()
    logger = logging.getLogger("barnabas.storage")
    logger.addHandler(told)
    try:
        logs = started(files, **settings)
        outcome = _outcome(logs, told.texts)
        if is_stopped:
            asyncio.run(logs.stop())
        return outcome
    finally:
        logger.removeHandler(told)


def _outcome(logs: LogManager, warnings: list[str]) -> Outcome:
    try:
        log = logs.create(CLICKS, TOPIC_ID)
    except LogError:
        return Outcome("refused", -1, warnings)
    try:
        found = read_every_offset(log)
        times = [log.offset_for_timestamp(NOW_MS + number * STEP_MS) for number in range(COUNT)]
    except BarnabasError:
        return Outcome("failed", log.log_end_offset, warnings)
    is_right = found == [(number, value_of(number)) for number in range(COUNT)]
    is_right &= [time and time.offset for time in times] == list(range(COUNT))
    return Outcome("right" if is_right and log.log_end_offset == COUNT else "less", log.log_end_offset, warnings)


def read_every_offset(log: PartitionLog) -> list[tuple[int, bytes | None]]:
    """The records from each offset on, one lookup each, and CRCs checked, as a consumer does."""
    found: list[tuple[int, bytes | None]] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, 1, end_offset=log.log_end_offset)
        if read.range is None:
            break
        each = next(iter(iter_batches(read.range.read())))
        each.check_crc()
        found += [(record.offset, record.value) for record in each.records(offset)]
        offset = each.next_offset
    return found
