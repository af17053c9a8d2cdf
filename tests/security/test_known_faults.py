"""The faults of others that `known_faults` knows: they are not in this tree, and would be noticed if they were."""

from __future__ import annotations

import pytest

from tests.security.known_faults import KNOWN


@pytest.mark.parametrize("names", KNOWN)
def test_it_is_not_so_here(names: str) -> None:
    KNOWN[names].check()


@pytest.mark.parametrize(
    ("names", "plant"), [(names, plant) for names, fault in KNOWN.items() for plant in fault.plants]
)
def test_it_would_be_noticed(names: str, plant: str) -> None:
    with KNOWN[names].plants[plant](), pytest.raises(AssertionError):
        KNOWN[names].check()
