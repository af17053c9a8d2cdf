"""`barnabas pipeline`: what it is called with, what it prints, how it ends. Spark is played by a function."""

from __future__ import annotations

import io
import json
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli import output
from barnabas.cli.pipeline_shown import AsLines, AsTable, flow_table
from barnabas.spark.pipelines import running, server
from barnabas.spark.pipelines.failures import PipelineError
from barnabas.spark.pipelines.graph import SINK, TABLE, Dataset, Flow, Graph
from barnabas.spark.pipelines.project import Project
from barnabas.spark.pipelines.reporting import FlowState, FlowStatus, Reporter, Summary, Table, UpdateResult
from tests.cli.tools import Tools

GRAPH = Graph(
    {
        "clicks": Dataset("clicks", TABLE, "t/a.py:3", "parquet"),
        "out": Dataset("out", SINK, "t/a.py:9", "barnabas"),
    },
    {
        "clicks": Flow("clicks", "clicks", "t/a.py:3", ("barnabas: clicks",)),
        "one": Flow("one", "out", "t/a.py:10", ("clicks",)),
        "two": Flow("two", "out", "t/a.py:14", ("clicks", "users")),
    },
)
CLICKS = FlowState("clicks", FlowStatus.RUNNING, 1500, None, 250.4, 500, 0.62, 3, 12, {"has a user": 12, "is short": 0})
DONE = FlowState("clicks", FlowStatus.COMPLETED, 2000, None, 250.4, 0, 0.62, 4, 12, {"has a user": 12, "is short": 0})
SUMMARY = Summary(UpdateResult.COMPLETED, 4.21, (DONE,), (Table("clicks"), Table("views", 1234)), bad_records=12)


class FakeSpark:
    """Stands for `run_project`: remembers how it was called, tells a short story, returns a summary."""

    def __init__(self) -> None:
        self.summary = SUMMARY
        self.calls: list[dict[str, Any]] = []
        self.meanwhile: Callable[[threading.Event], None] = lambda stop: None

    def __call__(self, project: Project, *, reporter: Reporter, stop: threading.Event, **options: Any) -> Summary:
        self.calls.append({"project": project.name, **options})
        reporter.said("starting Spark at local[*]")
        reporter.update_started(1)
        reporter.defined(GRAPH)
        if not options["is_dry"]:
            reporter.flow_changed(FlowState("clicks", FlowStatus.QUEUED))
            reporter.flow_changed(CLICKS)
        self.meanwhile(stop)
        reporter.update_ended(1, self.summary)
        return self.summary


@pytest.fixture(autouse=True)
def everything_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "check_installed", lambda: None)


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> FakeSpark:
    fake = FakeSpark()
    monkeypatch.setattr(running, "run_project", fake)
    return fake


@pytest.fixture
def project(tmp_path: Path) -> str:
    (tmp_path / "spark-pipeline.yml").write_text("name: toy\nstorage: s\nlibraries: [{glob: {include: a.py}}]\n")
    (tmp_path / "a.py").write_text("")
    return str(tmp_path)


def test_a_run_tells_lines_and_a_summary(barnabas: Tools, spark: FakeSpark, project: str) -> None:
    told = barnabas("pipeline", "run", project)
    assert told.code == 0
    assert "clicks: 1,500 rows in, 250 rows/s, lag 500, batch 0.6 s" in told.err
    assert told.out.splitlines() == [
        "flow    state      in     out  rows/s  lag  batch  bad",
        "clicks  completed  2,000       250     0    0.6 s  12",
        "clicks: 12 rows break the rule: has a user",
        "tables written: clicks, views (1,234 rows)",
        "update completed in 4.2 s, 12 bad records",
        "exactly once: clicks; at least once: one, two",
    ]


def test_options_reach_spark(barnabas: Tools, spark: FakeSpark, project: str) -> None:
    call = "--master spark://host:7077 --every 1m --refresh a,b --refresh c --full-refresh d --conf spark.x=a=b -v"
    assert barnabas("pipeline", "run", project, *call.split()).code == 0
    (options,) = spark.calls
    assert options | {"settings": dict(options["settings"])} == {
        "project": "toy",
        "master": "spark://host:7077",
        "settings": {"spark.x": "a=b"},
        "is_dry": False,
        "every_s": 60.0,
        "outlasts_failures": True,
        "refresh": ["a", "b", "c"],
        "full_refresh": ["d"],
        "full_refresh_all": False,
        "is_verbose": True,
    }


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("5s", 5.0), ("5", 5.0), ("1.5m", 90.0), ("2 h", 7200.0)]
)
def test_times_are_written_as_people_do(
    barnabas: Tools, spark: FakeSpark, project: str, text: str, seconds: float
) -> None:
    barnabas("pipeline", "run", project, "--every", text)
    assert spark.calls[0]["every_s"] == seconds


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("--every soon", "--every soon: write a time, as in 500ms, 5s, 1m, 2h"),
        ("--every 0s", "--every 0s: it must be some time"),
        ("--every 9999999h", "--every 9999999h: nobody can wait so long"),
        ("--full-refresh-all --refresh a", "--full-refresh-all is for all tables"),
        ("--refresh ''", "--refresh '' names no table"),
        ("--refresh a --refresh ,", "--refresh , names no table"),
        ("--full-refresh , ", "--full-refresh , names no table"),
        ("--conf spark.master=yarn", "--conf spark.master: where Spark runs is said by --master"),
        ("--conf spark.connect.grpc.binding.port=15002", "binding.port: this is not for others to set"),
    ],
)
def test_wrong_calls_are_told(barnabas: Tools, spark: FakeSpark, project: str, call: str, told: str) -> None:
    found = barnabas("pipeline", "run", project, *shlex.split(call))
    assert found.code == 2
    assert told in found.err
    assert not spark.calls


def test_a_closed_output_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert not output.is_terminal()


def test_programs_get_one_line_per_event(barnabas: Tools, spark: FakeSpark, project: str) -> None:
    told = barnabas("pipeline", "run", project, "--json")
    events = [json.loads(line) for line in told.out.splitlines()]
    assert [event["event"] for event in events] == [
        "said",
        "update-started",
        "defined",
        "flow",
        "flow",
        "update-ended",
        "ended",
    ]
    assert events[2]["flows"][2] == {
        "name": "two",
        "target": "out",
        "inputs": ["clicks", "users"],
        "defined": "t/a.py:14",
    }
    assert events[4] == {
        "event": "flow",
        "update": 1,
        "flow": "clicks",
        "state": "running",
        "failures": 0,
        "rows": 1500,
        "rowsWritten": None,
        "rowsPerSecond": 250.4,
        "lagRecords": 500,
        "lagSeconds": None,
        "bytesRead": None,
        "bytesWritten": None,
        "transactionsDecided": None,
        "transactionsOpen": None,
        "leftRecords": None,
        "batchSeconds": 0.62,
        "batches": 3,
        "bad": 12,
        "broken": {"has a user": 12, "is short": 0},
    }
    assert events[-1]["outcome"] == "completed"
    assert events[-1]["tables"] == [{"table": "clicks", "rows": None}, {"table": "views", "rows": 1234}]


def test_a_failure_is_one_sentence_and_verbose_is_everything(barnabas: Tools, spark: FakeSpark, project: str) -> None:
    spark.summary = Summary(
        UpdateResult.FAILED, 1.0, failure="flow clicks (t/a.py:3) failed: why", details="trace\nlines"
    )
    told = barnabas("pipeline", "run", project)
    assert told.code == 1
    assert told.err.splitlines()[-1] == "barnabas: flow clicks (t/a.py:3) failed: why"
    assert "trace" not in told.err
    assert "trace\nlines" in barnabas("pipeline", "run", project, "--verbose").err


def test_what_is_missing_is_told_before_anything_is_read(
    barnabas: Tools, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def missing() -> None:
        raise PipelineError("pipelines need pyyaml")

    monkeypatch.setattr(server, "check_installed", missing)
    assert barnabas("pipeline", "run", str(tmp_path / "nowhere")).err == "barnabas: pipelines need pyyaml\n"


def test_the_help_has_whole_sentences(barnabas: Tools) -> None:
    told = barnabas("pipeline", "--help").out
    assert "Commands:" in told
    assert "..." not in told.partition("Commands:")[2]


def test_what_keeps_spark_from_starting_is_told(barnabas: Tools, monkeypatch: pytest.MonkeyPatch, project: str) -> None:
    def fails(*_: Any, **__: Any) -> Summary:
        raise PipelineError("pipelines need grpcio, not installed here: pip install …")

    monkeypatch.setattr(running, "run_project", fails)
    told = barnabas("pipeline", "dry-run", project)
    assert (told.code, told.err) == (1, "barnabas: pipelines need grpcio, not installed here: pip install …\n")


@pytest.mark.parametrize(("every", "code"), [((), 130), (("--every", "5s"), 0)])
def test_ctrl_c_stops_the_flows_and_then_ends(
    barnabas: Tools, spark: FakeSpark, project: str, every: tuple[str, ...], code: int
) -> None:
    def interrupted(stop: threading.Event) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.wait(10)

    spark.meanwhile = interrupted
    spark.summary = Summary(UpdateResult.STOPPED, 1.0, (FlowState("clicks", FlowStatus.STOPPED),))
    told = barnabas("pipeline", "run", project, *every)
    assert told.code == code
    assert "update stopped in 1.0 s" in told.out


def test_a_dry_run_shows_what_is_defined(barnabas: Tools, spark: FakeSpark, project: str) -> None:
    told = barnabas("pipeline", "dry-run", project)
    assert (told.code, spark.calls[0]["is_dry"]) == (0, True)
    assert told.out.splitlines() == [
        "dataset  kind             reads             defined",
        "clicks   table (parquet)  barnabas: clicks  t/a.py:3",
        "out      sink (barnabas)                    t/a.py:9",
        "├─ one   flow             clicks            t/a.py:10",
        "└─ two   flow             clicks, users     t/a.py:14",
        "2 datasets, 3 flows: all sound",
    ]


def test_init_writes_a_project_that_can_be_read_and_says_what_is_next(barnabas: Tools, tmp_path: Path) -> None:
    from barnabas.spark.pipelines.project import load_project

    folder = tmp_path / "my shop"
    told = barnabas("pipeline", "init", str(folder), "--bootstrap-server", "host:1234")
    assert told.code == 0
    assert f"barnabas pipeline run '{folder}'" in told.out
    assert load_project(folder).name == "my shop"
    assert any("host:1234" in path.read_text() for path in folder.rglob("*") if path.is_file())

    again = barnabas("pipeline", "init", str(folder))
    assert again.code == 1
    assert "is not empty" in again.err


def test_a_project_that_is_not_there_is_told(barnabas: Tools, tmp_path: Path) -> None:
    told = barnabas("pipeline", "run", str(tmp_path / "nowhere"))
    assert (told.code, told.err.count("\n")) == (1, 1)
    assert "does not exist: `barnabas pipeline init" in told.err


def drawn(what: Any, width: int = 120) -> str:
    from rich.console import Console

    written = io.StringIO()
    Console(file=written, width=width, force_terminal=False).print(what)
    return written.getvalue()


def test_the_live_table_has_a_row_and_a_bar_for_each_flow() -> None:
    idle = FlowState("views", FlowStatus.QUEUED)
    text = drawn(flow_table([CLICKS, idle]))
    heading, clicks, views = text.splitlines()
    assert heading.split() == ["flow", "state", "in", "out", "rows/s", "lag", "batch", "bad"]
    assert clicks.split()[:8] == ["clicks", "running", "1,500", "250", "500", "0.6", "s", "12"]
    assert 16 <= clicks.count("━") + clicks.count("-") <= 24
    assert views.split()[:2] == ["views", "queued"]


def test_a_flow_that_is_exactly_once_shows_its_transactions() -> None:
    flow = FlowState(
        "sessions",
        FlowStatus.RUNNING,
        rows=1500,
        lag_records=500,
        lag_s=12.4,
        bytes_written=1_234_567,
        transactions_decided=24,
        transactions_open=2,
    )
    heading, sessions = drawn(flow_table([flow]), width=120).splitlines()
    assert heading.split() == ["flow", "state", "in", "out", "bytes", "rows/s", "lag", "batch", "bad", "transactions"]
    for text in ("1.2 MB", "500 (12 s)", "24 decided, 2 open"):
        assert text in sessions
    read = replace(flow, bytes_written=None, bytes_read=999, transactions_decided=None)
    assert "~999 B" in drawn(flow_table([read]))


def test_a_narrow_terminal_cuts_no_figure() -> None:
    from rich.console import Console

    flow = FlowState(
        "sessions_into_their_topic", FlowStatus.RETRYING, 12_345_678, 1_234_567, 123_456, 98_765, 12.3, 1, 54_321,
        {"r": 1}, failures=1, tries=3,
    )  # fmt: skip
    shown = AsTable(Console(file=io.StringIO(), width=80))
    shown.flow_changed(flow)
    text = drawn(shown.drawn(), width=80)
    for figure in ("12,345,678", "1,234,567", "123,456", "98,765", "12.3 s", "54,321"):
        assert figure in text
    assert "…" not in text
    assert "━" not in text


def test_a_very_narrow_terminal_shows_fewer_figures_but_whole_ones() -> None:
    flows = [
        FlowState("clicks", FlowStatus.RUNNING, 1_234_567, 1_200_000, 12_345.6, 7_654_321, 12.3, 3, 12_345, {"r": 3}),
        FlowState("dead_letters", FlowStatus.RETRYING, 1, 2, failures=1, tries=3),
    ]
    for width in range(35, 80):
        lines = drawn(flow_table(flows, width), width).splitlines()
        assert max(map(len, lines)) <= width
        headings = lines[0].split()
        assert headings[:3] == ["flow", "state", "in"]
        assert lines[1].split()[:3] == ["clicks", "running", "1,234,567"]
        figures = {"out": "1,200,000", "rows/s": "12,346", "lag": "7,654,321", "batch": "12.3 s", "bad": "12,345"}
        assert [figure in lines[1] for figure in figures.values()] == [name in headings for name in figures]
        # A name of twelve letters takes two lines at most.
        assert lines[2].startswith("dead_let")
    assert drawn(flow_table(flows, 60), 60).splitlines()[0].split() == ["flow", "state", "in", "out", "lag"]


def test_brackets_are_shown_as_they_are() -> None:
    from rich.console import Console

    shown = AsTable(Console(file=io.StringIO(), width=120))
    for text in ("readers of [json, csv] found no [/data/users.csv]", "[bold]", "not closed [/bold]"):
        shown.said(text)
        shown.flow_changed(FlowState("to[/x]", FlowStatus.QUEUED))
        assert text in drawn(shown.drawn())
        assert "to[/x]" in drawn(shown.drawn())


def test_why_an_update_failed_stays_when_the_next_one_begins() -> None:
    from rich.console import Console

    written = io.StringIO()
    shown = AsTable(Console(file=written, width=60))
    why = "flow clicks failed: no [/broker]"
    shown.update_started(1)
    shown.update_ended(1, SUMMARY)
    shown.update_started(2)
    shown.update_ended(2, Summary(UpdateResult.FAILED, 1.0, failure=why))
    shown.said(f"update 2 failed, the next one comes in 1 s: {why}")
    # If this was the last one, it is told at the end.
    assert written.getvalue() == ""
    for number in (3, 4):
        shown.update_started(number)
        shown.update_ended(number, SUMMARY)
    assert written.getvalue() == f"update 2 failed: {why}\n"


def test_the_live_table_has_the_order_of_the_definitions() -> None:
    from rich.console import Console

    shown = AsTable(Console(file=io.StringIO(), width=120))
    shown.defined(GRAPH)
    for name in ("two", "one", "clicks"):
        shown.flow_changed(FlowState(name, FlowStatus.QUEUED))
    assert [line.split()[0] for line in drawn(shown.drawn()).splitlines()[1:4]] == ["clicks", "one", "two"]


def test_the_live_table_follows_the_run() -> None:
    from rich.console import Console

    shown = AsTable(Console(file=io.StringIO(), width=120))
    shown.said("starting Spark")
    assert "starting Spark" in drawn(shown.drawn())
    shown.update_started(2)
    shown.flow_changed(CLICKS)
    assert "clicks" in drawn(shown.drawn())
    assert "update 2" in drawn(shown.drawn())
    shown.update_started(3)
    # What was last known stays until there is something new.
    assert "1,500" in drawn(shown.drawn())
    shown.flow_changed(DONE)
    assert "2,000" in drawn(shown.drawn())


def test_lines_tell_each_state_once(capsys: pytest.CaptureFixture[str]) -> None:
    shown = AsLines(clock=lambda: 0.0)
    for state in (
        FlowStatus.QUEUED,
        FlowStatus.RUNNING,
        FlowStatus.RUNNING,
        FlowStatus.COMPLETED,
        FlowStatus.COMPLETED,
    ):
        shown.flow_changed(FlowState("a", state))
    assert [line.strip() for line in capsys.readouterr().err.splitlines()] == [
        "0.0 s  a: running",
        "0.0 s  a: completed",
    ]
