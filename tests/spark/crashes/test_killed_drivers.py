"""The short form of the stories of killed drivers; `python -m tests.spark.crashes` has the full one."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.testing import EmbeddedBroker
from tests.oracles import other_process
from tests.spark.crashes import stories
from tests.spark.rig import sessions

# `make test` has no time for it: Spark is started and killed again and again.
pytestmark = [other_process(sessions.missing()), pytest.mark.slow]


def test_a_driver_that_is_killed_in_its_first_batch_and_later_loses_nothing(
    tmp_path: Path, broker: EmbeddedBroker
) -> None:
    stories.killed_drivers(tmp_path, broker, seed=1, kills=2)
