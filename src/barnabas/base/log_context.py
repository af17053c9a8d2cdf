"""Who a line of the log is of: `[node 2] …`, `[producer orders-1] …`. Several nodes and clients may share a process,
and even an event loop, so the name of a logger does not tell.

Who speaks is a context variable: tasks and callbacks inherit it from where they were made, so that a node names itself
once, when it starts. Work that runs in a task of the program's names itself with `speaking`.

    _log = logger("barnabas.broker")

    with speaking("node 2"):
        _log.info("Created topic %s", name)        # [node 2] Created topic clicks

It stands in the message, whoever's handler writes it; a handler that wants it by itself has `record.who`, and the rest
by `said`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from barnabas.base.foreign_text import one_line

#: Finer than DEBUG, as in Kafka's log.
TRACE: Final = 5
_MOST_BYTES: Final = 200

_speaker: ContextVar[str] = ContextVar("barnabas_speaker", default="")

logging.addLevelName(TRACE, "TRACE")


def logger(name: str) -> logging.Logger:
    """A logger whose lines say who speaks."""
    found = logging.getLogger(name)
    found.addFilter(name_speaker)  # a second time does nothing
    return found


@contextmanager
def speaking(who: str) -> Iterator[None]:
    """What is logged in here, and in tasks and callbacks that are made in here, is of this node or client."""
    before = _speaker.set(who)
    try:
        yield
    finally:
        _speaker.reset(before)


def speak_as(who: str) -> None:
    """The same from now on: for the first thing that a task, or a process, does."""
    _speaker.set(who)


def speaker() -> str:
    """Who speaks here; empty for nobody in particular."""
    return _speaker.get()


def name_speaker(record: logging.LogRecord) -> bool:
    """A filter that lets everything pass, with its speaker's name."""
    who = _speaker.get()
    if who and not hasattr(record, "who"):
        # A client chooses its name, which must not become a line of its own, nor be filled in.
        name = one_line(who, _MOST_BYTES)
        record.__dict__["who"] = name
        prefix = f"[{name}] "
        record.msg = (prefix.replace("%", "%%") if record.args else prefix) + str(record.msg)
    return True


def said(record: logging.LogRecord) -> str:
    """The message without who speaks."""
    text, who = record.getMessage(), getattr(record, "who", None)
    return text if who is None else text.removeprefix(f"[{who}] ")
