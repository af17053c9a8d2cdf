"""Whether the log of a voter holds what it promised.

`look_at` reads the log and changes nothing; `judge` has one answer for what it found: the log is whole, or its end is
torn as a crash may leave it, or it is damaged. A damaged one has lost what was committed. A sole voter that went on
with the rest would be another cluster, in which topics are missing and their partitions belong to nobody; one of
several could help to elect a leader that lacks what was committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from barnabas.base.errors import BarnabasError, RemoteProtocolError
from barnabas.raft.types import SnapshotId
from barnabas.records.batch import BatchView, iter_batches
from barnabas.storage.errors import CorruptLogError
from barnabas.storage.files import FileSystem, join
from barnabas.storage.segment import LOG_SUFFIX, Segment

#: From the beginning of a batch to its magic byte, and how long a header is.
_MAGIC_POSITION: Final = 16
_HEADER_BYTES: Final = 61
_MAGIC: Final = b"\x02"


class RaftLogDamagedError(BarnabasError):
    """The log lost what was committed; the replica must not start on what is left."""


@dataclass(frozen=True, slots=True)
class BadPlace:
    """Where a log stops making sense: no whole batch with the next offset lies there."""

    path: str
    position: int
    offset: int
    reason: str
    #: Bytes from there to the end of the log.
    lost_bytes: int
    #: The leader epochs of the batch itself, as far as that can be told, and of whole batches behind it; with the end
    #: offset up to which the batches of each reach.
    epochs: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FoundLog:
    """What lies in the files: whole batches from `start_offset` up to `end_offset`, then perhaps a bad place."""

    directory: str
    start_offset: int
    end_offset: int
    bad: BadPlace | None


class Condition(Enum):
    """What a log is worth."""

    WHOLE = "whole"
    #: Above what was committed: it is cut, and nothing that was promised is lost.
    TORN = "torn at its end"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class RaftLogVerdict:
    """The answer, and what a person should know of it."""

    condition: Condition
    text: str = ""


def judge(found: FoundLog, committed: int | None, snapshot: SnapshotId | None) -> RaftLogVerdict:
    """`committed`: the lower bound that was noted, None where nobody noted one. `snapshot`: the newest."""
    bad = found.bad
    snapshot_end = 0 if snapshot is None else snapshot.end_offset
    if bad is not None:
        where = f"{bad.path}, byte {bad.position}: offset {bad.offset} should begin there, but {bad.reason}"
        bound = _must_reach(bad, committed or 0, snapshot)
        if bad.offset < bound:
            return RaftLogVerdict(Condition.DAMAGED, f"{where}; everything below offset {bound} was committed")
        if committed is None and bad.offset >= snapshot_end and len(bad.epochs) > 1:
            # Whoever leads later has checked what earlier leaders wrote, so it was whole then.
            epochs = " and ".join(map(str, sorted(bad.epochs)))
            return RaftLogVerdict(
                Condition.DAMAGED, f"{where}; records of the leader epochs {epochs} lie from there on"
            )
    if committed is not None and max(found.end_offset, snapshot_end) < committed:
        text = f"{found.directory}: the log ends at offset {found.end_offset}, but was committed up to {committed}"
        return RaftLogVerdict(Condition.DAMAGED, text)
    if bad is None:
        return RaftLogVerdict(Condition.WHOLE)
    why = (
        "that were never committed"
        if bad.offset >= snapshot_end
        else f"of what a snapshot up to offset {snapshot_end} holds"
    )
    return RaftLogVerdict(Condition.TORN, f"{where}; from there on it is cut, {bad.lost_bytes} bytes {why}")


def _must_reach(bad: BadPlace, committed: int, snapshot: SnapshotId | None) -> int:
    """Up to which offset the log must be whole.

    What a snapshot holds need not be in the log. If the leader sent it, it lies beside a log that it replaces: one that
    was torn, that the quorum left behind, or of which a crash has left a segment here and there. If it was taken here,
    the log was whole up to it; and if anything follows it there, in its epoch or a later one, that is not to be cut.
    """
    if snapshot is None or snapshot.end_offset < committed:
        return committed
    follows = any(epoch >= snapshot.epoch and end > snapshot.end_offset for epoch, end in bad.epochs.items())
    return snapshot.end_offset if follows else 0


# Looking


@dataclass(slots=True)
class _Walk:
    next_offset: int
    epoch: int = -1


def look_at(files: FileSystem, directory: str) -> FoundLog:
    """Read the whole log. It has no gaps: each batch begins where the one before it ends."""
    names = files.names(directory) if files.exists(directory) else []
    paths = [join(directory, name) for name in names if name.endswith(LOG_SUFFIX) and name[:20].isdigit()]
    if not paths:
        return FoundLog(directory, 0, 0, None)
    start_offset = _base_offset(paths[0])
    walk = _Walk(start_offset)
    for place, path in enumerate(paths):
        problem = _walk_segment(files, directory, path, walk)
        if problem is not None:
            position, reason = problem
            lost_bytes = sum(files.size(each) for each in paths[place:]) - position
            epochs: dict[int, int] = {}
            for epoch, end_offset in _epochs_from(files, paths[place:], position, walk):
                epochs[epoch] = max(epochs.get(epoch, 0), end_offset)
            bad = BadPlace(path, position, walk.next_offset, reason, lost_bytes, epochs)
            return FoundLog(directory, start_offset, walk.next_offset, bad)
    return FoundLog(directory, start_offset, walk.next_offset, None)


def _base_offset(path: str) -> int:
    return int(path.rpartition("/")[2][:20])


def _walk_segment(files: FileSystem, directory: str, path: str, walk: _Walk) -> tuple[int, str] | None:
    """Go on through one segment; where that ends too early, and why."""
    base_offset = _base_offset(path)
    if base_offset != walk.next_offset:
        return 0, f"the segment begins at offset {base_offset}"
    segment = Segment(files, directory, base_offset, index_bytes=0, index_interval_bytes=0, create=False)
    position = 0
    try:
        for position, batch in segment.positioned_entries():
            if not isinstance(batch, BatchView):
                return position, "a record of an old format is there"
            batch.check_crc()
            if batch.base_offset != walk.next_offset:
                return position, f"a batch with offset {batch.base_offset} is there"
            if batch.leader_epoch < walk.epoch:
                return position, f"a batch of leader epoch {batch.leader_epoch} comes after epoch {walk.epoch}"
            walk.next_offset, walk.epoch = batch.next_offset, batch.leader_epoch
            position += batch.size_bytes
    except CorruptLogError as problem:
        return problem.position, problem.reason
    except RemoteProtocolError as problem:
        return position, str(problem)
    finally:
        segment.close()
    return None


def _epochs_from(files: FileSystem, paths: list[str], position: int, walk: _Walk) -> Iterator[tuple[int, int]]:
    """The leader epochs of all whole batches from a bad place on, wherever they begin, with the offsets at which they
    end; and of the bad one itself."""
    for path in paths:
        file = files.open(path)
        try:
            data = file.read_at(position, max(file.size() - position, 0))
        finally:
            file.close()
        if path == paths[0] and data[_MAGIC_POSITION : _MAGIC_POSITION + 1] == _MAGIC:
            own = int.from_bytes(data[12:16], "big", signed=True)
            if own >= max(walk.epoch, 1):
                yield own, walk.next_offset
        start = 1 if path == paths[0] else 0
        while (start := data.find(_MAGIC, start + _MAGIC_POSITION) - _MAGIC_POSITION) >= 0:
            batch = _whole_batch(data, start)
            if batch is not None and batch.base_offset >= walk.next_offset:
                yield batch.leader_epoch, batch.next_offset
            start += 1 if batch is None else batch.size_bytes
        position = 0


def _whole_batch(data: bytes, start: int) -> BatchView | None:
    size_bytes = 12 + int.from_bytes(data[start + 8 : start + 12], "big", signed=True)
    if not _HEADER_BYTES <= size_bytes <= len(data) - start:
        return None
    try:
        batch = next(iter(iter_batches(data[start : start + size_bytes])), None)
        if batch is not None:
            batch.check_crc()
    except RemoteProtocolError:
        return None
    return batch
