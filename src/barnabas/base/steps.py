"""Work that is done in steps: a generator that yields after each, and returns what came out.

Whoever drives it decides how many steps are done before others have their turn.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

T = TypeVar("T")


def at_once(steps: Generator[Any, None, T]) -> T:
    """All of it now; for work that is known to be small, and waits for nothing."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        outcome: T = end.value
        return outcome
