"""Makes a damaged log usable again with what is left of it, once somebody has accepted the loss.

The offsets that are lost stay lost: a batch without records stands for them, as compaction leaves some too, so no other
record ever gets them and every reader passes over them. What lies behind the damage in the same file goes with it;
files behind it stay. The files can be read by Apache Kafka as before.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from crc32c import crc32c

from barnabas.base.error_codes import ErrorCode
from barnabas.records.batch import ATTRIBUTES_AT, FRAME_BYTES, HEADER
from barnabas.storage.damage import Damage, Loss
from barnabas.storage.errors import LogError
from barnabas.storage.files import FileSystem, directory_of, join
from barnabas.storage.indexes import MAX_RELATIVE_OFFSET
from barnabas.storage.layout import data_offsets, offset_of, segment_files
from barnabas.storage.segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    segment_name,
)

_CRC_AT: Final = 17


def accept_loss(files: FileSystem, damage: Damage, next_offset: int) -> None:
    """Go on without what a verdict found missing. Records that come will begin at `next_offset` at the earliest."""
    directory = damage.directory
    if not files.exists(directory):
        files.make_directory(directory)
        files.sync_directory(directory_of(directory))
    if _take_back_swaps(files, directory, damage.losses):
        # What the cleaning was made of is there again, so there is something else to judge.
        return
    following = max(data_offsets(segment_files(files.names(directory))), default=-1)
    for loss in damage.losses:
        is_last = following < loss.end_offset and loss is damage.losses[-1]
        _accept(files, directory, loss._replace(end_offset=max(loss.end_offset, next_offset)) if is_last else loss)
    files.sync_directory(directory)


def _accept(files: FileSystem, directory: str, loss: Loss) -> None:
    name = loss.path.rpartition("/")[2]
    if not segment_files([name]):
        # Of the directory as a whole nothing is left: the log goes on where it was.
        _write(files, join(directory, segment_name(loss.end_offset) + LOG_SUFFIX), 0, b"")
        return
    base_offset = offset_of(name)
    if loss.end_offset - base_offset > MAX_RELATIVE_OFFSET:
        raise LogError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{loss.path}: the checkpoints ask for offsets up to {loss.end_offset - 1}, more than a segment can hold; "
            "if that cannot be right, mend the checkpoints in the directory above",
        )
    # They are made anew at the start.
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        path = join(directory, segment_name(base_offset) + suffix)
        if files.exists(path):
            files.remove(path)
    _write(files, loss.path, loss.position, empty_batch(loss.start_offset, loss.end_offset))


def _write(files: FileSystem, path: str, position: int, content: bytes) -> None:
    file = files.open(path, create=True)
    try:
        file.truncate(position)
        if content:
            file.write_at(position, content)
        file.sync()
    finally:
        file.close()


def _take_back_swaps(files: FileSystem, directory: str, losses: Iterable[Loss]) -> bool:
    """If the result of a compaction is damaged before it was in its place, go back to what it was made from."""
    names = segment_files(files.names(directory))
    swaps = {
        join(directory, segment_name(offset_of(name)) + LOG_SUFFIX) for name in names if name.endswith(SWAP_SUFFIX)
    }
    if not any(loss.path.removesuffix(SWAP_SUFFIX) in swaps for loss in losses):
        return False
    for name in names:
        path = join(directory, name)
        if name.endswith(DELETED_SUFFIX) and not files.exists(path.removesuffix(DELETED_SUFFIX)):
            files.rename(path, path.removesuffix(DELETED_SUFFIX))
        elif name.endswith(SWAP_SUFFIX):
            files.remove(path)
    files.sync_directory(directory)
    return True


def empty_batch(start_offset: int, end_offset: int) -> bytes:
    """A batch that has the offsets from `start_offset` up to `end_offset` and no record."""
    last_offset_delta = end_offset - start_offset - 1
    size_bytes = HEADER.size - FRAME_BYTES
    batch = bytearray(HEADER.pack(start_offset, size_bytes, -1, 2, 0, 0, last_offset_delta, -1, -1, -1, -1, -1, 0))
    batch[_CRC_AT:ATTRIBUTES_AT] = crc32c(batch[ATTRIBUTES_AT:]).to_bytes(4, "big")
    return bytes(batch)
