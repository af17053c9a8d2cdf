"""What clients warn of, on standard error: that nobody answers, that a topic does not exist."""

from __future__ import annotations

import logging

from barnabas.cli.main import tell


class _Lines(logging.Handler):
    """One line each, as tools speak. What is said of a client's troubles needs not name the tool's only client."""

    def emit(self, record: logging.LogRecord) -> None:
        text = getattr(record, "trouble", None) or record.getMessage()
        tell(text, colour="yellow")


def show_warnings() -> None:
    """Show them, unless the tool has a log already."""
    logging.basicConfig(level=logging.WARNING, handlers=[_Lines(logging.WARNING)])
