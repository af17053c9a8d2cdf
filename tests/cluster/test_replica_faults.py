"""A leader fails while clients write: others lead, and no acknowledged record is lost.

A short form; `python -m tests.cluster.replica_faults --rounds 20` does all of it many times.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.replica_faults import play
from tests.oracles import needs_kafka


@pytest.mark.slow
@needs_kafka()
def test_no_acknowledged_record_is_lost(tmp_path: Path) -> None:
    seen, count = play(tmp_path, ["kill", "pause", "cut", "full"])
    assert {each.fault for each in seen} >= {"kill", "pause", "cut"}
    assert count > 1000
