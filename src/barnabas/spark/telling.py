"""Errors as Spark shows them: our sentence first, the traceback after it.

Spark shows of an error in a Python worker what the interpreter would: the traceback, and below it the sentence that
says what to do. It leaves the traceback out if SPARK_HIDE_TRACEBACK is set in the worker, which it looks up at that
moment; then notes of the error are shown, behind its text. So an error of ours has its traceback as a note.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from barnabas.base.errors import BarnabasError

_HIDE: Final = "SPARK_HIDE_TRACEBACK"
#: Spark tells a worker by variables of these names how to reach the JVM. Other processes do not have them.
_OF_WORKERS: Final = "PYTHON_WORKER_FACTORY_"

P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def told_first() -> Iterator[None]:
    """For what Spark calls in a worker. A worker ends with the error that it shows, so that others are not affected."""
    try:
        yield
    except BarnabasError as error:
        if _HIDE not in os.environ and any(name.startswith(_OF_WORKERS) for name in os.environ):
            error.add_note(_trace(error))
            os.environ[_HIDE] = "1"
        raise


def tells_first(function: Callable[P, T]) -> Callable[P, T]:
    """The same for a whole function, which is no generator."""

    @wraps(function)
    def wrapped(*arguments: P.args, **keywords: P.kwargs) -> T:
        with told_first():
            return function(*arguments, **keywords)

    return wrapped


def _trace(error: BaseException) -> str:
    lines = ["\nTraceback (most recent call last):\n", *traceback.format_tb(error.__traceback__)]
    if error.__cause__ is not None:
        lines += ["because of\n", *traceback.format_exception(error.__cause__)]
    return "".join(lines)
