"""Snapshots of a replicated log: `<end offset>-<epoch>.checkpoint`, each the whole state as of an offset.

A snapshot is written under another name, synced, made read-only, and only then gets its own name: one that has it is
whole. `end_offset` is the first offset that it does not contain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from barnabas.base.errors import BarnabasError, RemoteProtocolError
from barnabas.raft.batches import ControlRecord, build_snapshot, read_batch
from barnabas.raft.types import SnapshotId
from barnabas.records.batch import BatchView, iter_batches
from barnabas.records.control import ControlType
from barnabas.storage.files import FileSystem, directory_of, join
from barnabas.wire.stored.control_records import SnapshotHeaderRecord

_UNFINISHED: Final = re.compile(r"[0-9]{20}-[0-9]{10}.*\.checkpoint(\.part|\.deleted)")
# Enough for the first batch of a snapshot: a header and, with many voters, their addresses.
_HEADER_BYTES: Final = 64 * 1024
PART_SUFFIX: Final = ".part"
DELETED_SUFFIX: Final = ".deleted"


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
    if read_only:
        files.make_read_only(part)
    files.rename(part, path)
    files.sync_directory(directory_of(path))
    return position


def read_snapshot_file(files: FileSystem, path: str) -> LoadedSnapshot:
    """Read a snapshot and check that it is whole: from a header to a footer, with every CRC right."""
    header: SnapshotHeaderRecord | None = None
    controls: list[ControlRecord] = []
    values: list[bytes] = []
    is_complete = False
    try:
        for batch in _batches(files, path):
            decoded = read_batch(batch)
            if is_complete:
                raise RemoteProtocolError("records follow its footer")
            if header is None:
                first = decoded.controls[0] if decoded.controls else None
                if first is None or not isinstance(first.message, SnapshotHeaderRecord):
                    raise RemoteProtocolError("it does not begin with a header")
                header = first.message
                controls += decoded.controls[1:]
            is_complete = any(each.kind is ControlType.SNAPSHOT_FOOTER for each in decoded.controls)
            values += decoded.values
    except RemoteProtocolError as problem:
        raise BarnabasError(f"the snapshot {path} cannot be used: {problem}") from None
    if header is None or not is_complete:
        raise BarnabasError(f"the snapshot {path} cannot be used: it has no footer, so it was not written to its end")
    return LoadedSnapshot(header.last_contained_log_timestamp, tuple(controls), tuple(values))


def read_last_contained_ms(files: FileSystem, path: str) -> int:
    """The time of the last record that a snapshot holds, from its header alone; 0 if the header cannot be read."""
    file = files.open(path)
    try:
        head = file.read_at(0, _HEADER_BYTES)
    finally:
        file.close()
    try:
        first = next(iter(iter_batches(head)), None)
        controls = read_batch(first).controls if first is not None else ()
    except RemoteProtocolError:
        return 0
    header = controls[0].message if controls else None
    return header.last_contained_log_timestamp if isinstance(header, SnapshotHeaderRecord) else 0


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
