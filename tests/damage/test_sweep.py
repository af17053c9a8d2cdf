"""A part of the damage sweep: no file may be damaged in silence. `python -m tests.damage.sweep` does all of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final, get_args

import pytest

from tests.damage.filling import PLAIN, After, Filled, fill
from tests.damage.judging import Outcome, judge
from tests.damage.mutations import Mutation, all_mutations, file_kind
from tests.damage.undetectable import UNDETECTABLE, why_undetectable

#: Each so manieth damage of the files of partitions, and of all the others.
EVERY: Final = {"metadata": 11, "others": 67}

UNTOUCHED_FILES: Final = Mutation("nothing", ("/data/nothing",), dict)


@pytest.fixture(scope="module", params=get_args(After))
def filled(request: pytest.FixtureRequest) -> Filled:
    after: After = request.param
    return fill(after)


def is_metadata(mutation: Mutation) -> bool:
    return "/__cluster_metadata" in mutation.path or mutation.path.count("/") == 2


def test_what_is_not_damaged_is_right(filled: Filled) -> None:
    verdict = judge(filled, UNTOUCHED_FILES)
    assert (verdict.outcome, verdict.why) == (Outcome.RIGHT, "")


@pytest.mark.parametrize("part", EVERY)
def test_no_damage_is_silent(filled: Filled, part: str) -> None:
    mutations = [each for each in all_mutations(filled.contents) if is_metadata(each) == (part == "metadata")]
    verdicts = [judge(filled, each) for each in mutations[:: EVERY[part]]]
    silent = [each for each in verdicts if each.outcome.is_bad and why_undetectable(each) is None]
    assert {str(each.mutation): each.why for each in silent} == {}


def test_the_sweep_knows_every_file_of_the_directory(filled: Filled) -> None:
    paths = {each.path for each in all_mutations(filled.contents)}
    files = {path for path, content in filled.contents.items() if content is not None}
    assert files - paths == {"/data/.lock"}
    kinds = {file_kind(path) for path in paths}
    assert {"metadata .log", "metadata .checkpoint", "offsets .log", "compacted .log", "partition .log"} <= kinds
    assert {"meta.properties", "recovery-point-offset-checkpoint", "metadata-committed-offset"} <= kinds


def test_commits_that_are_gone_without_a_word_are_found_out(filled: Filled) -> None:
    """The judge itself: the node is asked for a commit that it never had."""
    account = {**filled.truth.account, ("commits", "nobody"): {PLAIN[0]: 7}}
    demanding = replace(filled, truth=replace(filled.truth, account=account))
    verdict = judge(demanding, UNTOUCHED_FILES)
    assert verdict.outcome is Outcome.SILENT
    assert "commits of nobody" in verdict.why


def test_what_cannot_be_noticed_is_told_in_the_docs() -> None:
    gaps = (Path(__file__).parents[2] / "docs" / "gaps.md").read_text()
    assert [each.name for each in UNDETECTABLE if each.name.lower() not in gaps.lower()] == []
