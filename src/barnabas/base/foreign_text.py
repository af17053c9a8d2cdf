"""Text that somebody else chose, made fit for a terminal or a log: nothing in it is obeyed, nothing is endless."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Final

#: What terminals act on (C0, DEL, C1), what reorders a line (marks of direction), what others take for the end of a
#: line, and halves of characters, which no output can encode.
_UNSAFE: Final = r"\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_ANYWHERE: Final = re.compile(f"[{_UNSAFE}]")
_BUT_LINES_AND_TABS: Final = re.compile(f"(?![\n\t])[{_UNSAFE}]")
_SHORT_FORMS: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

_LONGEST_WORD: Final = 300
_LEFT_OF_A_WORD: Final = 64
#: Every name of a topic is shorter. Names of clients, groups and users are of others' choice, up to 32 KiB.
_LONGEST_NAME: Final = 256
_DIGEST_BYTES: Final = 8
_LONG_WORD: Final = re.compile(rf"\S{{{_LONGEST_WORD + 1},}}")


def escaped(text: str) -> str:
    """One line without anything that is not shown as itself: `\\x1b` for what begins an escape sequence."""
    return text if text.isprintable() else _ANYWHERE.sub(_escape, text)


def escaped_lines(text: str) -> str:
    """The same of a text that is made of lines, and of columns with tabs between them."""
    return text if text.isprintable() else _BUT_LINES_AND_TABS.sub(_escape, text)


def shortened(text: str) -> str:
    """With the beginning of each endless word, and how long it was: enough to know an id by."""
    return text if len(text) <= _LONGEST_WORD else _LONG_WORD.sub(_shorten, text)


def told_apart(name: str) -> str:
    """A name, or what stands for one that is very long where many are kept: always the same for the same, and another
    for another that begins alike."""
    if len(name) <= _LONGEST_NAME:
        return name
    digest = blake2b(name.encode(errors="backslashreplace"), digest_size=_DIGEST_BYTES).hexdigest()
    return f"{name[: _LONGEST_NAME - 1 - len(digest)]}…{digest}"


def one_line(text: str, most_bytes: int, *, is_whole: bool = False) -> str:
    """Shortened, escaped, and cut if it is still too long. What is whole is not shortened: JSON without spaces is one
    word, and no id."""
    short = text if is_whole else shortened(text)
    data = escaped(short[:most_bytes]).encode()
    if len(short) <= most_bytes >= len(data):
        return data.decode()
    return f"{data[:most_bytes].decode(errors='ignore')}…({len(text):,} characters)"


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    number = ord(character)
    return _SHORT_FORMS.get(character) or (f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}")


def _shorten(match: re.Match[str]) -> str:
    word = match[0]
    return f"{word[:_LEFT_OF_A_WORD]}…({len(word):,} characters)"
