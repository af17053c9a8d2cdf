"""What a run does around its updates. The update itself, which is Spark's, is played by a function."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from barnabas.spark.pipelines import running, server
from barnabas.spark.pipelines.failures import PipelineError
from barnabas.spark.pipelines.graph import TABLE, Dataset, Flow, Graph
from barnabas.spark.pipelines.project import Project
from barnabas.spark.pipelines.reporting import FlowStatus, Silent, Summary, Table, UpdateResult
from barnabas.spark.pipelines.running import Selection, run_project
from barnabas.spark.pipelines.tracking import Tracker
from tests.ports import free_ports


class FakeServer:
    has_ended = False

    def changeable(self, settings: dict[str, str]) -> dict[str, str]:
        return settings


class FakeUpdate:
    """Takes the place of everything between the definition files and the end of the last flow."""

    def __init__(self, stop: threading.Event) -> None:
        self.selections: list[Selection] = []
        self.stop = stop
        self.do: Callable[[int, Tracker], None] = lambda number, tracker: None

    def __call__(self, run: Any, spark: Any, selection: Selection, tracker: Tracker) -> None:
        self.selections.append(selection)
        tracker.told("Flow a is RUNNING.")
        tracker.progressed({"name": "a", "numInputRows": 5, "sources": []})
        self.do(len(self.selections), tracker)
        tracker.told("Flow a has COMPLETED.")
        run._numbers.ended("run of a")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    storage = (tmp_path / "storage").as_uri()
    return Project("toy", tmp_path, tmp_path / "spark-pipeline.yml", storage, (), {"spark.a": "1"})


@pytest.fixture
def stop() -> threading.Event:
    return threading.Event()


@pytest.fixture
def update(monkeypatch: pytest.MonkeyPatch, stop: threading.Event) -> FakeUpdate:
    fake = FakeUpdate(stop)

    @contextmanager
    def started(*_: Any, **__: Any) -> Iterator[FakeServer]:
        yield FakeServer()

    monkeypatch.setattr(server, "check_installed", lambda: None)
    monkeypatch.setattr(server, "started", started)
    monkeypatch.setattr(running._Run, "_work_through", lambda run, *rest: fake(run, *rest))
    monkeypatch.setattr(running._Run, "_current_session", lambda run: None)
    return fake


def test_one_update_and_its_summary(project: Project, update: FakeUpdate) -> None:
    summary = run_project(project, refresh=["a"])
    assert (summary.outcome, summary.updates, summary.flows[0].rows) == (UpdateResult.COMPLETED, 1, 5)
    assert update.selections == [Selection(refresh=("a",))]


def test_what_was_rebuilt_is_only_kept_up_to_date_afterwards(
    project: Project, update: FakeUpdate, stop: threading.Event
) -> None:
    update.do = lambda number, _: stop.set() if number == 3 else None
    summary = run_project(project, full_refresh_all=True, every_s=0.0, stop=stop)
    assert update.selections == [Selection(is_full_refresh_of_all=True), Selection(), Selection()]
    assert (summary.outcome, summary.updates, summary.flows[0].rows) == (UpdateResult.STOPPED, 3, 15)
    assert Selection(("a",), ("b",)).next() == Selection(("a", "b"))
    assert Selection(is_dry=True).next().is_dry


def test_the_stop_of_a_run_that_ended_by_itself_can_be_used_for_the_next(
    project: Project, update: FakeUpdate, stop: threading.Event
) -> None:
    assert run_project(project, stop=stop).outcome is UpdateResult.COMPLETED
    assert not stop.is_set()


def test_a_failed_update_is_the_last(project: Project, update: FakeUpdate) -> None:
    def fails(number: int, tracker: Tracker) -> None:
        if number == 2:
            raise PipelineError("flow a failed: why", "all of it")

    update.do = fails
    summary = run_project(project, every_s=0.0)
    assert (summary.outcome, summary.updates, summary.failure, summary.details) == (
        UpdateResult.FAILED,
        2,
        "flow a failed: why",
        "all of it",
    )


def test_a_run_that_outlasts_failures_goes_on_and_tells_each(
    project: Project, update: FakeUpdate, stop: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_BACKOFF_S", 0.001)
    told: list[str] = []

    class Hearing(Silent):
        def said(self, text: str) -> None:
            told.append(text)

    def fails(number: int, tracker: Tracker) -> None:
        if number in (2, 3):
            raise PipelineError(f"no broker {number}")
        if number == 4:
            stop.set()

    update.do = fails
    summary = run_project(project, every_s=0.001, outlasts_failures=True, stop=stop, reporter=Hearing())
    assert (summary.outcome, summary.updates, summary.failure) == (UpdateResult.STOPPED, 4, None)
    assert told[1:] == [f"update {n} failed, the next one comes in 0 s: no broker {n}" for n in (2, 3)]


@pytest.mark.parametrize(("number", "why"), [(1, "no broker"), (2, "[KAFKA_DATA_LOSS.OFFSETS] gone")])
def test_what_cannot_get_better_ends_the_run(project: Project, update: FakeUpdate, number: int, why: str) -> None:
    def fails(now: int, tracker: Tracker) -> None:
        if now == number:
            raise PipelineError(why)

    update.do = fails
    summary = run_project(project, every_s=0.001, outlasts_failures=True)
    assert (summary.outcome, summary.updates, summary.failure) == (UpdateResult.FAILED, number, why)


def test_the_time_of_a_run_is_that_on_the_wall(project: Project, update: FakeUpdate, stop: threading.Event) -> None:
    update.do = lambda number, _: stop.set() if number == 2 else None
    assert run_project(project, every_s=0.2, stop=stop).seconds >= 0.2


def test_a_spark_that_does_not_answer_is_ended(
    project: Project, update: FakeUpdate, stop: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_STOPPING_S", 0.1)
    is_killed = threading.Event()
    monkeypatch.setattr(FakeServer, "kill", lambda self: is_killed.set(), raising=False)

    def hangs(number: int, tracker: Tracker) -> None:
        stop.set()
        assert is_killed.wait(10)
        raise RuntimeError("the connection is gone")

    update.do = hangs
    assert run_project(project, stop=stop).outcome is UpdateResult.STOPPED


def test_a_start_that_was_stopped_is_no_failure(
    project: Project, update: FakeUpdate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(*_: Any, **__: Any) -> None:
        raise server.StartStoppedError

    monkeypatch.setattr(server, "started", started)
    summary = run_project(project)
    assert (summary.outcome, summary.updates) == (UpdateResult.STOPPED, 0)


def test_tables_that_got_a_batch_are_told_of_a_stopped_run_too(
    project: Project, update: FakeUpdate, stop: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = Graph(
        {name: Dataset(name, TABLE, "") for name in ("a", "b")}, {name: Flow(name, name, "") for name in ("a", "b")}
    )

    def interrupted(run: Any, *rest: Any) -> None:
        run._graph = graph
        update(run, *rest)
        stop.set()
        raise RuntimeError("[OPERATION_CANCELED] …")

    monkeypatch.setattr(running._Run, "_work_through", interrupted)
    summary = run_project(project, stop=stop)
    assert (summary.outcome, summary.tables) == (UpdateResult.STOPPED, (Table("a"),))


def test_flows_are_shown_as_stopped_when_somebody_stops_them(
    project: Project, update: FakeUpdate, stop: threading.Event
) -> None:
    def interrupted(number: int, tracker: Tracker) -> None:
        stop.set()
        raise RuntimeError("[OPERATION_CANCELED] …")

    update.do = interrupted
    summary = run_project(project, every_s=60.0, stop=stop)
    assert (summary.outcome, summary.failure, summary.flows[0].state) == (
        UpdateResult.STOPPED,
        None,
        FlowStatus.STOPPED,
    )


def test_a_spark_that_dies_is_told_as_such(
    project: Project, update: FakeUpdate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(number: int, tracker: Tracker) -> None:
        monkeypatch.setattr(FakeServer, "has_ended", True)
        raise RuntimeError("failed to connect to all addresses")

    update.do = killed
    log = project.working_folder / "spark.log"
    assert run_project(project).failure == f"Spark ended by itself in the middle (see {log})"
    # Where the log was shown, there is no such file.
    assert run_project(project, is_verbose=True).failure == "Spark ended by itself in the middle"


def test_reporters_hear_of_every_update(project: Project, update: FakeUpdate, stop: threading.Event) -> None:
    heard: list[object] = []

    class Hearing(Silent):
        def update_started(self, number: int) -> None:
            heard.append(number)

        def update_ended(self, number: int, summary: Summary) -> None:
            heard.append(summary.outcome)

    update.do = lambda number, _: stop.set() if number == 2 else None
    run_project(project, every_s=0.0, stop=stop, reporter=Hearing())
    assert heard == [1, UpdateResult.COMPLETED, 2, UpdateResult.COMPLETED]


def test_a_project_runs_once_at_a_time(project: Project, update: FakeUpdate) -> None:
    def again(number: int, tracker: Tracker) -> None:
        run_project(project)

    update.do = again
    summary = run_project(project)
    assert summary.failure == f"the pipeline toy in {project.folder} runs already"


def test_a_project_that_was_moved_is_refused(project: Project, update: FakeUpdate, tmp_path: Path) -> None:
    run_project(project)
    moved = tmp_path / "moved"
    moved.mkdir()
    shutil.copytree(project.working_folder, moved / ".pipeline")
    (moved / "storage").mkdir()
    (moved / "storage" / "offsets").write_text("5")
    there = replace(project, folder=moved, storage=(moved / "storage").as_uri())
    with pytest.raises(PipelineError, match=f"was run in {tmp_path}, and its tables and checkpoints belong there"):
        run_project(there)
    assert len(update.selections) == 1
    # Another name of the same folder is no move, and what lies elsewhere does not move along.
    other_name = tmp_path / "link"
    other_name.symlink_to(tmp_path, target_is_directory=True)
    linked = replace(project, folder=other_name, storage=(other_name / "storage").as_uri())
    assert run_project(linked).outcome is UpdateResult.COMPLETED
    elsewhere = replace(there, storage="s3a://b/s", configuration={"spark.sql.warehouse.dir": "s3a://b/t"})
    assert run_project(elsewhere).outcome is UpdateResult.COMPLETED
    assert run_project(replace(elsewhere, storage=f"{moved.as_uri()}-storage")).outcome is UpdateResult.COMPLETED


def test_a_note_that_was_not_written_to_its_end_says_nothing(project: Project, update: FakeUpdate) -> None:
    note = project.working_folder / "place"
    project.working_folder.mkdir()
    note.write_text("")
    assert run_project(project).outcome is UpdateResult.COMPLETED
    assert note.read_text() == str(project.folder)
    written = note.stat()
    run_project(project)
    assert note.stat().st_ino == written.st_ino
    assert note.stat().st_mtime_ns == written.st_mtime_ns
    assert sorted(path.name for path in project.working_folder.glob("place*")) == ["place"]


def test_a_project_that_has_nothing_yet_may_move(project: Project, update: FakeUpdate, tmp_path: Path) -> None:
    run_project(project, is_dry=True)
    moved = tmp_path / "moved"
    # As a dry run leaves it: the catalog leads into the old folder, and rows would be written there.
    (moved / ".pipeline" / "catalog").mkdir(parents=True)
    (moved / "tables" / "shop.db").mkdir(parents=True)
    shutil.copy(project.working_folder / "place", moved / ".pipeline" / "place")
    there = replace(project, folder=moved, storage=(moved / "storage").as_uri())
    assert run_project(there).outcome is UpdateResult.COMPLETED
    assert not (moved / ".pipeline" / "catalog").exists()
    assert (moved / ".pipeline" / "place").read_text() == str(moved)


def test_a_project_whose_brokers_were_not_there_may_still_move(project: Project, update: FakeUpdate) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    with pytest.raises(PipelineError, match="no broker answers"):
        run_project(project, settings={"spark.toy.bootstrap.servers": address})
    assert not (project.working_folder / "place").exists()


def test_brokers_that_do_not_answer_are_told_before_spark_starts(project: Project, update: FakeUpdate) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    there = replace(project, configuration={"spark.toy.bootstrap.servers": address})
    with pytest.raises(PipelineError, match=rf"no broker answers at {address} \(spark.toy.bootstrap.servers\)"):
        run_project(there)
    assert run_project(there, is_dry=True).outcome is UpdateResult.COMPLETED
    with socket.create_server(("127.0.0.1", 0)) as taken:
        both = f"{address},127.0.0.1:{taken.getsockname()[1]}"
        assert run_project(project, settings={"spark.toy.bootstrap.servers": both}).outcome is UpdateResult.COMPLETED
    # Whatever this is, it is not for us to judge.
    assert run_project(project, settings={"a.bootstrap.servers": "${HOST}"}).outcome is UpdateResult.COMPLETED


def test_contradictions_are_told(project: Project, update: FakeUpdate) -> None:
    with pytest.raises(PipelineError, match="give one or the other"):
        run_project(project, full_refresh_all=True, refresh=["a"])
    with pytest.raises(PipelineError, match="a: either refresh or full refresh"):
        run_project(project, full_refresh=["a", "b"], refresh=["a"])


def test_what_is_missing_is_told_with_how_to_get_it(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in ("grpc", "yaml") else found(name))
    with pytest.raises(
        PipelineError, match=r"need grpcio, pyyaml, not installed here: pip install 'pyarrow>=17' 'pyspark"
    ):
        run_project(project)


def test_settings_are_ours_then_the_projects_then_those_of_the_call(project: Project) -> None:
    settings = server.server_settings(project, "local[2]", {"spark.a": "2", "spark.plugins": "x.Y"})
    # Nothing here is lost to who has options of his own for the JVM.
    assert "spark.driver.extraJavaOptions" not in settings
    assert settings["spark.a"] == "2"
    assert settings["spark.master"] == "local[2]"
    assert settings["spark.plugins"] == "x.Y,org.apache.spark.sql.connect.SparkConnectPlugin"
    assert settings["spark.sql.warehouse.dir"] == (project.folder / "tables").as_uri()
    assert settings["spark.sql.shuffle.partitions"] == str(os.cpu_count())
    assert settings["spark.hadoop.hive.downloaded.resources.dir"].startswith(str(project.working_folder / "tmp"))
    assert "spark.sql.shuffle.partitions" not in server.server_settings(project, "spark://host:7077", {})


def test_a_machine_starts_no_more_flows_at_once_than_it_can(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each starts a Python, and Spark gives up on one that is not up within ten seconds."""
    limit = "spark.sql.pipelines.execution.maxConcurrentFlows"
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    assert server.server_settings(project, "local[*]", {})[limit] == "2"
    assert server.server_settings(project, "local[*]", {limit: "16"})[limit] == "16"
    assert limit not in server.server_settings(project, "spark://host:7077", {})


def test_the_environment_is_as_before_afterwards(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("SPARK_REMOTE", "sc://elsewhere")
    before = dict(os.environ)
    with server._environment(project, "local[2]"):
        assert os.environ["PYSPARK_PYTHON"] == sys.executable
        assert os.environ["PYTHONPATH"].split(os.pathsep)[0] == str(project.folder)
        assert "SPARK_REMOTE" not in os.environ
    assert dict(os.environ) == before


def test_a_proxy_is_not_asked_for_this_machine(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    grpc: Any = pytest.importorskip("grpc")
    for name in ("no_grpc_proxy", "no_proxy", "grpc_proxy"):
        monkeypatch.delenv(name, raising=False)

    address = f"http://127.0.0.1:{free_ports(1)[0]}"
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, address)
    echo = grpc.unary_unary_rpc_method_handler(lambda request, context: request)
    served = grpc.server(ThreadPoolExecutor(1), handlers=[grpc.method_handlers_generic_handler("a", {"b": echo})])
    port = served.add_insecure_port("127.0.0.1:0")
    served.start()
    try:
        with server._environment(project, "local[2]"), grpc.insecure_channel(f"localhost:{port}") as channel:
            assert channel.unary_unary("/a/b")(b"hello") == b"hello"
    finally:
        served.stop(None)


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ({"no_proxy": "intern.example"}, "intern.example,localhost"),
        ({"no_proxy": "intern.example", "no_grpc_proxy": "other.example"}, "other.example,localhost"),
        ({"no_proxy": "intern.example", "no_grpc_proxy": ""}, "localhost"),
    ],
)
def test_what_goes_past_a_proxy_still_does(
    project: Project, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], used: str
) -> None:
    for name in ("no_grpc_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with server._environment(project, "local[2]"):
        assert dict(os.environ)["no_grpc_proxy"] == used


class FakeClient:
    """Plays that of Spark Connect: tells of one more query when its listener is taken back, or its session closed."""

    def __init__(self) -> None:
        self.is_ending = threading.Event()

    def execute_command(self, command: Any) -> None:
        self.is_ending.set()

    def execute_command_as_iterator(self, command: Any) -> Iterator[dict[str, Any]]:
        from pyspark.sql.connect import proto

        result = "streaming_query_listener_events_result"
        yield {result: proto.StreamingQueryListenerEventsResult(listener_bus_listener_added=True)}
        assert self.is_ending.wait(10)
        query = {"id": str(UUID(int=1)), "runId": str(UUID(int=2)), "exception": None, "errorClassOnException": None}
        event = proto.StreamingQueryListenerEvent(
            event_json=json.dumps(query), event_type=proto.StreamingQueryEventType.QUERY_TERMINATED_EVENT
        )
        yield {result: proto.StreamingQueryListenerEventsResult(events=[event])}


def test_a_session_can_be_closed_while_its_queries_still_tell_something() -> None:
    from pyspark.sql.connect.streaming.query import StreamingQueryManager

    spark: Any = SimpleNamespace(client=FakeClient())
    spark.streams, spark.stop = StreamingQueryManager(spark), spark.client.is_ending.set
    numbers = running.Numbers()
    threads: list[threading.Thread] = []

    def open_and_close() -> None:
        opened: Any = SimpleNamespace(open_session=lambda settings: spark)
        session = running._Session.opened(opened, {}, numbers)
        threads.append(spark.streams._sqlb._execution_thread)
        session.close()

    # On threads that keep nobody from ending.
    threads.append(threading.Thread(target=open_and_close, daemon=True))
    threads[0].start()
    for number in range(2):
        threads[number].join(5)
        assert not threads[number].is_alive()
    assert numbers._ends == 0


def test_a_spark_that_cannot_be_stopped_is_not_in_the_way_of_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark import SparkContext

    class Unreachable:
        def stop(self) -> None:
            raise ConnectionRefusedError

    context = Unreachable()
    for name in ("_active_spark_context", "_gateway", "_jvm"):
        monkeypatch.setattr(SparkContext, name, context)
    server.ConnectServer(context, None, "").end()
    assert SparkContext._active_spark_context is None


def test_ctrl_c_stays_with_who_had_it() -> None:
    before = signal.getsignal(signal.SIGINT)
    with server._signals_kept():
        signal.signal(signal.SIGINT, lambda *_: None)
    assert signal.getsignal(signal.SIGINT) is before


class Ear(Silent):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def said(self, text: str) -> None:
        self.heard.append(text)


def test_clusters_are_told_of_folders_that_may_be_on_this_machine_alone(project: Project) -> None:
    elsewhere = {"spark.sql.warehouse.dir": "s3a://bucket/tables"}

    def heard(project: Project, master: str, settings: dict[str, str]) -> list[str]:
        ear = Ear()
        running._tell_of_local_folders(project, master, settings, ear)
        return ear.heard

    both = f"{project.storage} and at {project.tables}"
    assert [text.endswith(both) for text in heard(project, "spark://host:7077", {})] == [True]
    assert [text.endswith(f"at {project.storage}") for text in heard(project, "yarn", elsewhere)] == [True]
    assert heard(replace(project, storage="s3a://bucket/storage"), "yarn", elsewhere) == []
    assert heard(project, "local[*]", {}) == heard(project, "local-cluster[2,1,1024]", {}) == []


def test_a_jvm_that_ends_at_once_has_told_its_log_why(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    log.write_text(
        "WARNING: Using incubator modules\n"
        'Exception in thread "main" java.lang.RuntimeException: [unresolved dependency: a#b;1: not found]\n'
        "\tat org.apache.spark.util.MavenUtils$.resolve(MavenUtils.scala:528)\n"
    )
    assert server._last_words(log) == "java.lang.RuntimeException: [unresolved dependency: a#b;1: not found]"
    log.write_text("killed")
    assert server._last_words(log) is None
    assert server._last_words(None) is None
