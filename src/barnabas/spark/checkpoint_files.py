"""The files in which Spark keeps how far a query is."""

from __future__ import annotations

from pathlib import Path


class CheckpointFiles:
    """The files of a checkpoint, wherever pyarrow can read: on this machine, in HDFS, in an object store."""

    def __init__(self, folder: str) -> None:
        from pyarrow import fs

        self.folder = folder
        if folder.startswith("file:") or "://" not in folder:
            local = Path(folder.removeprefix("file:"))
            self._files, self._root = fs.LocalFileSystem(), "/" + str(local.absolute()).lstrip("/")
        else:
            self._files, self._root = fs.FileSystem.from_uri(folder)
        self._selector = fs.FileSelector

    def numbers(self, name: str) -> list[int]:
        """Batches that have a file in a folder."""
        selector = self._selector(f"{self._root}/{name}", allow_not_found=True)
        return sorted(int(file.base_name) for file in self._files.get_file_info(selector) if file.base_name.isdigit())

    def text(self, name: str) -> str | None:
        try:
            with self._files.open_input_stream(f"{self._root}/{name}") as stream:
                return bytes(stream.read()).decode()
        except FileNotFoundError:
            return None
