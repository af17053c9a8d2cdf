"""The checker of histories: what it lets pass, and above all what it does not."""

from __future__ import annotations

import math
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.raft.linearizable import NotLinearizableError, Operation, check_linearizable


def sets(value: str, called_s: float, returned_s: float = math.inf, key: str = "k") -> Operation:
    return Operation(client=1, key=key, value=value, is_set=True, called_s=called_s, returned_s=returned_s)


def gets(value: str | None, called_s: float, returned_s: float, key: str = "k") -> Operation:
    return Operation(client=2, key=key, value=value, is_set=False, called_s=called_s, returned_s=returned_s)


EXPLAINED = {
    "nothing happened": [],
    "a key that nobody has set": [gets(None, 0, 1)],
    "one after the other": [sets("a", 0, 1), gets("a", 2, 3), sets("b", 4, 5), gets("b", 6, 7)],
    "a get beside a set sees the old value": [sets("a", 0, 1), sets("b", 2, 5), gets("a", 3, 4)],
    "a get beside a set sees the new value": [sets("a", 0, 1), sets("b", 2, 5), gets("b", 3, 4)],
    "first old then new beside a set": [sets("a", 0, 1), sets("b", 2, 9), gets("a", 3, 4), gets("b", 5, 6)],
    "two sets at once, the earlier call wins": [sets("a", 0, 3), sets("b", 1, 2), gets("a", 4, 5)],
    "a set hidden by another that returned first": [
        sets("x", 0, 9),
        sets("o", 1, 2),
        gets("o", 3, 4),
        gets("o", 10, 11),
    ],
    "an unknown set that never happened": [sets("a", 0, 1), sets("b", 2), gets("a", 3, 4)],
    "an unknown set that happened late": [sets("a", 0, 1), sets("b", 2), gets("a", 3, 4), gets("b", 90, 91)],
    "an unknown set that was overwritten": [
        sets("b", 0),
        sets("a", 1, 2),
        gets("b", 3, 4),
        sets("c", 5, 6),
        gets("c", 7, 8),
    ],
    "keys do not concern each other": [sets("a", 0, 1, "k"), gets(None, 2, 3, "l"), gets("a", 2, 3, "k")],
    "they touch": [sets("a", 0, 1), gets(None, 1, 2)],
}

NOT_EXPLAINED = {
    "an acknowledged set is lost": [sets("a", 0, 1), gets(None, 2, 3)],
    "an acknowledged set is lost later": [sets("a", 0, 1), gets("a", 2, 3), sets("b", 4, 5), gets("a", 6, 7)],
    "a get goes back": [sets("a", 0, 1), sets("b", 2, 9), gets("b", 3, 4), gets("a", 5, 6)],
    "a get of what nobody has set": [sets("a", 0, 1), gets("z", 2, 3)],
    "a get before the set was asked for": [gets("a", 0, 1), sets("a", 2, 3)],
    "an unknown set happens before it was asked for": [gets("b", 0, 1), sets("b", 2)],
    "an unknown set happens twice": [sets("b", 0), gets("b", 1, 2), sets("a", 3, 4), gets("b", 5, 6)],
    "two clients see two orders": [
        sets("a", 0, 9),
        sets("b", 0, 9),
        gets("a", 1, 2),
        gets("b", 3, 4),
        gets("a", 5, 6),
    ],
    "one bad key among good ones": [
        sets("a", 0, 1, "k"),
        gets("a", 2, 3, "k"),
        sets("b", 0, 1, "l"),
        gets(None, 2, 3, "l"),
    ],
}


@pytest.mark.parametrize("name", EXPLAINED)
def test_what_some_order_explains_passes(name: str) -> None:
    check_linearizable(EXPLAINED[name])


@pytest.mark.parametrize("name", NOT_EXPLAINED)
def test_what_no_order_explains_is_found(name: str) -> None:
    with pytest.raises(NotLinearizableError, match="no order explains"):
        check_linearizable(NOT_EXPLAINED[name])


def test_the_error_names_the_operation_and_what_was_beside_it() -> None:
    history = [sets("a", 0, 1), sets("b", 2, 9), gets("b", 3, 4), gets("a", 5, 6)]
    with pytest.raises(NotLinearizableError) as caught:
        check_linearizable(history)
    assert caught.value.operation == history[3]
    assert "5.000000 - 6.000000: client 2 gets a from k" in str(caught.value)
    assert "sets k to b" in str(caught.value)


def naive(history: list[Operation]) -> bool:
    """All orders, tried one by one; those of unknown outcome at any place, or left out."""
    return any(_explains(order) for order in permutations(history))


def _explains(order: tuple[Operation, ...]) -> bool:
    is_in_time = all(
        later.returned_s >= earlier.called_s for place, earlier in enumerate(order) for later in order[place + 1 :]
    )
    # What the register may hold: a set of unknown outcome is done here, or not at all.
    values: set[object] = {None}
    for each in order:
        if not each.is_set:
            values = values & {each.value}
        else:
            values = values | {each.value} if each.is_unknown else {each.value}
        if not values:
            return False
    return is_in_time


TIMES = st.tuples(st.integers(0, 8), st.sampled_from([1, 2, 3, 5]))
OPERATIONS = st.one_of(
    st.builds(lambda value, called: sets(value, called), st.sampled_from("ab"), st.integers(0, 8)),
    st.builds(lambda value, times: sets(value, times[0], sum(times)), st.sampled_from("ab"), TIMES),
    st.builds(lambda value, times: gets(value, times[0], sum(times)), st.sampled_from(["a", "b", None]), TIMES),
)


@given(st.lists(OPERATIONS, max_size=6))
def test_it_says_what_trying_all_orders_says(history: list[Operation]) -> None:
    try:
        check_linearizable(history)
    except NotLinearizableError:
        assert not naive(history)
    else:
        assert naive(history)


def test_long_histories_with_many_unknown_outcomes_take_no_time() -> None:
    history = []
    for number in range(3000):
        now_s = number * 10.0
        history.append(sets(f"v{number}", now_s, now_s + 15))
        history.append(gets(f"v{number}", now_s + 16, now_s + 17))
        if number % 30 == 0:
            history.append(sets(f"unknown{number}", now_s))
    check_linearizable(history)
