"""Mutated produce frames do to a node with a compiled path what they do to one without; some rounds of many."""

from __future__ import annotations

from tests.fuzz.produce_frames import play
from tests.sweeps import IS_FULL


def test_a_mutated_frame_does_what_the_rules_would_do() -> None:
    for seed in range(300 if IS_FULL else 3):
        counted = play(seed)
        assert counted["taken"] > counted["sent"] / 10
