"""A mapping that never changes: against a dict, which does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import InvariantError, known
from barnabas.base.persistent_map import PersistentMap

_keys = st.sampled_from("abcdefgh")


@given(st.dictionaries(_keys, st.integers()), st.lists(st.tuples(_keys, st.none() | st.integers())))
def test_it_is_a_dict_that_stays_as_it_was(start: dict[str, int], steps: list[tuple[str, int | None]]) -> None:
    model, mapping = dict(start), PersistentMap(start)
    before = []
    for key, value in steps:
        before.append((dict(model), mapping))
        if value is None:
            model.pop(key, None)
            mapping = mapping.delete(key)
        else:
            model[key] = value
            mapping = mapping.set(key, value)
        # The order, too: it is that of a dict, whatever the hashes are.
        assert list(mapping.items()) == list(model.items())
    for then, old in [*before, (model, mapping)]:
        assert list(old.items()) == list(then.items())
        assert (len(old), bool(old)) == (len(then), bool(then))
        assert old == then == PersistentMap(reversed(then.items()))
        assert [old.get(key, 0) for key in "abcdefgh"] == [then.get(key, 0) for key in "abcdefgh"]
        assert [key in old for key in "abcdefgh"] == [key in then for key in "abcdefgh"]


def test_it_is_not_what_differs_from_it() -> None:
    mapping = PersistentMap({"a": 1})
    assert mapping != {"a": 2}
    assert mapping != {"b": 1}
    assert mapping != {"a": 1, "b": 1}
    assert mapping != 1
    assert repr(mapping) == "PersistentMap({'a': 1})"
    with pytest.raises(KeyError):
        mapping["b"]
    assert mapping.delete("b") is mapping


def test_a_kind_of_its_own_stays_that_kind() -> None:
    class Levels(PersistentMap[str, int]):
        __slots__ = ()

    assert type(Levels().set("a", 1).set("b", 2).delete("a")) is Levels


def test_what_is_known_is_given_back_and_what_is_not_stops_us() -> None:
    assert known(0, "a number") == 0
    with pytest.raises(InvariantError, match="a number must be there"):
        known(None, "a number must be there")
