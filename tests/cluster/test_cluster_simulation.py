"""Replicated topics under faults, with our own clients: what must hold holds, and planted bugs are found.

`barnabas sim --scenario cluster` runs many more seeds, `python -m tests.cluster.planted_replication` looks for all
planted bugs.
"""

from __future__ import annotations

import pytest

from barnabas.testing.sim.scenarios import ScenarioOptions, SeedReport, load
from tests.cluster.planted_replication import PLANTED
from tests.cluster.planting import some_every_day, trace_in_another_process
from tests.sweeps import IS_FULL

#: So many in each test, which run side by side.
PER_TEST = 5
SEEDS = 400 if IS_FULL else 40

#: The bugs, each with a seed that finds it.
QUICK = {
    "acknowledges_before_replication": 1,
    "counts_what_was_sent": 1,
    "expands_too_early": 5,
    "believes_former_lives": 31,
    "forgets_maximal_isr": 1,
    "shrinks_alone": 1,
    "applies_stale_answers": 59,
    "acknowledges_after_the_epoch": 1,
    "commits_below_min_isr": 17,
    "shows_what_is_not_committed": 3,
    "truncates_to_the_high_watermark": 5,
    "skips_the_diverging_epoch": 1,
    "trusts_the_log_after_a_start": 2,
    "followers_forget_producers": 1,
    "forgets_producers_when_cut": 5,
    "remembers_what_was_cut_off": 5,
    "trusts_after_an_unclean_stop": 13,
    "elects_anybody": 3,
    "answers_commits_at_once": 3,
    "more_power_losses_than_promised": 3,
}


def run(seed: int) -> SeedReport:
    return load("cluster", ScenarioOptions(3, "whole")).run(seed)


@pytest.mark.parametrize("first", range(1, SEEDS + 1, PER_TEST))
def test_what_must_hold_holds(first: int) -> None:
    reports = [run(seed) for seed in range(first, first + PER_TEST)]
    assert [(each.seed, each.broken, each.problem) for each in reports if not each.is_clean] == []
    assert sum(each.counts["acknowledged"] for each in reports) > 100 * len(reports)
    assert sum(each.counts["commits"] for each in reports) > 10 * len(reports)


def test_a_seed_gives_one_trace_in_every_process() -> None:
    trace = run(7).trace
    assert trace != run(5).trace
    for hash_seed in ("1", "4242"):
        assert trace == trace_in_another_process("cluster", 7, hash_seed)


@pytest.mark.parametrize("name", some_every_day(QUICK))
def test_planted_bugs_are_found(name: str) -> None:
    assert PLANTED.find(name, [QUICK[name]]) is not None


def test_every_planted_bug_is_looked_for() -> None:
    assert set(QUICK) == set(PLANTED.bugs)
