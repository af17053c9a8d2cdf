"""The demo on Spark, once: what it wrote, found again in the table, among the dead letters and in the topic."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from barnabas.spark.demo.story import Click, Story
from tests.spark.rig import sessions

RATE, SEED = 100, 5
#: Of the project: how late a click may come, and how long a pause ends a session.
LATENESS_MS = PAUSE_MS = 300_000


def test_every_click_is_where_it_belongs(tmp_path: Path) -> None:
    reason = sessions.missing()
    if reason is not None:
        pytest.skip(reason)
    told = _run_demo(10, tmp_path / "kept")
    assert told["failure"] is None
    assert told["is_complete"]
    assert told["is_exact"]
    assert told["clicks"] > 500

    story = Story(seed=SEED, rate=RATE, start_ms=told["start_ms"]).clicks(told["clicks"])
    table = ds.dataset(tmp_path / "kept/tables/clicks", exclude_invalid_files=True).to_table()
    assert sorted(table["id"].to_pylist()) == sorted(click.id for click in story.clicks)
    assert told["dead_letters"] == sum(told["causes"].values()) == sum(story.flaws.values())
    assert {(user, began_at): clicks for user, began_at, clicks in told["sessions"]} == _sessions(story.clicks)
    assert set(told["flows"]) == {"clicks", "dead_letters", "users", "page_views", "sessions"}
    assert told["views"] > 5


def _run_demo(seconds: int, folder: Path) -> dict[str, Any]:
    """In a group of its own, so that whatever is left of it can be found."""
    command = [sys.executable, "-m", "tests.spark.demo.child", *map(str, (seconds, RATE, SEED, folder))]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        start_new_session=True,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def _sessions(clicks: Iterable[Click]) -> dict[tuple[str, str], int]:
    """Sessions as anybody would compute them; those that are over when the watermark has seen all clicks."""
    by_user: dict[str, list[list[int]]] = {}
    for click in sorted(clicks, key=lambda click: click.at_ms):
        visits = by_user.setdefault(click.user, [])
        if visits and click.at_ms <= visits[-1][-1] + PAUSE_MS:
            visits[-1].append(click.at_ms)
        else:
            visits.append([click.at_ms])
    watermark_ms = max(visit[-1] for visits in by_user.values() for visit in visits) - LATENESS_MS
    return {
        (user, _text(visit[0])): len(visit)
        for user, visits in by_user.items()
        for visit in visits
        if visit[-1] + PAUSE_MS <= watermark_ms
    }


def _text(at_ms: int) -> str:
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
