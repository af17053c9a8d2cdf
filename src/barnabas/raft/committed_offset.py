"""A note beside a replicated log: up to which offset it was committed for certain, and synced here.

It is a lower bound and nothing else, so it stays true when Apache Kafka runs on the directory in between: it, too,
never takes back what was committed. It lies above the directory of the log (`__cluster_metadata-0`), so that it is
still there when that is gone; Kafka passes over files there that it does not know.

What is committed is written here at once, without a sync of its own: after a kill the note is exact, after a power loss
it may be older. Two lines take turns, each with a checksum, so that one is whole after a kill; a power loss may tear
both. Then it still says that there was one: 0. The id of the directory in them tells a note of a cluster that was here
before, which does not count.
"""

from __future__ import annotations

import re
from typing import Final

from crc32c import crc32c

from barnabas.base.ids import Uuid
from barnabas.base.log_context import logger
from barnabas.storage.files import File, FileSystem, directory_of, read_file

_log = logger("barnabas.raft")

NOTE_FILE: Final = "metadata-committed-offset"
_LINE: Final = re.compile(rb"([0-9]{20}) (\S{22}) ([0-9a-f]{8})\n")
_LINE_BYTES: Final = 20 + 1 + 22 + 1 + 8 + 1
#: Stands for a directory without an id.
_NO_ID: Final = "-" * 22


class CommittedOffsetNote:
    """The note of one directory. `offset` is what it says: None if there is none, or none that counts."""

    def __init__(self, files: FileSystem, path: str, directory_id: Uuid | None) -> None:
        self._files = files
        self.path = path
        self._id = (_NO_ID if directory_id is None else str(directory_id)).encode()
        self._file: File | None = None
        self.offset: int | None = None
        self._next_slot = 0
        self._is_usable = False
        if files.exists(self.path):
            self._read(read_file(files, self.path))

    def _read(self, content: bytes) -> None:
        is_foreign = False
        for slot in range(2):
            line = content[slot * _LINE_BYTES : (slot + 1) * _LINE_BYTES]
            match = _LINE.fullmatch(line)
            if match is None or int(match[3], 16) != crc32c(line[: match.start(3)]):
                continue
            if match[2] != self._id:
                is_foreign = True
                continue
            self._is_usable = True
            if self.offset is None or int(match[1]) > self.offset:
                self.offset, self._next_slot = int(match[1]), 1 - slot
        if not self._is_usable:
            self.offset = None if is_foreign else 0
            _log.warning("%s cannot be read, or is of another directory; it is passed over", self.path)

    def advance(self, offset: int) -> None:
        """Note that everything below `offset` was committed, and synced. The first time it blocks, then hardly."""
        if self._is_usable and self.offset is not None and offset <= self.offset:
            return
        try:
            self._write(offset)
        except OSError as failure:
            # What was committed is committed; only damage to it might not be noticed.
            _log.warning("%s could not be written: %s", self.path, failure)

    def _write(self, offset: int) -> None:
        if self._file is None:
            self._file = self._files.open(self.path, create=True)
        text = b"%020d %s " % (offset, self._id)
        if not self._is_usable:
            self._file.truncate(0)
        self._file.write_at(self._next_slot * _LINE_BYTES, text + b"%08x\n" % crc32c(text))
        if not self._is_usable:
            self._file.sync()
            self._files.sync_directory(directory_of(self.path))
            self._is_usable = True
        self.offset = offset
        self._next_slot = 1 - self._next_slot

    def close(self, *, sync: bool) -> None:
        file, self._file = self._file, None
        if file is None:
            return
        try:
            if sync:
                file.sync()
        except OSError as failure:
            _log.warning("%s could not be synced: %s", self.path, failure)
        finally:
            file.close()
