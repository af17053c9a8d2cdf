"""A loop that reads, computes and writes in transactions, under faults: what must hold holds, and bugs are found.

`barnabas sim --scenario transactions` runs many more seeds, `python -m tests.cluster.planted_transactions` looks for
all planted bugs.
"""

from __future__ import annotations

import os

import pytest

from barnabas.testing.sim.scenarios import ScenarioOptions, SeedReport, load
from tests.cluster.planted_transactions import PLANTED
from tests.cluster.planting import some_every_day, trace_in_another_process

IS_FULL = os.environ.get("BARNABAS_SWEEP") == "full"
#: So many in each test, which run side by side.
PER_TEST = 5
SEEDS = 400 if IS_FULL else 30

#: The bugs, each with a seed that finds it.
QUICK = {
    "answers_before_the_decision_is_committed": 1,
    "sends_markers_before_the_decision_is_committed": 3,
    "completes_before_the_markers_are_written": 3,
    "forgets_what_was_prepared": 1,
    "fences_nobody": 6,
    "times_out_without_fencing": 2,
    "ends_whatever_epoch_is_named": 4,
    "believes_former_coordinators": 5,
    "commits_what_was_aborted": 1,
    "sends_markers_once": 16,
    "acknowledges_markers_at_once": 14,
    "skips_verification": 2,
    "followers_forget_what_was_aborted": 24,
    "is_stable_before_replication": 3,
    "shows_what_is_open": 2,
    "shows_pending_offsets": 1,
    "tells_unstable_offsets": 22,
    "takes_offsets_of_former_members": 13,
    "commits_before_records_are_acknowledged": 2,
    "commits_as_nobody_after_falling_out": 13,
}


def run(seed: int) -> SeedReport:
    return load("transactions", ScenarioOptions(3, "whole")).run(seed)


@pytest.mark.parametrize("first", range(1, SEEDS + 1, PER_TEST))
def test_what_must_hold_holds(first: int) -> None:
    reports = [run(seed) for seed in range(first, first + PER_TEST)]
    assert [(each.seed, each.broken, each.problem) for each in reports if not each.is_clean] == []
    assert sum(each.counts["committed"] for each in reports) > 5 * len(reports)
    assert sum(each.counts["read"] for each in reports) > 50 * len(reports)


def test_seeds_have_what_transactions_can_meet() -> None:
    counts = [run(seed).counts for seed in (7, 17)]
    for what in ("committed", "aborted", "fenced", "died", "late", "leaders"):
        assert sum(each[what] for each in counts), what


@pytest.mark.slow  # that of the scenario "cluster" is looked at every day
def test_a_seed_gives_one_trace_in_every_process() -> None:
    trace = run(7).trace
    assert trace != run(5).trace
    for hash_seed in ("1", "4242"):
        assert trace == trace_in_another_process("transactions", 7, hash_seed)


@pytest.mark.parametrize("name", some_every_day(QUICK))
def test_planted_bugs_are_found(name: str) -> None:
    assert PLANTED.find(name, [QUICK[name]]) is not None


def test_every_planted_bug_is_looked_for() -> None:
    assert set(QUICK) == set(PLANTED.bugs)
