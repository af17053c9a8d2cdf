"""A mapping that never changes, and of which another one with a change costs next to nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Generic, Self, TypeVar, overload

from immutables import Map

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

_NOBODY: Final = object()


class PersistentMap(Mapping[K, V], Generic[K, V]):
    """An immutable mapping. `set` and `delete` give another one, which shares with it all but the path to the key.

    >>> old = PersistentMap({"a": 1, "b": 2})
    >>> new = old.set("a", 3).set("c", 4)
    >>> dict(old), dict(new)
    ({'a': 1, 'b': 2}, {'a': 3, 'b': 2, 'c': 4})

    It iterates in the order in which keys came, as a dict does. The tree below has them in the order of their hashes,
    and those of text differ from process to process: whoever iterated over it would act in another order in the next
    run. So each key has a place, and the keys in order are made when somebody first iterates.
    """

    __slots__ = ("_entries", "_next_place", "_ordered_keys")

    _entries: Map[K, tuple[int, V]]
    _next_place: int
    _ordered_keys: tuple[K, ...] | None

    def __init__(self, items: Mapping[K, V] | Iterable[tuple[K, V]] = ()) -> None:
        pairs = dict(items).items()
        self._entries = Map({key: (place, value) for place, (key, value) in enumerate(pairs)})
        self._next_place = len(pairs)
        self._ordered_keys = None

    # Changing

    def set(self, key: K, value: V) -> Self:
        """With this value for the key; a new key comes last, one that was there keeps its place."""
        entry = self._entries.get(key)
        if entry is not None:
            return self._derived(self._entries.set(key, (entry[0], value)), self._next_place, self._ordered_keys)
        return self._derived(self._entries.set(key, (self._next_place, value)), self._next_place + 1, None)

    def delete(self, key: K) -> Self:
        """Without the key, be it there or not."""
        if key not in self._entries:
            return self
        return self._derived(self._entries.delete(key), self._next_place, None)

    def _derived(self, entries: Map[K, tuple[int, V]], next_place: int, ordered_keys: tuple[K, ...] | None) -> Self:
        derived = object.__new__(type(self))
        derived._entries = entries
        derived._next_place = next_place
        derived._ordered_keys = ordered_keys
        return derived

    # Reading

    def __getitem__(self, key: K) -> V:
        return self._entries[key][1]

    @overload
    def get(self, key: K, /) -> V | None: ...
    @overload
    def get(self, key: K, /, default: V | D) -> V | D: ...
    def get(self, key: K, /, default: Any = None) -> Any:
        entry = self._entries.get(key)
        return default if entry is None else entry[1]

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[K]:
        if self._ordered_keys is None:
            self._ordered_keys = tuple(self._in_order())
        return iter(self._ordered_keys)

    def _in_order(self) -> Iterator[K]:
        if self._next_place > 4 * len(self._entries):  # most of what came has gone again
            return (key for key, _ in sorted(self._entries.items(), key=_place))
        # Several times as fast as sorting.
        places: list[Any] = [_NOBODY] * self._next_place
        for key, (place, _) in self._entries.items():
            places[place] = key
        return (key for key in places if key is not _NOBODY)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PersistentMap):
            return self._entries is other._entries or self._equals(other._entries)
        if not isinstance(other, Mapping) or len(self) != len(other):
            return NotImplemented if not isinstance(other, Mapping) else False
        return all(key in other and other[key] == value for key, (_, value) in self._entries.items())

    def _equals(self, others: Map[K, tuple[int, V]]) -> bool:
        if len(self._entries) != len(others):
            return False
        for key, (_, value) in self._entries.items():
            other = others.get(key)
            if other is None or not (other[1] is value or other[1] == value):
                return False
        return True

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self)!r})"


def _place(item: tuple[Any, tuple[int, Any]]) -> int:
    return item[1][0]
