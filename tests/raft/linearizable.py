"""Whether what clients saw of one key can have happened in some order, each operation at one moment of its time.

A key is a register: a get returns what the last set before it wrote. After Wing and Gong, and Lowe's "just in time":
walk through the history by time, and keep every state that the register may be in. An operation takes effect, at the
latest, when it returns; if no state is left then, the history has no explanation.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What a client did. A set whose outcome the client does not know returns at `math.inf`: it may take effect at any
    time after its call, or never. A get without an answer says nothing and is left out of the history."""

    client: int
    key: str
    value: Hashable
    is_set: bool
    called_s: float
    returned_s: float

    @property
    def is_unknown(self) -> bool:
        return self.returned_s == math.inf

    def __str__(self) -> str:
        what = f"sets {self.key} to {self.value}" if self.is_set else f"gets {self.value} from {self.key}"
        returned = "never" if self.is_unknown else f"{self.returned_s:.6f}"
        return f"{self.called_s:.6f} - {returned}: client {self.client} {what}"


class NotLinearizableError(AssertionError):
    """`operation` cannot have happened, given `around`: what was under way, or the last to end before it."""

    def __init__(self, operation: Operation, around: Sequence[Operation]) -> None:
        self.operation = operation
        self.around = around
        lines = "\n".join(f"  {each}" for each in around)
        super().__init__(f"no order explains it: {operation}\nafter and beside it:\n{lines}")


class _State(NamedTuple):
    """What the register may hold, and which operations under way have had their effect (as places in the history)."""

    value: Hashable
    done: frozenset[int]


def check_linearizable(history: Iterable[Operation], initial: Hashable = None) -> None:
    """Raises `NotLinearizableError` for the first operation of any key that nothing explains."""
    by_key = sorted(history, key=attrgetter("key"))
    for _, operations in groupby(by_key, key=attrgetter("key")):
        _KeyChecker(sorted(operations, key=attrgetter("called_s")), initial).check()


class _KeyChecker:
    def __init__(self, operations: Sequence[Operation], initial: Hashable) -> None:
        self._operations = operations
        self._states = {_State(initial, frozenset())}
        # Under way and sure to take effect, by their places in the history.
        self._open: dict[int, Operation] = {}
        # Sets that may take effect or not, by their values.
        self._unknown: dict[Hashable, list[int]] = {}

    def check(self) -> None:
        events: list[tuple[float, int, int]] = []
        for place, each in enumerate(self._operations):
            # At equal times calls come first: then the two may have overlapped.
            events.append((each.called_s, 0, place))
            if not each.is_unknown:
                events.append((each.returned_s, 1, place))
        for _, is_return, place in sorted(events):
            if is_return:
                self._return(place)
            else:
                self._call(place)

    def _call(self, place: int) -> None:
        operation = self._operations[place]
        if not operation.is_unknown:
            self._open[place] = operation
        elif operation.is_set:
            self._unknown.setdefault(operation.value, []).append(place)

    def _return(self, place: int) -> None:
        """Only states in which the operation has had its effect live on."""
        reached: set[_State] = set()
        seen = set(self._states)
        todo = list(seen)
        while todo:
            state = todo.pop()
            if place in state.done:
                reached.add(_State(state.value, state.done - {place}))
                continue  # what else may take effect now may also do so later
            for following in self._next_states(state):
                if following not in seen:
                    seen.add(following)
                    todo.append(following)
        if not reached:
            raise NotLinearizableError(self._operations[place], self._around(place))
        del self._open[place]
        self._states = reached

    def _next_states(self, state: _State) -> Iterable[_State]:
        value, done = state
        for place, each in self._open.items():
            if place in done:
                continue
            if each.is_set:
                yield _State(each.value, done | {place})
            elif each.value == value:
                yield _State(value, done | {place})
            else:
                # A set of unknown outcome need not have happened, so it counts only where something shows that it has.
                for unknown in self._unknown.get(each.value, ()):
                    if unknown not in done:
                        yield _State(each.value, done | {place, unknown})

    def _around(self, place: int) -> list[Operation]:
        failed = self._operations[place]
        before = [each for each in self._operations if each.returned_s < failed.called_s]
        beside = [
            each
            for each in self._operations
            if each is not failed and each.called_s <= failed.returned_s and each.returned_s >= failed.called_s
        ]
        return sorted(before, key=attrgetter("returned_s"))[-5:] + beside[:20]
