"""`meta.properties`: to which cluster and node a directory belongs, and which directory it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import Uuid
from barnabas.base.properties import format_properties, parse_properties
from barnabas.storage.files import FileSystem, join, read_file, replace_file

META_PROPERTIES_FILE: Final = "meta.properties"
_VERSION: Final = "1"


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """What `meta.properties` of one directory says."""

    cluster_id: str
    node_id: int
    directory_id: Uuid | None

    def as_dict(self) -> dict[str, str]:
        entries = {"cluster.id": self.cluster_id, "node.id": str(self.node_id), "version": _VERSION}
        if self.directory_id is not None:
            entries["directory.id"] = str(self.directory_id)
        return dict(sorted(entries.items()))


def meta_entries(files: FileSystem, directory: str) -> dict[str, str] | None:
    """The entries of a directory's `meta.properties` as they stand there; None if there is none."""
    path = join(directory, META_PROPERTIES_FILE)
    try:
        if not files.exists(path):
            if files.exists(directory) and not files.is_directory(directory):
                raise BarnabasError(f"log directory {directory} is a file, not a directory")
            return None
        text = read_file(files, path).decode("iso-8859-1")
    except OSError as failure:
        raise BarnabasError(f"cannot read {path}: {failure.strerror or failure}") from None
    return dict(parse_properties(text, origin=path))


def read_meta_properties(files: FileSystem, directory: str) -> MetaProperties | None:
    """Whose directory this is; None if it was never formatted. `BarnabasError` if what it says makes no sense."""
    entries = meta_entries(files, directory)
    if entries is None:
        return None
    path = join(directory, META_PROPERTIES_FILE)
    problems = list(_problems(entries))
    if problems:
        raise BarnabasError(f"{path}: {problems[0]}")
    directory_id = entries.get("directory.id")
    return MetaProperties(
        entries["cluster.id"], int(entries["node.id"]), None if directory_id is None else Uuid.parse(directory_id)
    )


def _problems(entries: Mapping[str, str]) -> Iterator[str]:
    version = entries.get("version", "0")
    if version == "0":
        yield "version 0 was written by a Kafka with ZooKeeper; migrate it with Kafka 3.9 first"
    elif version != _VERSION:
        yield f"version {version} is not known, only {_VERSION} is"
    for name in ("cluster.id", "node.id"):
        if not entries.get(name):
            yield f"{name} is missing"
    if not entries.get("node.id", "0").isdecimal():
        yield f"node.id = {entries['node.id']!r} is not a number"
    if "directory.id" in entries:
        try:
            Uuid.parse(entries["directory.id"])
        except ValueError as problem:
            yield f"directory.id: {problem}"


def write_meta_properties(files: FileSystem, directory: str, properties: MetaProperties) -> None:
    content = format_properties(properties.as_dict())
    replace_file(files, join(directory, META_PROPERTIES_FILE), content.encode())
