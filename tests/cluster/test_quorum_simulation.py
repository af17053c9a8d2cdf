"""Clusters under faults: what was acknowledged stays, nodes agree, and planted bugs are found.

`barnabas sim --scenario quorum` runs many more seeds, `python -m tests.cluster.planted` looks for all planted bugs.
"""

from __future__ import annotations

import pytest

from barnabas.broker.controller import early_fencing
from barnabas.testing.sim.quorum_flapping import run_flapping
from barnabas.testing.sim.scenarios import ScenarioOptions, SeedReport, load
from tests.cluster.planted import PLANTED
from tests.cluster.planting import trace_in_another_process
from tests.sweeps import IS_FULL

#: The bugs, each with a seed that finds it.
QUICK = {
    "answers_before_commit": 11,
    "success_after_the_lead_was_lost": 11,
    "creates_again": 1,
    "unfences_too_early": 1,
    "fenced_brokers_stay_so": 1,
    "standby_answers": 3,
    "never_rolls_back": 2,
}


def run(seed: int) -> SeedReport:
    return load("quorum", ScenarioOptions(3, "whole")).run(seed)


def test_what_must_hold_holds() -> None:
    reports = [run(seed) for seed in range(1, 201 if IS_FULL else 11)]
    assert [(each.seed, each.broken, each.problem) for each in reports if not each.is_clean] == []
    assert sum(each.counts["elections"] for each in reports) > len(reports)
    assert sum(each.counts["acknowledged"] for each in reports) > 10 * len(reports)


def test_a_seed_gives_one_trace_in_every_process() -> None:
    trace = run(7).trace
    assert trace != run(5).trace
    for hash_seed in ("1", "4242"):
        assert trace == trace_in_another_process("quorum", 7, hash_seed)


@pytest.mark.parametrize("name", QUICK)
def test_planted_bugs_are_found(name: str) -> None:
    assert PLANTED.find(name, [QUICK[name]]) is not None


def test_every_planted_bug_is_looked_for() -> None:
    assert set(QUICK) == set(PLANTED.bugs)


@pytest.mark.parametrize("brokers", [0, 2])
def test_connections_that_come_back_in_time_move_no_leader(brokers: int) -> None:
    report = run_flapping(1, minutes=10 if IS_FULL else 1, brokers=brokers)
    assert report.resets >= 2 * report.virtual_s / 1.1
    assert (report.fenced, report.elections, report.moved_at_s) == (0, 0, ())


def test_connections_that_come_back_late_fence_at_most_once_a_minute() -> None:
    report = run_flapping(2, minutes=10 if IS_FULL else 2, brokers=2, cut_s=0.8)
    assert 1 <= report.fenced <= report.virtual_s / 60


def test_fencing_without_a_grace_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_fencing, "OWN_GRACE_MS", 0)
    report = run_flapping(1, minutes=0.3, brokers=2, cut_s=0.01)
    assert report.fenced
