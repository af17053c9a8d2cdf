"""Quorums under faults: nothing that must hold breaks, a seed is a seed, and planted bugs are found.

`barnabas sim` runs many more seeds, `python -m tests.raft.planted` looks for all planted bugs.
"""

from __future__ import annotations

import pytest

from barnabas.testing.sim.raft_checkers import Invariant
from barnabas.testing.sim.scenarios import SCENARIOS, ScenarioOptions, SeedReport, load, shortest_failing
from tests.other_hashes import python_with_hash_seed
from tests.raft.planted import BUGS, find
from tests.sweeps import IS_FULL

#: Of the bugs, those that a few seeds find; `make test` looks for no others.
QUICK = [
    "votes_for_a_shorter_log",
    "half_is_a_majority",
    "claims_before_the_sync",
    "leader_counts_before_the_sync",
    "commits_an_older_epoch_by_counting",
    "high_watermark_beyond_the_log",
    "voter_with_an_old_disk",
]

#: One of those seeds in which disks are slow, and nothing else happens.
SLOW_SYNCS_SEED = 91


def run(seed: int, voters: int, depth: str) -> SeedReport:
    return load("raft", ScenarioOptions(voters, depth)).run(seed)


@pytest.mark.parametrize(
    ("voters", "depth", "count"),
    [(3, "model", 30), (5, "model", 12), (3, "whole", 8), (5, "whole", 3)],
)
def test_what_must_hold_holds_after_every_event(voters: int, depth: str, count: int) -> None:
    reports = [run(seed, voters, depth) for seed in range(1, (count * 10 if IS_FULL else count) + 1)]
    assert [(each.seed, each.broken, each.problem) for each in reports if not each.is_clean] == []
    assert sum(each.counts["elections"] for each in reports) > len(reports)
    assert sum(each.counts["acknowledged"] for each in reports) > 10 * len(reports)


@pytest.mark.parametrize("depth", ["model", "whole"])
def test_a_seed_gives_one_trace_in_every_process(depth: str) -> None:
    traces = [run(seed, 3, depth).trace for seed in (3, 4)]
    assert traces == [run(seed, 3, depth).trace for seed in (3, 4)]
    assert len(set(traces)) == 2
    for hash_seed in ("1", "4242"):
        assert traces == in_another_process(depth, hash_seed)


def in_another_process(depth: str, hash_seed: str) -> list[str]:
    code = (
        "import sys; from tests.raft.test_raft_simulation import run; "
        f"print(*(run(seed, 3, {depth!r}).trace for seed in (3, 4)))"
    )
    return python_with_hash_seed(hash_seed, "-c", code).split()


def test_the_story_changes_nothing() -> None:
    scenario = load("raft", ScenarioOptions())
    report = scenario.run(5, keep_story=True)
    assert report.trace == scenario.run(5).trace
    assert any("leads in epoch" in line for line in report.story)


def test_there_are_many_planted_bugs_each_with_a_word_on_it() -> None:
    assert len(BUGS) >= 12
    assert all(bug.text for bug in BUGS.values())


@pytest.mark.parametrize("name", QUICK)
def test_planted_bugs_are_found(name: str) -> None:
    report = find(name, seeds=range(1, 21))
    assert report is not None, f"{name} was not found in 20 seeds"


def test_a_follower_that_is_silent_while_it_syncs_is_found_where_nothing_else_happens() -> None:
    report = find("does_not_fetch_while_it_syncs", seeds=[SLOW_SYNCS_SEED])
    assert report is not None
    assert report.broken == Invariant.SLOW_SYNCS_MOVE_NOBODY.value
    assert run(SLOW_SYNCS_SEED, 3, "model").is_clean


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(BUGS) - set(QUICK)))
def test_planted_bugs_that_hide_are_found_too(name: str) -> None:
    assert find(name) is not None


def test_a_failure_comes_with_the_fewest_faults_and_a_story() -> None:
    found = find("voter_with_an_old_disk")
    assert found is not None
    with BUGS["voter_with_an_old_disk"].plant():
        shortest = shortest_failing(load("raft", ScenarioOptions()), found)
        fewer = load("raft", ScenarioOptions()).run(found.seed, fault_limit=shortest.fault_count - 1)
    assert 0 < shortest.fault_count <= found.fault_count
    assert not shortest.is_clean
    assert fewer.is_clean
    assert any("comes back with its disk as it was" in line for line in shortest.plan)
    assert any(line.split("  ")[-1].startswith("FAULT: ") for line in shortest.story)


def test_scenarios_say_what_they_can_be_asked_for() -> None:
    assert set(SCENARIOS) >= {"raft"}
    for name, options, text in [
        ("rafd", ScenarioOptions(), "there is no scenario 'rafd'; there is raft, quorum"),
        ("raft", ScenarioOptions(4), "raft runs with 3 or 5 voters, not with 4"),
        ("raft", ScenarioOptions(3, "deep"), "raft has the depths model or whole, not 'deep'"),
    ]:
        with pytest.raises(Exception, match=text):
            load(name, options)
