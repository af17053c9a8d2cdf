"""The demo on Spark, once: what it wrote, found again in the table, among the dead letters and in the topic."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from barnabas.spark.demo.counting import sessions_of
from barnabas.spark.demo.story import Story
from tests.oracles import other_process
from tests.spark.rig import checkpoints, sessions

RATE, SEED = 100, 5
#: Twelve minutes of the story, so that some sessions are over.
FEWEST_CLICKS = 600
#: For a machine that does much else. What is not done by then is stuck.
LONGEST_S = 600


@other_process(sessions.missing())
def test_every_click_is_where_it_belongs(tmp_path: Path) -> None:
    check(tmp_path / "kept", run_demo(tmp_path / "kept"))


@pytest.mark.slow
@other_process(sessions.missing())
def test_it_is_so_when_the_driver_is_killed_on_the_way(tmp_path: Path) -> None:
    told = run_demo(tmp_path / "kept", kills=2)
    assert told["restarts"] == 2
    check(tmp_path / "kept", told)


def check(folder: Path, told: dict[str, Any]) -> None:
    """All is counted again, beside what the demo itself has counted."""
    assert told["failure"] is None
    assert told["is_complete"]
    assert told["is_exact"]
    assert told["clicks"] >= FEWEST_CLICKS
    # The second update went on where the first had ended.
    assert told["updates"] >= 2
    assert 0 < told["rows_of_first_update"] < told["clicks"] - told["broken"]

    story = Story(seed=SEED, rate=RATE, start_ms=told["start_ms"]).clicks(told["clicks"])
    # By the list of files that count: a batch that was broken off leaves others.
    table = ds.dataset([str(path) for path in checkpoints.files_of_table(folder / "tables/clicks")]).to_table()
    assert sorted(table["id"].to_pylist()) == sorted(click.id for click in story.clicks)
    assert told["dead_letters"] == sum(told["causes"].values()) == sum(story.flaws.values())
    assert told["sessions"]
    assert {(user, began_at): clicks for user, began_at, clicks in told["sessions"]} == sessions_of(story.clicks)
    assert set(told["flows"]) == {"clicks", "dead_letters", "users", "page_views", "sessions"}
    assert told["views"] > 5


def run_demo(folder: Path, kills: int = 0) -> dict[str, Any]:
    """In a group of its own, so that Spark ends with it however it ends."""
    arguments = map(str, (FEWEST_CLICKS, RATE, SEED, folder, kills))
    command = [sys.executable, "-m", "tests.spark.demo.child", *arguments]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        start_new_session=True,
    ) as child:
        try:
            _, err = child.communicate(timeout=LONGEST_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
    assert child.returncode == 0, err
    told = dict(json.loads(Path(f"{folder}.json").read_text()))
    # Shown if the test fails: where the time went.
    sys.stdout.write("".join(f"{at_s:6.1f} s  {what}\n" for what, at_s in told["times"].items()))
    return told
