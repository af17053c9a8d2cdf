"""What may happen to a file: each way of damage as a function of a directory's contents, the same every time. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from barnabas.records import iter_batches

Contents = Mapping[str, bytes | None]

#: Files that carry nothing: a lock counts by being held.
_IGNORED: Final = (".lock",)
#: Where the fields of a batch lie that its CRC does not cover, and some that it does.
_BATCH_FIELDS: Final = {"base offset": 7, "length": 11, "leader epoch": 15, "magic": 16, "crc": 20, "offset delta": 26}
_SHARES: Final = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, slots=True)
class Mutation:
    """One damage: `paths` are the files that it touches, the first of them the one that it is about."""

    name: str
    paths: tuple[str, ...]
    apply: Callable[[Contents], dict[str, bytes | None]]

    @property
    def path(self) -> str:
        return self.paths[0]

    @property
    def kind(self) -> str:
        """The sort of damage without its place: delete, empty, truncate, flip, swap, duplicate."""
        return self.name.partition(" ")[0]

    def __str__(self) -> str:
        return f"{self.path}: {self.name}"


def file_kind(path: str) -> str:
    """Whose file it is, and which."""
    directory, _, name = path.rpartition("/")
    owner = directory.rpartition("/")[2]
    suffix = name if not name[:1].isdigit() else name[20:] if name[20:21] == "." else ".checkpoint"
    if owner.startswith("__cluster_metadata"):
        return f"metadata {suffix}"
    if owner.endswith("-delete"):
        return "deleted partition"
    if owner.startswith("__consumer_offsets"):
        return f"offsets {suffix}"
    if owner.startswith("compacted"):
        return f"compacted {suffix}"
    return f"partition {suffix}" if "-" in owner else suffix


def all_mutations(contents: Contents) -> Iterator[Mutation]:
    """Every file, in every way."""
    paths = [path for path, content in contents.items() if content is not None and not path.endswith(_IGNORED)]
    for path in paths:
        yield from _of_file(path, contents, paths)


def _of_file(path: str, contents: Contents, paths: list[str]) -> Iterator[Mutation]:
    content = contents[path] or b""
    yield Mutation("delete", (path,), lambda now: {name: data for name, data in now.items() if name != path})
    if content:
        yield _rewriting("empty", path, lambda data: b"")
        yield _rewriting("truncate to half", path, lambda data: data[: len(data) // 2])
        yield _rewriting("truncate by 3 bytes", path, lambda data: data[:-3])
    for what, position in _flips(path, content).items():
        yield _rewriting(f"flip {what}", path, lambda data, position=position: _flipped(data, position))  # type: ignore[misc]
    sibling = _sibling(path, contents, paths)
    if sibling is not None:
        yield _swap(path, sibling)
    if content:
        start = _last_part(path, content)
        yield _rewriting("duplicate the last part", path, lambda data: data + data[start:])


def _rewriting(name: str, path: str, change: Callable[[bytes], bytes]) -> Mutation:
    return Mutation(name, (path,), lambda contents: {**contents, path: change(contents[path] or b"")})


def _swap(path: str, other: str) -> Mutation:
    return Mutation(
        f"swap with {other}",
        (path, other),
        lambda contents: {**contents, path: contents[other], other: contents[path]},
    )


def _flipped(data: bytes, position: int) -> bytes:
    changed = bytearray(data)
    # Which bit depends on the place, so that over all files all of them have their turn.
    changed[position] ^= 1 << (position * 5 + 2) % 8
    return bytes(changed)


def _flips(path: str, content: bytes) -> dict[str, int]:
    if not content:
        return {}
    places = {f"at {share:.0%}": int(share * (len(content) - 1)) for share in _SHARES}
    starts = _batch_starts(path, content)
    if starts:
        # A batch in the middle: the first and the last are met by the shares.
        middle = starts[len(starts) // 2]
        places |= {f"in {name}": middle + offset for name, offset in _BATCH_FIELDS.items()}
        places["in the leader epoch of the last batch"] = starts[-1] + _BATCH_FIELDS["leader epoch"]
    return {name: position for name, position in places.items() if position < len(content)}


def _batch_starts(path: str, content: bytes) -> list[int]:
    if not path.endswith((".log", ".checkpoint")) or path.endswith("bootstrap.checkpoint"):
        return []
    starts, position = [], 0
    for batch in iter_batches(content):
        starts.append(position)
        position += batch.size_bytes
    return starts


def _last_part(path: str, content: bytes) -> int:
    starts = _batch_starts(path, content)
    return starts[-1] if starts else len(content) // 2


def _sibling(path: str, contents: Contents, paths: list[str]) -> str | None:
    """The next file of the same sort that holds something else, in the same directory if there is one."""
    directory, _, name = path.rpartition("/")
    suffix = name.partition(".")[2] if name[:1].isdigit() else name
    alike = [
        other
        for other in paths
        if other.endswith(f".{suffix}" if name[:1].isdigit() else f"/{suffix}") and contents[other] != contents[path]
    ]
    if not name[:1].isdigit() and name.endswith("-checkpoint") and not alike:
        alike = [each for each in paths if each.endswith("-checkpoint") and contents[each] != contents[path]]
    beside = [other for other in alike if other.rpartition("/")[0] == directory]
    candidates = beside or alike
    later = [other for other in candidates if other > path]
    return later[0] if later else candidates[-1] if candidates else None
