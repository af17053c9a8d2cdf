"""A driver that is killed after its first batch was planned and before it was done: nothing is lost, wherever it began.

The driver runs from a virtual environment that nobody activated, without a word about the Python of its workers.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.testing import EmbeddedBroker
from tests.spark.rig import checkpoints, processes, queries, sessions
from tests.spark.source.held_queries import STARTS
from tests.spark.source.support import NewTopic, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.slow  # the stories of killed drivers begin with such a kill
def test_nothing_is_lost(spark: SparkSession, broker: EmbeddedBroker, new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    send(broker, topic, 5, value=b"before")
    variables = {
        name: value
        for name, value in {**os.environ, **sessions.environment(tmp_path)}.items()
        if name != "PYSPARK_PYTHON"
    }
    beside_python = str(Path(sys.executable).parent)
    variables["PATH"] = os.pathsep.join(
        folder for folder in os.environ["PATH"].split(os.pathsep) if folder != beside_python
    )
    driver = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.source.held_queries", broker.bootstrap_servers, topic, str(tmp_path)],
        env=variables,
    )
    held = [tmp_path / f"held-{start}" for start in STARTS]
    try:
        processes.wait_until(
            lambda: all(path.exists() and path.read_text() for path in held),
            "both queries are in their first batch",
            timeout_s=300,
            is_alive=lambda: driver.poll() is None,
        )
        assert [path.read_text() for path in held] == ["0 0", "0 5"]
        send(broker, topic, 3, value=b"after")
    finally:
        processes.kill(driver.pid, *processes.descendants(driver.pid))
        driver.wait()

    expected = {"latest": ["after"] * 3, "earliest": ["after"] * 3 + ["before"] * 5}
    for start in STARTS:
        checkpoint, table = tmp_path / f"checkpoint-{start}", tmp_path / f"table-{start}"
        assert (checkpoints.planned(checkpoint), checkpoints.commits(checkpoint)) == ([0], {})
        options = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "subscribe": topic,
            "startingOffsets": start,
        }
        queries.drain(queries.stream(spark, queries.OURS, options), checkpoint, table)
        assert queries.values(spark, table) == expected[start]
