"""Progress of long work, for people at a terminal. It goes to standard error, so output can still be piped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from barnabas.cli import output


@contextmanager
def progress(what: str, total: int, *, from_total: int = 10) -> Iterator[Callable[[], None]]:
    """A bar that moves on with each call of what this gives; nothing is shown for less than `from_total` steps."""
    if total < from_total or not output.has_colours(sys.stderr):
        yield _nothing
        return
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        yield _nothing
        return
    with Progress(console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(what, total=total)
        yield lambda: shown.advance(task)


def _nothing() -> None:
    pass
