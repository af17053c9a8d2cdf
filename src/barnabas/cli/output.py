"""What tools print: plain lines for scripts, JSON for programs, tables for people at a terminal.

Names, ids and values come from others, and a terminal obeys what it is shown. So everything leaves through `say`, which
shows control characters instead; a name that stands in a line goes through `shown` first, since a line must not become
two. JSON has escapes of its own.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final, TextIO

import click

from barnabas.base.foreign_text import escaped, escaped_lines

#: What JSON does not make one escape, and terminals act on.
_UNSAFE_IN_JSON: Final = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


#: A line and a blank on both sides of a cell.
_BORDER: Final = 3
#: One long value must not move all columns behind it out of sight.
_WIDEST: Final = 60


def say(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print lines that may hold text of others."""
    click.echo(escaped_lines(text), err=err, nl=nl)


def discard_output() -> None:
    """Whoever read standard output, `head` say, has seen enough. What is printed from now on goes nowhere: the
    interpreter must not find out again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def shown(value: object) -> str:
    """A name, an id or a value of others, to stand in a line or a cell."""
    return escaped(str(value))


def size_text(size_bytes: int) -> str:
    """In the unit that makes it short: 999 B, 1.2 kB, 34.5 MB."""
    size, units = float(size_bytes), ["B", "kB", "MB", "GB", "TB"]
    while size >= 1000 and len(units) > 1:
        size /= 1000
        del units[0]
    return f"{size:,.0f} B" if units[0] == "B" else f"{size:,.1f} {units[0]}"


def is_watched() -> bool:
    """Whether standard output is a terminal, which obeys control characters, with colours or without."""
    return sys.stdout is not None and sys.stdout.isatty()


def is_terminal() -> bool:
    """Whether a person looks at the output, who has nothing against colours."""
    return has_colours(sys.stdout)


def has_colours(stream: TextIO | None) -> bool:
    """The same of any stream; there is none where it was closed before we started."""
    return stream is not None and stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def compact_json(value: Any) -> str:
    """One line, as Kafka's tools write JSON."""
    return _safe_json(json.dumps(value, separators=(",", ":"), ensure_ascii=False))


def print_json(value: Any) -> None:
    """Indented at a terminal, one line for a program."""
    say(_safe_json(json.dumps(value, indent=2, ensure_ascii=False)) if is_terminal() else compact_json(value))


def _safe_json(text: str) -> str:
    """The same value: these characters stand in strings only."""
    return text if text.isprintable() else _UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def print_table(
    headings: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = "", may_break: bool = False
) -> None:
    """A table with lines and colours at a terminal, columns of text elsewhere. A list in a cell is shown as lines.

    No name is broken: what is wider than the terminal comes as columns of text, too, so that it can be copied. With
    `may_break` only the first column holds names.
    """
    cells = [[_cell(cell) for cell in row] for row in rows]
    title = shown(title)
    if is_terminal() and _print_rich(headings, cells, title, may_break):
        return
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    if is_terminal():
        widths = [min(width, _WIDEST) for width in widths]
    if title:
        say(title)
    for row in (headings, *cells):
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _cell(value: object) -> str:
    return "\n".join(map(shown, value)) if isinstance(value, list) else shown(value)


def _print_rich(headings: Sequence[str], rows: list[list[str]], title: str, may_break: bool) -> bool:
    """Whether it could be done: `rich` is imported only here, since it takes as long as a tool's whole start."""
    try:
        from rich.cells import cell_len
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return False
    console = Console()
    lines = [[cell.split("\n") for cell in column] for column in zip(headings, *rows, strict=True)]
    widths = [max(cell_len(line) for cell in column for line in cell) for column in lines]
    may_break = may_break or any("\n" in cell for row in rows for cell in row)
    if sum(widths) + _BORDER * len(widths) + 1 > console.width and not may_break:
        return False
    table = Table(header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold", no_wrap=not table.columns)
    # As text, for brackets mean something else to `rich`.
    for row in rows:
        table.add_row(*map(Text, row))
    if title:
        # Not as the table's own title, which would be as narrow as the table.
        console.print(Text(title, style="italic"), soft_wrap=True)
    console.print(table)
    return True
