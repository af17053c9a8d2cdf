"""A Spark of several processes, from a virtual environment that nobody activated."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas import Consumer
from barnabas.testing import EmbeddedBroker
from tests.oracles import ROOT
from tests.spark.rig import sessions
from tests.spark.rig.contents import number

pytestmark = pytest.mark.skipif(sessions.missing() is not None, reason=sessions.missing() or "")


def test_a_topic_is_read_and_written_by_all_executors_with_the_running_interpreter(
    broker: EmbeddedBroker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    source, target = new_topic(4), new_topic(1)
    number(broker.bootstrap_servers, source, range(2000), 4)
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.cluster.program", broker.bootstrap_servers, source, target, str(tmp_path)],
        env=sessions.not_activated(),
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout)
    assert told["rows"] == 2000
    assert [python for _, python in told["workers"]] == [sys.executable] * 2
    with Consumer(target, bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        written: list[bytes | None] = []
        while len(written) < 2000:
            records = consumer.poll(10)
            assert records, f"only {len(written)} rows were written"
            written += [record.value for record in records]
    assert sorted(map(int, filter(None, written))) == list(range(2000))
