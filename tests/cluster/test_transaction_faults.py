"""Nodes and workers die while orders are worked off in transactions: each has one total.

A short form; `python -m tests.cluster.transaction_faults --rounds 20` does all of it many times.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.transaction_faults import FAULTS, play


def test_a_node_and_a_worker_die(tmp_path: Path) -> None:
    seen, count = play(tmp_path, ["kill", "kill a worker"])
    assert [each.fault for each in seen] == ["kill", "kill a worker"]
    assert count > 500


@pytest.mark.slow
def test_every_fault(tmp_path: Path) -> None:
    seen, _ = play(tmp_path, FAULTS)
    assert len(seen) == len(FAULTS)
