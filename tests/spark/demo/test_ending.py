"""How the demo begins and ends, with something in place of Spark that takes its time."""

from __future__ import annotations

import re
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from barnabas.spark.demo import running
from barnabas.spark.demo.picture import Picture
from barnabas.spark.demo.running import Demo, DemoOptions
from barnabas.spark.pipelines import Project
from barnabas.spark.pipelines.failures import PipelineError
from barnabas.spark.pipelines.reporting import FlowState, FlowStatus, Reporter, Summary, UpdateResult
from barnabas.spark.pipelines.templates import ProjectExistsError


class SlowSpark:
    """Begins an update, and after it is told to stop ends only when it is let go."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, at_end: Callable[[Project], None] = lambda project: None
    ) -> None:
        self.let_go = threading.Event()
        self.is_told_to_stop = False
        self.settings: Mapping[str, str] = {}
        self._at_end = at_end
        monkeypatch.setattr(running, "run_project", self._run)

    def _run(
        self, project: Project, *, settings: Mapping[str, str], reporter: Reporter, stop: threading.Event, **_: Any
    ) -> None:
        self.settings = settings
        reporter.update_started(1)
        reporter.flow_changed(FlowState("clicks", FlowStatus.RUNNING, rows=5))
        stop.wait()
        self.is_told_to_stop = True
        self.let_go.wait()
        self._at_end(project)
        reporter.update_ended(1, Summary(UpdateResult.STOPPED, 1.0))


def test_clicks_stop_at_once_and_the_screen_goes_on_while_spark_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    spark, stop = SlowSpark(monkeypatch), threading.Event()
    stopping: list[Picture] = []

    def show(picture: Picture) -> None:
        if picture.clicks > 10:
            stop.set()
        if picture.phase == "stopping Spark":
            assert spark.is_told_to_stop or not stopping
            stopping.append(picture)
        if len(stopping) == 3:
            spark.let_go.set()

    outcome = Demo(DemoOptions(), show).run(stop)
    assert len(stopping) >= 3
    assert {picture.clicks for picture in stopping} == {outcome.written.clicks}
    assert (outcome.broken_off, outcome.is_complete, outcome.picture.updates) == (1, False, 0)
    # One that lasts: a driver that comes back after a kill must know the tables.
    assert "spark.sql.catalogImplementation" not in spark.settings


def test_what_an_update_had_written_when_it_was_broken_off_is_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def write(project: Project) -> None:
        table = tmp_path / "kept" / "tables" / "clicks"
        table.mkdir(parents=True)
        pq.write_table(pa.table({"id": [1, 2, 3]}), table / "part-0.parquet")

    spark, stop = SlowSpark(monkeypatch, write), threading.Event()
    spark.let_go.set()

    def show(picture: Picture) -> None:
        if picture.flows:
            stop.set()

    outcome = Demo(DemoOptions(keep=tmp_path / "kept"), show).run(stop)
    assert outcome.picture.table_rows == outcome.distinct_clicks == 3
    # Who goes on with the project finds its tables.
    assert "spark.sql.catalogImplementation" not in spark.settings


def test_a_spark_that_is_gone_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it was killed while it started."""
    starts, stop = [0], threading.Event()

    def dies_twice(project: Project, *, reporter: Reporter, **_: Any) -> Summary:
        starts[0] += 1
        if starts[0] == 2:
            raise PipelineError("Spark does not start: its process has ended")
        reporter.update_started(1)
        if starts[0] < 4:
            summary = Summary(UpdateResult.FAILED, 1.0, failure="Spark ended by itself", is_spark_gone=True)
        else:
            stop.set()
            summary = Summary(UpdateResult.COMPLETED, 1.0)
        reporter.update_ended(1, summary)
        return summary

    monkeypatch.setattr(running, "run_project", dies_twice)
    outcome = Demo(DemoOptions(), lambda picture: None).run(stop)
    assert (starts, outcome.restarts, outcome.failure) == ([4], 3, None)


def test_a_log_that_the_failure_names_is_there_afterwards(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def fails(project: Project, **_: Any) -> None:
        log = project.working_folder / "spark.log"
        log.parent.mkdir()
        log.write_text("why")
        raise PipelineError(f"Spark does not start (see {log}): it fails")

    monkeypatch.setattr(running, "run_project", fails)
    outcome = Demo(DemoOptions(), lambda picture: None).run(threading.Event())
    found = re.search(r"\(see (.+)\)", str(outcome.failure))
    assert found is not None
    assert Path(found[1]).read_text() == "why"
    # Nothing else is.
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [Path(found[1])]


def test_nothing_is_there_afterwards_if_the_failure_says_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def fails(project: Project, **_: Any) -> None:
        raise PipelineError("flow clicks failed: why")

    monkeypatch.setattr(running, "run_project", fails)
    assert Demo(DemoOptions(), lambda picture: None).run(threading.Event()).failure is not None
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_something_in_it_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(running, "EmbeddedBroker", None)
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(ProjectExistsError, match="is not empty"):
        Demo(DemoOptions(keep=tmp_path), lambda picture: None).run(threading.Event())
