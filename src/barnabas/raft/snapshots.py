"""Snapshots of a replicated log: `<end offset>-<epoch>.checkpoint`, each the whole state as of an offset.

A snapshot is written under another name, synced, made read-only, and only then gets its own name: one that has it is
whole. `end_offset` is the first offset that it does not contain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Final, NamedTuple

from barnabas.base.errors import BarnabasError, RemoteProtocolError
from barnabas.raft.batches import ControlRecord, LogBatch, build_snapshot, read_batch
from barnabas.raft.types import CHECKPOINT_SUFFIX, SnapshotId
from barnabas.records.batch import BatchView, iter_batches
from barnabas.records.control import ControlType
from barnabas.storage.files import FileSystem, directory_of, join
from barnabas.wire.stored.control_records import SnapshotHeaderRecord

_UNFINISHED: Final = re.compile(r"[0-9]{20}-[0-9]{10}.*\.checkpoint(\.part|\.deleted)")
# Enough for the first batch of a snapshot: a header and the addresses of some hundred voters.
_HEADER_BYTES: Final = 64 * 1024
PART_SUFFIX: Final = ".part"
DELETED_SUFFIX: Final = ".deleted"


class SnapshotHeader(NamedTuple):
    """What a snapshot says of itself: when the last record was written that it holds, and who the voters are."""

    last_contained_ms: int
    controls: tuple[ControlRecord, ...]


class LoadedSnapshot(NamedTuple):
    """A snapshot that was read. `controls` are what its header says of the quorum."""

    last_contained_ms: int
    controls: tuple[ControlRecord, ...]
    values: tuple[bytes, ...]


def find_snapshots(files: FileSystem, directory: str) -> list[SnapshotId]:
    """The finished snapshots in a directory, the oldest first."""
    found = (SnapshotId.parse(name) for name in files.names(directory))
    return sorted(each for each in found if each is not None)


def remove_unfinished(files: FileSystem, directory: str) -> None:
    """Remove what a stop left behind of snapshots that were being written or deleted."""
    for name in files.names(directory):
        if _UNFINISHED.fullmatch(name):
            files.remove(join(directory, name))


def write_snapshot_file(
    files: FileSystem,
    path: str,
    values: Iterable[bytes],
    *,
    epoch: int,
    timestamp_ms: int,
    last_contained_ms: int,
    voters: Sequence[ControlRecord] = (),
    part_name: str = "",
    read_only: bool = True,
) -> int:
    """Write a snapshot so that it appears under `path` whole or not at all; its size in bytes."""
    part = join(directory_of(path), part_name) if part_name else f"{path}{PART_SUFFIX}"
    position = 0
    file = files.open(part, create=True)
    try:
        file.truncate(0)
        for batch in build_snapshot(
            values,
            epoch=epoch,
            timestamp_ms=timestamp_ms,
            last_contained_ms=last_contained_ms,
            voters=voters,
        ):
            file.write_at(position, batch)
            position += len(batch)
        file.sync()
    finally:
        file.close()
    give_name(files, part, path, read_only=read_only)
    return position


def give_name(files: FileSystem, part: str, path: str, *, read_only: bool = True) -> None:
    """The last step: a snapshot that is whole and synced gets its own name, for good."""
    if read_only:
        files.make_read_only(part)
    files.rename(part, path)
    files.sync_directory(directory_of(path))


def part_name(snapshot: SnapshotId, randomness: Random) -> str:
    """Under which name a snapshot is written; no two of one id share it."""
    stem = snapshot.file_name.removesuffix(CHECKPOINT_SUFFIX)
    return f"{stem}-{randomness.getrandbits(63)}{CHECKPOINT_SUFFIX}{PART_SUFFIX}"


def read_snapshot_file(files: FileSystem, path: str) -> LoadedSnapshot:
    """Read a snapshot and check that it is whole: from a header to a footer, with every CRC right."""
    header: SnapshotHeader | None = None
    values: list[bytes] = []
    is_complete = False
    try:
        for batch in _batches(files, path):
            decoded = read_batch(batch)
            if is_complete:
                raise RemoteProtocolError("records follow its footer")
            if header is None:
                header = _header_of(decoded)
            is_complete = any(each.kind is ControlType.SNAPSHOT_FOOTER for each in decoded.controls)
            values += decoded.values
    except RemoteProtocolError as problem:
        raise _useless(path, str(problem)) from None
    if header is None or not is_complete:
        raise _useless(path, "it has no footer, so it was not written to its end")
    return LoadedSnapshot(header.last_contained_ms, header.controls, tuple(values))


def read_header(files: FileSystem, path: str) -> SnapshotHeader:
    """What a snapshot begins with; the rest is not looked at."""
    file = files.open(path)
    try:
        head = file.read_at(0, _HEADER_BYTES)
    finally:
        file.close()
    try:
        first = next(iter(iter_batches(head)), None)
        if first is None:
            raise RemoteProtocolError("it has no header, so it was not written to its end")
        return _header_of(read_batch(first))
    except RemoteProtocolError as problem:
        raise _useless(path, str(problem)) from None


def _header_of(first: LogBatch) -> SnapshotHeader:
    message = first.controls[0].message if first.controls else None
    if not isinstance(message, SnapshotHeaderRecord):
        raise RemoteProtocolError("it does not begin with a header")
    return SnapshotHeader(message.last_contained_log_timestamp, first.controls[1:])


def _useless(path: str, why: str) -> BarnabasError:
    return BarnabasError(f"the snapshot {path} cannot be used: {why}")


def _batches(files: FileSystem, path: str) -> Iterator[BatchView]:
    file = files.open(path)
    try:
        data = file.read_at(0, file.size())
    finally:
        file.close()
    walk = iter_batches(data)
    yield from walk
    if walk.truncated:
        raise RemoteProtocolError(f"it ends within a batch, at byte {walk.position}")
