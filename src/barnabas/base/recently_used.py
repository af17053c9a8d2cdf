"""What is kept of each of those who may be endlessly many, since they name themselves: clients, users, addresses."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

#: So many are kept. More than are active at once where nobody makes up names.
MOST_KEPT: Final = 10_000
#: How many are looked at for each that comes: more than one, so that the silent ones become fewer.
_LOOKS: Final = 2


class RecentlyUsed(Generic[K, V]):
    """A map in about the order of use, with a bound.

    Guarantees: there are never more than `most`; one that is not `silent` is forgotten for no other reason than that;
    and no call takes longer the more there are, but for those that are about all of them. There is no sweep: whoever
    comes new has the first ones looked at.
    """

    __slots__ = ("_forgotten", "_kept", "_most", "_silent")

    def __init__(
        self,
        silent: Callable[[K, V, int], bool],
        forgotten: Callable[[V], object] = lambda _: None,
        *,
        most: int = MOST_KEPT,
    ) -> None:
        """`silent` tells whether a new one would say the same, by key, value and time; `forgotten` is told of each that
        is given up."""
        self._silent = silent
        self._forgotten = forgotten
        self._most = most
        self._kept: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def peek(self, key: K) -> V | None:
        """Without using it."""
        return self._kept.get(key)

    def use(self, key: K) -> V | None:
        try:
            self._kept.move_to_end(key)
        except KeyError:
            return None
        return self._kept[key]

    def add(self, key: K, value: V, now_ms: int) -> None:
        """One that is not there."""
        if len(self._kept) >= self._most:
            self._forget(next(iter(self._kept)))
        self._look_at_first(now_ms)
        self._kept[key] = value

    def items(self) -> list[tuple[K, V]]:
        """A copy, for those who look at them bit by bit."""
        return list(self._kept.items())

    def values(self) -> list[V]:
        return list(self._kept.values())

    def clear(self) -> None:
        for key in list(self._kept):
            self._forget(key)

    def _look_at_first(self, now_ms: int) -> None:
        for _ in range(min(_LOOKS, len(self._kept))):
            key = next(iter(self._kept))
            if not self._silent(key, self._kept[key], now_ms):
                # Some say something for very long: the next look is at others.
                self._kept.move_to_end(key)
                return
            self._forget(key)

    def _forget(self, key: K) -> None:
        self._forgotten(self._kept.pop(key))
