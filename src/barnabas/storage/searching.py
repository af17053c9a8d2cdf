"""Searches whose costly parts can be done elsewhere.

A search is a generator: it yields work that reads nothing but memory and may take long, and is sent the outcome. Who
has the time runs it at once; whoever must not keep others waiting has the work done in another thread.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

T = TypeVar("T")

Search = Generator[Callable[[], Any], Any, T]


def run_here(search: Search[T]) -> T:
    """The outcome, with all work done at once."""
    outcome: Any = None
    try:
        while True:
            outcome = search.send(outcome)()
    except StopIteration as end:
        found: T = end.value
        return found
