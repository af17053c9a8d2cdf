"""What lies on the simulated disk, files and names, each with what is safe, and what a power loss makes of the rest."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import NamedTuple


class _Change:
    """A write that no sync has covered; without data, a change of the size to `position`."""

    __slots__ = ("data", "position", "safe")

    def __init__(self, position: int, data: bytes | None) -> None:
        self.position = position
        self.data = data
        self.safe = False  # synced, but an earlier change is not and never will be

    def apply(self, content: bytearray) -> None:
        if self.data is None:
            _resize(content, self.position)
        else:
            _overwrite(content, self.position, self.data)


class Inode:
    """A file apart from its name."""

    __slots__ = (
        "content",
        "durable",
        "linked",
        "modified_ms",
        "name",
        "open_count",
        "parent",
        "pending",
        "unsafe_count",
    )

    def __init__(self, parent: Directory, name: str) -> None:
        self.parent: Directory | None = parent
        self.name = name
        self.linked = False
        self.open_count = 0
        self.modified_ms = 0
        self.content = bytearray()
        self.durable = bytearray()
        self.pending: list[_Change] = []
        self.unsafe_count = 0  # changes at the head of `pending` that a failed sync has given up

    def write(self, position: int, data: bytes) -> None:
        if data:  # a write of nothing beyond the end does not extend a file
            self._change(_Change(position, data))

    def truncate(self, size_bytes: int) -> None:
        self._change(_Change(size_bytes, None))

    def _change(self, change: _Change) -> None:
        change.apply(self.content)
        self.pending.append(change)

    def sync(self) -> None:
        if self.unsafe_count == 0:
            for change in self.pending:
                change.apply(self.durable)
            self.pending.clear()
        for change in self.pending[self.unsafe_count :]:
            change.safe = True

    def fail_sync(self) -> None:
        """A kernel marks pages as clean although their write failed, so no later sync will write them."""
        self.unsafe_count = len(self.pending)

    def lose_power(self, random: Random, sector_bytes: int) -> None:
        if self.pending:
            self.content = self._what_survives(random, sector_bytes)
            self.durable = bytearray(self.content)
            self.pending.clear()
        self.unsafe_count = 0

    def _what_survives(self, random: Random, sector_bytes: int) -> bytearray:
        """Chances taken per change alone would nearly never give the plain outcomes, so first a style is drawn."""
        content = bytearray(self.durable)
        style = random.choice(("nothing", "all", "first", "some", "sizes"))
        whole_count = random.randrange(len(self.pending)) if style == "first" else 0
        for number, change in enumerate(self.pending):
            if change.safe or style == "all" or number < whole_count:
                change.apply(content)
            elif style == "sizes":
                _grow(content, change)
            elif style == "some" or (style == "first" and number == whole_count):
                _survive_by_chance(content, change, random, sector_bytes)
        return content


def _survive_by_chance(content: bytearray, change: _Change, random: Random, sector_bytes: int) -> None:
    fate = random.choice(("gone", "size", "torn", "whole"))
    if fate == "whole":
        change.apply(content)
    elif fate == "size":
        _grow(content, change)
    elif fate == "torn" and change.data is not None:
        position, data = change.position, change.data
        first, second = sorted(_tear(position, len(data), random, sector_bytes) for _ in range(2))
        if random.random() < 0.5:
            _overwrite(content, position + first, data[first:second])
        else:
            _overwrite(content, position, data[:first])
            _overwrite(content, position + second, data[second:])


def _tear(position: int, size_bytes: int, random: Random, sector_bytes: int) -> int:
    """Where in a write it is torn: at its ends or between sectors of the file."""
    border = random.randint(position // sector_bytes, (position + size_bytes) // sector_bytes + 1) * sector_bytes
    return min(max(border - position, 0), size_bytes)


def _grow(content: bytearray, change: _Change) -> None:
    """The size was written, the data not: zeros, as file systems leave them that allocate late."""
    end = change.position + len(change.data or b"")
    if end > len(content):
        _resize(content, end)


def _resize(content: bytearray, size_bytes: int) -> None:
    if size_bytes < len(content):
        del content[size_bytes:]
    else:
        content.extend(bytes(size_bytes - len(content)))


def _overwrite(content: bytearray, position: int, data: bytes) -> None:
    if data:
        if position > len(content):
            _resize(content, position)
        content[position : position + len(data)] = data


class Directory:
    """Names, as they are and as a power loss would leave them at the least."""

    __slots__ = ("durable", "entries", "modified_ms", "name", "parent")

    def __init__(self, parent: Directory | None, name: str) -> None:
        self.parent = parent
        self.name = name
        self.modified_ms = 0
        self.entries: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}


Node = Inode | Directory


class Entry(NamedTuple):
    """One name in one directory, and what it stands for before and after a change."""

    directory: Directory
    name: str
    before: Node | None
    after: Node | None


class NameChange:
    """A change of names that happens as a whole or not at all; a rename has two entries."""

    __slots__ = ("entries",)

    def __init__(self, *entries: Entry) -> None:
        self.entries = entries

    def apply(self, now_ms: int) -> None:
        for directory, name, before, after in self.entries:
            directory.modified_ms = now_ms
            if isinstance(before, Inode):
                before.linked = False
            _put(directory.entries, name, after)
        for directory, name, _, after in self.entries:
            if after is not None:
                after.parent, after.name = directory, name
            if isinstance(after, Inode):
                after.linked = True

    def make_durable(self) -> None:
        for directory, name, _, after in self.entries:
            _put(directory.durable, name, after)

    def keys(self) -> list[tuple[Directory, str]]:
        return [(entry.directory, entry.name) for entry in self.entries]


def _put(entries: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        entries.pop(name, None)
    else:
        entries[name] = node


def with_causes(changes: list[NameChange], directory: Directory) -> list[NameChange]:
    """The changes in a directory, with those elsewhere which they build upon, in order."""
    needed: set[tuple[Directory, str]] = set()
    chosen = []
    for change in reversed(changes):
        keys = change.keys()
        if any(key in needed or key[0] is directory for key in keys):
            needed.update(keys)
            chosen.append(change)
    return chosen[::-1]


def survivors(changes: list[NameChange], random: Random, *, ordered: bool) -> Iterable[NameChange]:
    """Which changes of names outlive a power loss. One that builds upon a lost change of the same name is lost too."""
    if ordered or random.random() < 0.5:
        return changes[: random.randint(0, len(changes))]
    chance = random.random()
    lost: set[tuple[Directory, str]] = set()
    chosen = []
    for change in changes:
        keys = change.keys()
        if random.random() < chance and lost.isdisjoint(keys):
            chosen.append(change)
        else:
            lost.update(keys)
    return chosen
