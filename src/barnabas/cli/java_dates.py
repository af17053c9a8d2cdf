"""Times in the patterns of Java's `SimpleDateFormat`, as far as people use them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Final

import click

_TOKEN: Final = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")


def _number(read: Callable[[datetime], int]) -> Callable[[datetime, int], str]:
    return lambda when, width: str(read(when)).zfill(width)


def _year(when: datetime, width: int) -> str:
    return f"{when.year % 100:02}" if width == 2 else str(when.year).zfill(width)


def _month(when: datetime, width: int) -> str:
    return str(when.month).zfill(width) if width < 3 else when.strftime("%b" if width == 3 else "%B")


def _iso_zone(when: datetime, width: int) -> str:
    text = when.strftime("%z")
    if text == "+0000":
        return "Z"
    return text[:3] if width == 1 else text if width == 2 else f"{text[:3]}:{text[3:]}"


_LETTERS: Final[dict[str, Callable[[datetime, int], str]]] = {
    "y": _year,
    "M": _month,
    "d": _number(lambda when: when.day),
    "D": _number(lambda when: when.timetuple().tm_yday),
    "u": _number(lambda when: when.isoweekday()),
    "H": _number(lambda when: when.hour),
    "k": _number(lambda when: when.hour or 24),
    "K": _number(lambda when: when.hour % 12),
    "h": _number(lambda when: when.hour % 12 or 12),
    "m": _number(lambda when: when.minute),
    "s": _number(lambda when: when.second),
    "S": _number(lambda when: when.microsecond // 1000),
    "a": lambda when, width: "AM" if when.hour < 12 else "PM",
    "E": lambda when, width: when.strftime("%a" if width < 4 else "%A"),
    "G": lambda when, width: "AD",
    "z": lambda when, width: when.strftime("%Z"),
    "Z": lambda when, width: when.strftime("%z"),
    "X": _iso_zone,
}


def java_date_format(pattern: str, option: str) -> Callable[[float], str]:
    """A function that shows seconds since 1970 in local time; `click.UsageError` for letters that mean nothing.

    >>> java_date_format("yyyy'T'", "--date-format")(86400 * 365 * 10)
    '1979T'
    """
    parts: list[tuple[Callable[[datetime, int], str] | None, int, str]] = []
    position = 0
    while position < len(pattern):
        match = _TOKEN.match(pattern, position)
        if match is None:
            raise click.UsageError(f"{option}: {pattern!r} has a quote that is not closed")
        position = match.end()
        quoted, letter = match.groups()
        if letter is None:
            text = match[0] if quoted is None else (quoted.replace("''", "'") or "'")
            parts.append((None, 0, text))
        elif letter in _LETTERS:
            parts.append((_LETTERS[letter], len(match[0]), ""))
        else:
            raise click.UsageError(f"{option}: {pattern!r}: the letter {letter} has no meaning here")

    def show(seconds: float) -> str:
        when = datetime.fromtimestamp(seconds).astimezone()
        return "".join(text if part is None else part(when, width) for part, width, text in parts)

    return show
