"""The same seed gives the same world, event by event, also in another process whose hashes are others."""

from __future__ import annotations

import pytest

from tests.other_hashes import python_with_hash_seed
from tests.simulation.story import trace_of
from tests.sweeps import IS_FULL

SEEDS = range(20) if IS_FULL else range(1)


def in_another_process(story: str, seed: int, hash_seed: str) -> str:
    return python_with_hash_seed(hash_seed, "-m", "tests.simulation.story", story, str(seed))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("story", ["day", "storm"])
def test_a_seed_gives_one_trace_in_every_process(story: str, seed: int) -> None:
    here = trace_of(story, seed)
    assert here == trace_of(story, seed)
    assert here == in_another_process(story, seed, hash_seed="1")
    assert here == in_another_process(story, seed, hash_seed="4242")


def test_another_seed_gives_another_trace() -> None:
    assert len({trace_of("day", seed) for seed in range(4)}) == 4
