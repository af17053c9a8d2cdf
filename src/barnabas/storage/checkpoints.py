"""The small text files of log directories and partitions. Readers are strict: an error names the file and the line."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, Generic, TypeVar

from barnabas.base.ids import TopicPartition, Uuid
from barnabas.storage.errors import CorruptLogError
from barnabas.storage.files import FileSystem, join, read_file, replace_file

T = TypeVar("T")

RECOVERY_POINT_FILE: Final = "recovery-point-offset-checkpoint"
LOG_START_FILE: Final = "log-start-offset-checkpoint"
HIGH_WATERMARK_FILE: Final = "replication-offset-checkpoint"
CLEANER_FILE: Final = "cleaner-offset-checkpoint"
PARTITION_METADATA_FILE: Final = "partition.metadata"
CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"

NO_BROKER_EPOCH: Final = -1
_VERSION: Final = 0
_VERSION_LINE: Final = re.compile(r"[0-9]+")
_OFFSET_LINE: Final = re.compile(r"(\S+)\s+([0-9]+)\s+([0-9]+)", re.ASCII)
_EPOCH_LINE: Final = re.compile(r"([0-9]+)\s+([0-9]+)", re.ASCII)
_METADATA_LINES: Final = re.compile(r"version: ([0-9]+)\ntopic_id: (\S+)", re.ASCII)


class Checkpoint(Generic[T]):
    """A small file that is always written whole, and may be so from any thread.

    What to write is handed in on the event loop, by `begin`; what that returns does the writing. Two writings may
    overtake each other: the older one then does nothing. Nor is written what the file holds already.
    """

    __slots__ = ("_begun", "_content", "_lock", "_write_content", "_written")

    def __init__(self, write: Callable[[T], None]) -> None:
        self._write_content = write
        self._lock = threading.Lock()
        self._begun = 0
        self._written = 0
        self._content: T | None = None

    def begin(self, content: T) -> Callable[[], bool]:
        """`content` must not change any more. What is returned tells whether anything was written."""
        self._begun += 1
        return partial(self._write, self._begun, content)

    def _write(self, number: int, content: T) -> bool:
        with self._lock:
            is_due = number > self._written and content != self._content
            if is_due:
                self._content = None  # what a failed write leaves, nobody knows
                self._write_content(content)
                self._content = content
            self._written = max(self._written, number)
            return is_due


def read_offsets(files: FileSystem, path: str) -> dict[TopicPartition, int]:
    """An offset for each partition; none if the file is missing."""
    offsets: dict[TopicPartition, int] = {}
    for number, line in _entries(files, path):
        match = _OFFSET_LINE.fullmatch(line)
        if match is None:
            raise _bad_line(path, number, f"{line!r} is not a topic, a partition and an offset")
        partition = TopicPartition(match[1], int(match[2]))
        if partition in offsets:
            raise _bad_line(path, number, f"{partition} is there twice")
        offsets[partition] = int(match[3])
    return offsets


def write_offsets(files: FileSystem, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace the file. The same offsets always give the same bytes."""
    _write(files, path, [f"{topic} {number} {offset}" for (topic, number), offset in sorted(offsets.items())])


def read_epochs(files: FileSystem, path: str) -> list[tuple[int, int]]:
    """Leader epochs with their first offsets, as they stand in the file; none if the file is missing."""
    epochs: list[tuple[int, int]] = []
    for number, line in _entries(files, path):
        match = _EPOCH_LINE.fullmatch(line)
        if match is None:
            raise _bad_line(path, number, f"{line!r} is not an epoch and an offset")
        epochs.append((int(match[1]), int(match[2])))
    return epochs


def write_epochs(files: FileSystem, path: str, epochs: Iterable[tuple[int, int]]) -> None:
    """Replace the file."""
    _write(files, path, [f"{epoch} {start_offset}" for epoch, start_offset in epochs])


def read_topic_id(files: FileSystem, directory: str) -> Uuid | None:
    """The id of the topic whose partition lies in `directory`; None if the file is missing."""
    path = join(directory, PARTITION_METADATA_FILE)
    if not files.exists(path):
        return None
    text = "\n".join(_lines(files, path))
    match = _METADATA_LINES.fullmatch(text)
    if match is None:
        raise _bad_line(path, 1, f"{text!r} is not 'version: 0' and 'topic_id: …'")
    if int(match[1]) != _VERSION:
        raise _bad_line(path, 1, f"version {match[1]} is unknown; only {_VERSION} can be read")
    try:
        topic_id = Uuid.parse(match[2])
    except ValueError as failure:
        raise _bad_line(path, 2, str(failure)) from None
    if topic_id == Uuid.ZERO:
        raise _bad_line(path, 2, f"{topic_id} stands for no id")
    return topic_id


def write_topic_id(files: FileSystem, directory: str, topic_id: Uuid) -> None:
    content = f"version: {_VERSION}\ntopic_id: {topic_id}"
    replace_file(files, join(directory, PARTITION_METADATA_FILE), content.encode())


def read_clean_shutdown(files: FileSystem, directory: str) -> int | None:
    """The broker epoch of the stop that left the file, -1 if it does not say; None if the last stop was not clean.

    The file counts by being there: releases before the broker epoch left it empty, so what it holds is never an error.
    """
    path = join(directory, CLEAN_SHUTDOWN_FILE)
    if not files.exists(path):
        return None
    try:
        content = json.loads(read_file(files, path))
    except ValueError:
        return NO_BROKER_EPOCH
    epoch = content.get("brokerEpoch") if isinstance(content, dict) else None
    return epoch if type(epoch) is int else NO_BROKER_EPOCH


def write_clean_shutdown(files: FileSystem, directory: str, broker_epoch: int) -> None:
    content = json.dumps({"version": _VERSION, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    replace_file(files, join(directory, CLEAN_SHUTDOWN_FILE), content.encode())


def remove_clean_shutdown(files: FileSystem, directory: str) -> None:
    """Must return before anything in the directory changes: a file that came back would pass a crash off as a stop."""
    path = join(directory, CLEAN_SHUTDOWN_FILE)
    if files.exists(path):
        files.remove(path)
        files.sync_directory(directory)


def _entries(files: FileSystem, path: str) -> Iterable[tuple[int, str]]:
    """The lines after version and count, numbered. Kafka makes such files empty at first: that means no entries."""
    if not files.exists(path):
        return ()
    lines = _lines(files, path)
    for number, line in enumerate(lines[:2], 1):
        if _VERSION_LINE.fullmatch(line) is None:
            raise _bad_line(path, number, f"{line!r} is not a number")
    if lines and int(lines[0]) != _VERSION:
        raise _bad_line(path, 1, f"version {lines[0]} is unknown; only {_VERSION} can be read")
    if len(lines) > 1 and int(lines[1]) != len(lines) - 2:
        raise _bad_line(path, 2, f"{lines[1]} entries are announced, but {len(lines) - 2} lines follow")
    return enumerate(lines[2:], 3)


def _lines(files: FileSystem, path: str) -> list[str]:
    lines = []
    for number, line in enumerate(read_file(files, path).splitlines(), 1):
        try:
            lines.append(line.decode())
        except UnicodeDecodeError:
            raise _bad_line(path, number, f"{line!r} is not UTF-8") from None
    return lines


def _write(files: FileSystem, path: str, lines: list[str]) -> None:
    replace_file(files, path, "".join(f"{line}\n" for line in [str(_VERSION), str(len(lines)), *lines]).encode())


def _bad_line(path: str, number: int, reason: str) -> CorruptLogError:
    return CorruptLogError(path, number, reason, unit="line")
