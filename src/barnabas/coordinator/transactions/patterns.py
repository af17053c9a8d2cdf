"""Patterns for transactional ids, of whoever may ask: matching takes time that grows with the id, whatever they say.

The standard library's `re` tries one way after the other, and some patterns have millions. Here, as in the RE2 that
Kafka uses, all ways are followed at once. The pattern is read by `re`'s own parser; what RE2 has not got (references,
looking around) is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from re import _constants as ops  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final

#: More ways at once are not followed. A pattern that somebody has written has some dozens.
_MOST_STEPS: Final = 1_000
#: What is remembered of ways that were gone; then it is begun anew.
_MOST_REMEMBERED: Final = 10_000

_START: Final = "start"
_END: Final = "end"


class PatternError(Exception):
    """It is no pattern, or one that is not served."""


class _Program:
    """Steps: ("char", test), ("fork", places), or ("at", where). The end is behind the last."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, Any]] = []

    def add(self, kind: str, what: Any) -> int:
        if len(self.steps) >= _MOST_STEPS:
            raise PatternError(f"it takes more than {_MOST_STEPS} steps")
        self.steps.append((kind, what))
        return len(self.steps) - 1

    def sequence(self, items: Iterable[tuple[Any, Any]]) -> None:
        for op, argument in items:
            self._one(op, argument)

    def _one(self, op: Any, argument: Any) -> None:
        if op in (ops.LITERAL, ops.NOT_LITERAL, ops.ANY, ops.IN):
            self.add("char", _test(op, argument))
        elif op in (ops.MAX_REPEAT, ops.MIN_REPEAT):
            self._repeat(*argument)
        elif op is ops.SUBPATTERN:
            _, added, removed, items = argument
            if added or removed:
                raise PatternError("flags are not served")
            self.sequence(items)
        elif op is ops.BRANCH:
            self._branch(argument[1])
        elif op is ops.AT:
            self._at(argument)
        else:
            raise PatternError(f"{str(op).lower()} is not served")

    def _repeat(self, fewest: int, most: int, items: Any) -> None:
        for _ in range(fewest):
            self.sequence(items)
        if most == ops.MAXREPEAT:
            fork = self.add("fork", None)
            self.sequence(items)
            back = self.add("fork", (fork,))
            self.steps[fork] = "fork", (fork + 1, back + 1)
            return
        forks = []
        for _ in range(most - fewest):
            forks.append(self.add("fork", None))
            self.sequence(items)
        for fork in forks:
            self.steps[fork] = "fork", (fork + 1, len(self.steps))

    def _branch(self, branches: list[Any]) -> None:
        fork = self.add("fork", None)
        starts, ends = [], []
        for items in branches:
            starts.append(len(self.steps))
            self.sequence(items)
            ends.append(self.add("fork", None))
        self.steps[fork] = "fork", tuple(starts)
        for end in ends:
            self.steps[end] = "fork", (len(self.steps),)

    def _at(self, where: Any) -> None:
        if where in (ops.AT_BEGINNING, ops.AT_BEGINNING_STRING):
            self.add("at", _START)
        elif where in (ops.AT_END, ops.AT_END_STRING):
            self.add("at", _END)
        else:
            raise PatternError("boundaries are not served")


def _test(op: Any, argument: Any) -> Callable[[str], bool]:
    if op is ops.ANY:
        return lambda char: char != "\n"
    if op is ops.LITERAL:
        return lambda char: ord(char) == argument
    if op is ops.NOT_LITERAL:
        return lambda char: ord(char) != argument
    # A set is one character wide, so `re` has only one way to go.
    tests = [_in_set(*each) for each in argument if each[0] is not ops.NEGATE]
    negated = any(each[0] is ops.NEGATE for each in argument)
    return lambda char: any(test(char) for test in tests) is not negated


_CATEGORIES: Final = {
    ops.CATEGORY_DIGIT: re.compile(r"[0-9]"),
    ops.CATEGORY_NOT_DIGIT: re.compile(r"[^0-9]"),
    ops.CATEGORY_SPACE: re.compile(r"[\t\n\f\r ]"),
    ops.CATEGORY_NOT_SPACE: re.compile(r"[^\t\n\f\r ]"),
    ops.CATEGORY_WORD: re.compile(r"[0-9A-Za-z_]"),
    ops.CATEGORY_NOT_WORD: re.compile(r"[^0-9A-Za-z_]"),
}


def _in_set(op: Any, argument: Any) -> Callable[[str], bool]:
    if op is ops.LITERAL:
        return lambda char: ord(char) == argument
    if op is ops.RANGE:
        low, high = argument
        return lambda char: low <= ord(char) <= high
    if op is ops.CATEGORY and argument in _CATEGORIES:
        category = _CATEGORIES[argument]
        return lambda char: category.match(char) is not None
    raise PatternError(f"{str(op).lower()} is not served")


class _Matcher:
    """Whether a whole text matches. Sets of places are remembered by the character that led to them."""

    def __init__(self, steps: list[tuple[str, Any]]) -> None:
        self._steps = steps
        self._next: dict[tuple[frozenset[int], str], frozenset[int]] = {}
        self._first = self._reached([0], is_start=True)

    def __call__(self, text: str) -> bool:
        places = self._first
        for char in text:
            following = self._next.get((places, char))
            if following is None:
                if len(self._next) >= _MOST_REMEMBERED:
                    self._next.clear()
                moved = [at + 1 for at in places if at < len(self._steps) and self._takes(at, char)]
                following = self._next[places, char] = self._reached(moved)
            if not following:
                return False
            places = following
        return len(self._steps) in self._reached(places, is_start=not text, is_end=True)

    def _takes(self, at: int, char: str) -> bool:
        kind, what = self._steps[at]
        return kind == "char" and bool(what(char))

    def _reached(self, places: Iterable[int], *, is_start: bool = False, is_end: bool = False) -> frozenset[int]:
        """All places to which one gets from these without a character."""
        found: set[int] = set()
        open_places = list(places)
        while open_places:
            at = open_places.pop()
            if at in found:
                continue
            found.add(at)
            if at == len(self._steps):
                continue
            kind, what = self._steps[at]
            if kind == "fork":
                open_places += what
            elif kind == "at" and ((what == _START and is_start) or (what == _END and is_end)):
                open_places.append(at + 1)
        return frozenset(found)


def compiled(pattern: str) -> Callable[[str], bool]:
    """Tells whether a whole text matches.

    >>> matches = compiled("orders-[0-9]+")
    >>> matches("orders-17"), matches("orders-"), matches("my-orders-17")
    (True, False, False)
    """
    try:
        parsed = parser.parse(pattern)
    except (re.error, RecursionError, OverflowError) as reason:
        raise PatternError(str(reason)) from None
    if parsed.state.flags & ~re.UNICODE:
        raise PatternError("flags are not served")
    program = _Program()
    program.sequence(parsed)
    return _Matcher(program.steps)
