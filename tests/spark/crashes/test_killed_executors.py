"""The short form of the stories of killed executors; `python -m tests.spark.crashes` has the full one."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.testing import EmbeddedBroker
from tests.oracles import other_process
from tests.spark.crashes import stories
from tests.spark.rig import sessions

# `make test` has no time for it: Spark is started and killed again and again.
pytestmark = [other_process(sessions.missing()), pytest.mark.slow]


def test_an_executor_and_a_worker_that_are_killed_with_a_task_lose_nothing(
    tmp_path: Path, broker: EmbeddedBroker
) -> None:
    """On a Spark of several processes, from a virtual environment that is not activated."""
    stories.killed_executors(tmp_path, broker, seed=1, kills=2)
