"""What tools print: plain lines for scripts, JSON for programs, tables for people at a terminal."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

import click


def is_terminal() -> bool:
    """Whether a person looks at the output, who has nothing against colours."""
    return has_colours(sys.stdout)


def has_colours(stream: TextIO | None) -> bool:
    """The same of any stream; there is none where it was closed before we started."""
    return stream is not None and stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def compact_json(value: Any) -> str:
    """One line, as Kafka's tools write JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def print_json(value: Any) -> None:
    """Indented at a terminal, one line for a program."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False) if is_terminal() else compact_json(value))


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = "") -> None:
    """A table with lines and colours at a terminal, columns of text elsewhere."""
    cells = [[str(cell) for cell in row] for row in rows]
    if is_terminal() and _print_rich(headings, cells, title):
        return
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    if title:
        click.echo(title)
    for row in (headings, *cells):
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _print_rich(headings: Sequence[str], rows: list[list[str]], title: str) -> bool:
    """Whether it could be done: `rich` is imported only here, since it takes as long as a tool's whole start."""
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return False
    table = Table(title=title or None, title_justify="left", header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)
    return True
