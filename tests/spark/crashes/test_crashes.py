"""The short form of the crash stories; `python -m tests.spark.crashes` has the full one."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.testing import EmbeddedBroker
from tests.spark.crashes import stories
from tests.spark.rig import sessions

pytestmark = pytest.mark.skipif(sessions.missing() is not None, reason=sessions.missing() or "")


def test_a_killed_driver_loses_nothing(tmp_path: Path, broker: EmbeddedBroker) -> None:
    stories.killed_drivers(tmp_path, broker, seed=1, kills=2)


def test_killed_executors_and_workers_lose_nothing(tmp_path: Path, broker: EmbeddedBroker) -> None:
    """On a Spark of several processes, from a virtual environment that is not activated."""
    stories.killed_executors(tmp_path, broker, seed=1, kills=2)
