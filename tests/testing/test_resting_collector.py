"""The garbage collector rests within a seed, and afterwards takes what the seed has left."""

from __future__ import annotations

import gc
import weakref

import pytest

from barnabas.testing.sim.collector import resting_collector


class Ring:
    """Holds itself, so that only the collector ends it."""

    def __init__(self) -> None:
        self.itself = self


def test_it_takes_at_the_end_what_was_made_meanwhile() -> None:
    with resting_collector():
        assert not gc.isenabled()
        ring = weakref.ref(Ring())
        rings = [Ring() for _ in range(3000)]
        del rings
        assert ring() is not None
    assert ring() is None
    assert gc.isenabled()


def test_who_had_disabled_it_finds_it_disabled() -> None:
    gc.disable()
    try:
        with resting_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_it_works_again_after_a_failure() -> None:
    with pytest.raises(ZeroDivisionError), resting_collector():
        raise ZeroDivisionError
    assert gc.isenabled()
