"""What clients warn of, on standard error: that nobody answers, that a topic does not exist."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from barnabas.cli.main import tell


class _Lines(logging.Handler):
    """One line each, as tools speak. What is said of a client's troubles needs not name the tool's only client."""

    def __init__(self, say: Callable[[str], object]) -> None:
        super().__init__(logging.WARNING)
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        self._say(getattr(record, "trouble", None) or record.getMessage())


def show_warnings() -> None:
    """Show them, unless the tool has a log already."""
    logging.basicConfig(level=logging.WARNING, handlers=[_Lines(lambda text: tell(text, colour="yellow"))])


@contextmanager
def warnings_go_to(say: Callable[[str], object]) -> Iterator[None]:
    """Let the tool itself show them meanwhile: where it draws a screen, lines in between would spoil it."""
    root, ours = logging.getLogger(), _Lines(say)
    others = [each for each in root.handlers if isinstance(each, _Lines)]
    for each in others:
        root.removeHandler(each)
    root.addHandler(ours)
    try:
        yield
    finally:
        root.removeHandler(ours)
        for each in others:
            root.addHandler(each)
