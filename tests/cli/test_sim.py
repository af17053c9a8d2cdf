"""`barnabas sim`: seeds, failures with a story, and a ledger that can be resumed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from barnabas.cli.sim_ledger import Ledger, LedgerKey, current_commit
from tests.cli.tools import Tools
from tests.raft.planted import BUGS


def test_a_clean_seed_tells_its_plan_and_its_trace(barnabas: Tools) -> None:
    told = barnabas("sim", "--seed", "5")
    assert told.code == 0
    assert " faults:\n" in told.out
    assert "seed 5 is clean: " in told.out
    assert told.out.splitlines()[-1].startswith("trace ")
    assert barnabas("sim", "--seed", "5") == told


def test_a_story_is_told_in_words_on_request(barnabas: Tools) -> None:
    told = barnabas("sim", "--seed", "5", "--story", "--faults", "0")
    assert "No faults." in told.out
    assert " leads in epoch " in told.out
    assert " grants " in told.out


def test_many_seeds_end_with_their_speed(barnabas: Tools) -> None:
    told = barnabas("sim", "--seeds", "1..4")
    assert told.code == 0
    assert told.out.startswith("4 seeds, 0 failed; ")
    assert "virtual s per s" in told.out


def test_a_failing_seed_tells_the_invariant_the_faults_and_how_to_run_it_again(barnabas: Tools) -> None:
    with BUGS["voter_with_an_old_disk"].plant():
        told = barnabas("sim", "--seeds", "1..40")
        assert told.code == 1
        lines = told.out.splitlines()
        assert any(line.startswith("  broken: ") for line in lines)
        assert any(line.startswith("What happened") for line in lines)
        again = lines[-1].removeprefix("Again: barnabas ")
        assert again.startswith("sim --scenario raft --seed ")
        assert barnabas(*again.split()).code == 1


def test_seeds_of_a_ledger_are_not_run_twice(barnabas: Tools, tmp_path: Path) -> None:
    path = tmp_path / "seeds.jsonl"
    assert "3 seeds, 0 failed" in barnabas("sim", "--seeds", "1..3", "--ledger", str(path)).out
    told = barnabas("sim", "--seeds", "1..5", "--ledger", str(path))
    assert "2 seeds, 0 failed" in told.out
    assert f"{path}: 5 clean seeds of this commit, 0 that failed" in told.out
    assert "0 seeds, 0 failed" in barnabas("sim", "--seeds", "2..4", "--ledger", str(path)).out
    assert "1 seeds, 0 failed" in barnabas("sim", "--seeds", "1..1", "--voters", "5", "--ledger", str(path)).out
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(each["first"], each["last"], each["clean"], each["voters"]) for each in entries] == [
        (1, 3, 3, 3),
        (4, 5, 2, 3),
        (1, 1, 1, 5),
    ]


@pytest.mark.slow
def test_several_processes_run_the_same_seeds(barnabas: Tools, tmp_path: Path) -> None:
    path = tmp_path / "seeds.jsonl"
    told = barnabas("sim", "--seeds", "1..50", "--jobs", "2", "--ledger", str(path))
    assert told.code == 0
    assert "50 seeds, 0 failed" in told.out


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("", "say which seeds"),
        ("--seeds 5", "write it as A..B"),
        ("--seeds 9..3", "it ends before it begins"),
        ("--seeds 9..", "without an end it needs --minutes"),
        ("--seed 1 --seeds 1..2", "it takes neither --seeds nor --minutes"),
        ("--seeds 1..2 --story", "are for one --seed"),
        ("--scenario rafd --seed 1", "there is no scenario 'rafd'"),
        ("--seed 1 --voters 4", "3 or 5 voters, not with 4"),
        ("--seed 1 --depth deep", "'deep' is not one of 'model', 'whole'"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(barnabas: Tools, call: str, text: str) -> None:
    told = barnabas("sim", *call.split())
    assert told.code in (1, 2)
    assert text in told.err


def test_a_ledger_counts_by_commit_and_runs_failures_again(tmp_path: Path) -> None:
    path = tmp_path / "seeds.jsonl"
    key = LedgerKey("abc", "raft", 3, "model")
    Ledger(path, key).add([1, 2, 3, 7, 8], [2])
    assert [json.loads(line)["failed"] for line in path.read_text().splitlines()] == [[2], []]
    again = Ledger(path, key)
    assert (again.clean_count, again.failed) == (4, [2])
    assert list(again.without_done(range(1, 10))) == [2, 4, 5, 6, 9]
    again.add([2], [])
    assert (again.clean_count, again.failed) == (5, [])
    assert list(Ledger(path, LedgerKey("other", "raft", 3, "model")).without_done([1])) == [1]


def test_a_file_that_is_no_ledger_is_refused(barnabas: Tools, tmp_path: Path) -> None:
    path = tmp_path / "seeds.jsonl"
    path.write_text('{"commit": 1}\n')
    told = barnabas("sim", "--seeds", "1..1", "--ledger", str(path))
    assert told.code == 1
    assert "seeds.jsonl, line 1: no entry of a ledger" in told.err


def test_the_commit_of_what_runs_is_known() -> None:
    assert current_commit()
