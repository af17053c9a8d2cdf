"""How many things of one kind a log names: a few get a line each, of more the first are named in one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barnabas.base.foreign_text import one_line

#: Of so many things of one kind each gets a line; of more the first few are named in one.
MOST_LINES: Final = 5
_MOST_NAMES: Final = 10
_NAME_BYTES: Final = 250


def name_text(text: str) -> str:
    return one_line(text, _NAME_BYTES)


def names_text(names: Iterable[str]) -> str:
    every = list(names)
    text = ", ".join(map(name_text, every[:_MOST_NAMES]))
    return f"{text} and {len(every) - _MOST_NAMES:,} more" if len(every) > _MOST_NAMES else text
