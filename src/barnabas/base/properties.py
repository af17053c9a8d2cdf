"""Java's `.properties` files: read as `java.util.Properties.load` reads them, written as `store` writes them.

`parse_properties` and `format_properties` are pure, text in and text out; only `load_properties_file` touches a file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from barnabas.base.errors import SettingsError

_BLANK = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
# A key ends at the first separator that no backslash protects; one '=' or ':' may stand among the blanks after it.
_ENTRY = re.compile(r"((?:\\.|[^\\=: \t\f])*\\?)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u(.{0,4})|(.?))", re.DOTALL)
_CONTROL_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SURROGATE_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


@dataclass(frozen=True, slots=True)
class Property:
    """One entry: its text, and the line of the file on which it starts."""

    value: str
    line: int


class Properties(Mapping[str, str]):
    """The entries of a `.properties` text in the order of their first appearance, with where each was found.

    >>> properties = parse_properties("node.id=1\\nlog.dirs: /a,\\\\\\n   /b", origin="server.properties")
    >>> properties["log.dirs"], properties.where("log.dirs")
    ('/a,/b', 'server.properties line 2')
    """

    def __init__(self, origin: str, entries: Iterable[tuple[str, Property]]) -> None:
        self.origin = origin
        self.entries: dict[str, Property] = {}
        self.repeated: dict[str, list[int]] = {}
        for name, entry in entries:
            if name in self.entries:
                self.repeated.setdefault(name, [self.entries[name].line]).append(entry.line)
            self.entries[name] = entry

    def __getitem__(self, name: str) -> str:
        return self.entries[name].value

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __repr__(self) -> str:
        # Values may be passwords, so only the names show.
        return f"Properties({self.origin!r}, {list(self.entries)})"

    def where(self, name: str) -> str:
        """Where the value of `name` was found, as people say it."""
        line = self.entries[name].line
        return f"{self.origin} line {line}" if line else self.origin


def parse_properties(text: str, *, origin: str = "properties") -> Properties:
    """Read a `.properties` text. The last of several entries with one name counts; `repeated` tells of the others."""
    return Properties(origin, (_entry(line, number, origin) for number, line in _logical_lines(text)))


def parse_overrides(overrides: Iterable[str], *, origin: str = "--override") -> Properties:
    """Read `name=value` words, as a command line gives them. They are taken literally: nothing is escaped."""
    entries = []
    for override in overrides:
        name, equals, value = override.partition("=")
        if not equals or not name.strip():
            # The word is not repeated here: a password on a command line is still a password.
            raise SettingsError(f"{origin} must look like name=value")
        entries.append((name.strip(), Property(value, line=0)))
    return Properties(origin, entries)


def load_properties_file(path: str | os.PathLike[str]) -> Properties:
    """Read a file. UTF-8 is accepted; what is not UTF-8 is read as ISO-8859-1, the encoding that Java assumes."""
    data = Path(path).read_bytes()
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("iso-8859-1")
    return parse_properties(text, origin=os.fspath(path))


def format_properties(entries: Mapping[str, str], *, comments: Iterable[str] = ()) -> str:
    """Write entries so that Java and `parse_properties` read the same back; the result is plain ASCII."""
    lines = [f"#{_escape_text(comment)}" for comment in comments]
    lines += [f"{_escape_key(name)}={_escape_value(value)}" for name, value in entries.items()]
    return "".join(f"{line}\n" for line in lines)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Join continued lines, drop comments and blank lines; each line comes with the number of its first part."""
    joined, first_number = "", 0
    for number, natural_line in enumerate(_LINE_END.split(text), start=1):
        line = natural_line.lstrip(_BLANK)
        if not joined:
            # Only a line that continues nothing can be a comment: elsewhere '#' is text.
            if not line or line[0] in "#!":
                continue
            first_number = number
        trailing_backslashes = len(line) - len(line.rstrip("\\"))
        if trailing_backslashes % 2:
            joined += line[:-1]
        else:
            yield first_number, joined + line
            joined = ""
    if joined:
        yield first_number, joined


def _entry(line: str, number: int, origin: str) -> tuple[str, Property]:
    _, key, value, _ = _ENTRY.split(line, maxsplit=1)
    where = f"{origin} line {number}"
    return _unescape(key, where), Property(_unescape(value, where), number)


def _unescape(text: str, where: str) -> str:
    if "\\" not in text:
        return text

    def replacement(match: re.Match[str]) -> str:
        digits, char = match.groups()
        if digits is None:
            return _CONTROL_ESCAPES.get(char, char)
        if len(digits) < 4 or not re.fullmatch(r"[0-9a-fA-F]{4}", digits):
            raise SettingsError(f"{where}: \\u must be followed by four hexadecimal digits, as in \\u00e9")
        return chr(int(digits, 16))

    return _join_surrogates(_ESCAPE.sub(replacement, text))


def _join_surrogates(text: str) -> str:
    """Java's text is UTF-16: two escapes may spell one character of ours."""
    return _SURROGATE_PAIR.sub(lambda pair: pair[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le"), text)


def _escape_key(key: str) -> str:
    return _escape_text(key, protected="\\=:#! \t\n\r\f")


def _escape_value(value: str) -> str:
    # Blanks inside a value are plain text; only those at its start would be taken for the separator.
    escaped = _escape_text(value, protected="\\=:#!\t\n\r\f")
    return escaped.replace(" ", "\\ ", 1) if escaped.startswith(" ") else escaped


def _escape_text(text: str, protected: str = "\n\r") -> str:
    return "".join(_escape_char(char, protected) for char in text)


def _escape_char(char: str, protected: str) -> str:
    if char in protected:
        short = {"\t": "t", "\n": "n", "\r": "r", "\f": "f"}.get(char, char)
        return f"\\{short}"
    if " " <= char <= "~":
        return char
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2))
