"""Scenarios that run from a seed and tell whether everything held. `barnabas sim` finds them here by name.

A scenario is a class that is made with `ScenarioOptions` and has `run`. One more is a line in `SCENARIOS`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Final, NamedTuple, Protocol

from barnabas.base.errors import BarnabasError

__all__ = ["SCENARIOS", "Scenario", "ScenarioOptions", "SeedReport", "default_depth", "load", "shortest_failing"]

DEPTHS: Final = ("model", "whole")


@dataclass(frozen=True, slots=True)
class ScenarioOptions:
    """What a scenario can be asked for.

    - `voters`: how many replicas vote.
    - `depth`: "model" simulates messages and logs, and is fast; "whole" simulates sockets and files.
    """

    voters: int = 3
    depth: str = "model"


@dataclass(frozen=True, slots=True)
class SeedReport:
    """What became of a seed. `broken` says which invariant did not hold, `problem` how; both are empty if all held.

    `story` has the lines that were kept, if any; `plan` the faults, one line each; `counts` what happened how often.
    """

    seed: int
    virtual_s: float
    event_count: int
    trace: str
    fault_count: int
    broken: str = ""
    problem: str = ""
    plan: Sequence[str] = ()
    story: Sequence[str] = ()
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_clean(self) -> bool:
        return not self.broken


class Scenario(Protocol):
    """Something that runs from a seed."""

    def run(self, seed: int, *, fault_limit: int | None = None, keep_story: bool = False) -> SeedReport:
        """With `fault_limit` only the first so many faults of the plan happen."""
        ...


class ScenarioPlace(NamedTuple):
    """Where a scenario is, what it is for, and what it can be asked for."""

    place: str
    help: str
    voters: Sequence[int]
    depths: Sequence[str]


SCENARIOS: Final[Mapping[str, ScenarioPlace]] = {
    "raft": ScenarioPlace(
        "barnabas.testing.sim.raft_scenario:RaftScenario",
        "a Raft quorum under overlapping faults: elections, replication, snapshots",
        (3, 5),
        DEPTHS,
    ),
    "quorum": ScenarioPlace(
        "barnabas.testing.sim.quorum_scenario:QuorumScenario",
        "a cluster of nodes under overlapping faults: topics and settings change, controllers fail over",
        (3,),
        ("whole",),
    ),
    "cluster": ScenarioPlace(
        "barnabas.testing.sim.cluster_scenario:ClusterScenario",
        "replicated topics under overlapping faults, with our own clients: nothing acknowledged is lost",
        (3,),
        ("whole",),
    ),
    "transactions": ScenarioPlace(
        "barnabas.testing.sim.transaction_scenario:TransactionScenario",
        "a loop that reads, computes and writes in transactions under overlapping faults: everything exactly once",
        (3,),
        ("whole",),
    ),
}


def default_depth(name: str) -> str:
    """The fastest that a scenario has."""
    found = SCENARIOS.get(name)
    return DEPTHS[0] if found is None else found.depths[0]


def load(name: str, options: ScenarioOptions) -> Scenario:
    """The scenario of that name."""
    found = SCENARIOS.get(name)
    if found is None:
        raise BarnabasError(f"there is no scenario {name!r}; there is {', '.join(SCENARIOS)}")
    if options.voters not in found.voters:
        raise BarnabasError(f"{name} runs with {_either(found.voters)} voters, not with {options.voters}")
    if options.depth not in found.depths:
        raise BarnabasError(f"{name} has the depths {_either(found.depths)}, not {options.depth!r}")
    module, _, attribute = found.place.partition(":")
    scenario: Scenario = getattr(import_module(module), attribute)(options)
    return scenario


def _either(values: Sequence[object]) -> str:
    return " or ".join(map(str, values))


def shortest_failing(scenario: Scenario, failed: SeedReport) -> SeedReport:
    """The run of a failed seed with the fewest first faults that fails still, with its story."""
    for limit in range(failed.fault_count):
        report = scenario.run(failed.seed, fault_limit=limit)
        if not report.is_clean:
            return scenario.run(failed.seed, fault_limit=limit, keep_story=True)
    return scenario.run(failed.seed, fault_limit=failed.fault_count, keep_story=True)
