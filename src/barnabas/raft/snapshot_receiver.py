"""A snapshot on its way from the leader, as a file that has no name of its own yet."""

from __future__ import annotations

from barnabas.base.errors import RemoteProtocolError
from barnabas.raft.snapshots import give_name, read_snapshot_file
from barnabas.storage.files import File, FileSystem


class SnapshotFileReceiver:
    """Takes the pieces of one snapshot in their order. All of it blocks and may be called in another thread."""

    def __init__(self, files: FileSystem, part: str, path: str) -> None:
        self._files = files
        self._part = part
        self._path = path
        self._file: File | None = None
        self._is_named = False
        self.size_bytes = 0

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        if position != self.size_bytes:
            raise RemoteProtocolError(
                f"the snapshot {self._path}: a piece for byte {position} came, but {self.size_bytes} bytes are there"
            )
        if self._file is None:
            self._file = self._files.open(self._part, create=True)
        self._file.write_at(position, data)
        self.size_bytes += len(data)

    def finish(self) -> None:
        """Check that it is whole and put it under its name, safe from every crash. Raises `BarnabasError` if it is
        not; then it stays without a name until `abandon` removes it."""
        if self._file is None:
            raise RemoteProtocolError(f"the snapshot {self._path}: nothing of it came")
        self._file.sync()
        read_snapshot_file(self._files, self._part)
        self._close()
        give_name(self._files, self._part, self._path)
        self._is_named = True

    def abandon(self) -> None:
        """Remove what has come. Of one that is finished nothing goes."""
        self._close()
        if not self._is_named and self._files.exists(self._part):
            self._files.remove(self._part)

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()
