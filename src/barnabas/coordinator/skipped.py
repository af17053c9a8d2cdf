"""Records that loading did not understand: counted by kind, so that a million of them make a few lines."""

from __future__ import annotations

from enum import Enum
from typing import Final

_SHOWN_OFFSETS: Final = 5
_SHOWN_CHARS: Final = 160


class Oddity(Enum):
    """Why a record was passed over."""

    NO_KEY = "they have no key"
    KEY = "their key cannot be read"
    TYPE = "their type is not known"
    VALUE = "their value cannot be read"
    KIND_OF_GROUP = "groups of their kind are not built"
    BATCH = "the records of their batch cannot be read"


class SkippedRecordError(Exception):
    """A record is not understood."""

    def __init__(self, why: Oddity, example: object = "") -> None:
        super().__init__(why, example)
        self.why = why
        self.example = example


class _Found:
    __slots__ = ("count", "example", "offsets")

    def __init__(self, example: str) -> None:
        self.count = 0
        self.example = example
        self.offsets: list[int] = []


class SkippedRecords:
    """What was passed over, with the first offsets and one reason of each kind."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[Oddity, _Found] = {}

    def __len__(self) -> int:
        return sum(each.count for each in self._found.values())

    def add(self, why: Oddity, offset: int, example: object = "") -> None:
        found = self._found.get(why)
        if found is None:
            found = self._found[why] = _Found(str(example)[:_SHOWN_CHARS])
        found.count += 1
        if found.count <= _SHOWN_OFFSETS:
            found.offsets.append(offset)

    def lines(self) -> list[str]:
        """One for each kind."""
        return [_line(why, found) for why, found in self._found.items()]


def _line(why: Oddity, found: _Found) -> str:
    offsets = ", ".join(map(str, found.offsets)) + (", …" if found.count > len(found.offsets) else "")
    example = f" (the first: {found.example})" if found.example else ""
    return f"{found.count} skipped, at the offsets {offsets}: {why.value}{example}"
