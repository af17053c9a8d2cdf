"""`examples.raft_kv` survives what happens to processes. The long run: `python -m tests.raft.kv_faults --rounds 20`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.raft.kv_faults import FAULTS, faults_of, run
from tests.raft.linearizable import NotLinearizableError


def test_no_acknowledged_set_is_lost_and_no_get_goes_back(tmp_path: Path) -> None:
    seen = asyncio.run(run(tmp_path, ["kill leader", "cut leader"]))
    assert len(seen.history) > 50
    assert {name: len(times) for name, times in seen.fail_over_s.items()} == {"kill": 1, "cut": 1}


@pytest.mark.slow  # as long as three fail-overs in a row may take
def test_servers_that_read_without_asking_the_others_are_found_out(tmp_path: Path) -> None:
    with pytest.raises(NotLinearizableError, match="gets"):
        asyncio.run(run(tmp_path, ["cut leader"] * 3, plant="stale-reads"))


def test_every_kind_of_fault_is_in_a_long_run() -> None:
    assert set(faults_of(20, seed=1)) == {*FAULTS}
    assert len(faults_of(20, seed=1)) == 20
    assert faults_of(2, seed=1) == [*FAULTS][:2]
