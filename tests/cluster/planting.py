"""Bugs planted on purpose, and the search for seeds that find them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import pytest

from barnabas.testing.sim.scenarios import Scenario, ScenarioOptions, SeedReport, load, shortest_failing
from tests.other_hashes import python_with_hash_seed

Plant = Callable[[], AbstractContextManager[Any]]


class PlantedBug(NamedTuple):
    """A bug, and what it is in words."""

    plant: Plant
    text: str


class PlantedBugs:
    """All bugs that one scenario must find."""

    def __init__(self, scenario: str, max_seeds: int) -> None:
        self._scenario = scenario
        self._max_seeds = max_seeds
        self.bugs: dict[str, PlantedBug] = {}

    def planted(self, text: str) -> Callable[[Plant], Plant]:
        def register(plant: Plant) -> Plant:
            self.bugs[plant.__name__] = PlantedBug(plant, text)
            return plant

        return register

    def _load(self) -> Scenario:
        return load(self._scenario, ScenarioOptions(3, "whole"))

    def find(self, name: str, seeds: Sequence[int] | None = None) -> SeedReport | None:
        """The report of the first seed that notices the bug."""
        scenario = self._load()
        with self.bugs[name].plant():
            reports = (scenario.run(seed) for seed in seeds or range(1, self._max_seeds + 1))
            return next((report for report in reports if not report.is_clean), None)

    def main(self, arguments: Sequence[str]) -> int:
        """Look for all bugs, or for those that are named, and tell of each by which seed it was found."""
        missed = 0
        for name in arguments or self.bugs:
            report = self.find(name)
            if report is None:
                missed += 1
                say(f"{name:40} NOT FOUND in {self._max_seeds} seeds: {self.bugs[name].text}")
                continue
            say(f"{name:40} seed {report.seed:3}: {report.broken}")
            if arguments:
                with self.bugs[name].plant():
                    shortest = shortest_failing(self._load(), report)
                say("\n".join([shortest.problem, *shortest.plan, *shortest.story]))
        return 1 if missed else 0


def some_every_day(names: Iterable[str], one_in: int = 4) -> list[Any]:
    """Parameters of a test: one of so many every day, which shows that the simulation sees; all among the slow ones."""
    return [
        name if place % one_in == 1 else pytest.param(name, marks=pytest.mark.slow) for place, name in enumerate(names)
    ]


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def trace_in_another_process(scenario: str, seed: int, hash_seed: str) -> str:
    """The hash of all that happens in a seed, where hashes of strings are others."""
    code = (
        "from barnabas.testing.sim.scenarios import ScenarioOptions, load; "
        f"print(load({scenario!r}, ScenarioOptions(3, 'whole')).run({seed}).trace)"
    )
    return python_with_hash_seed(hash_seed, "-c", code)
