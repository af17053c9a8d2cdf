"""Running a project: updates, one after another, and what they tell meanwhile.

An update takes in all that is there when it starts, and ends: Spark Declarative Pipelines run streaming flows so. A
pipeline that follows its topics is one update after another, in one Spark that stays up.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from barnabas.spark.pipelines.delivering import Deliveries
from barnabas.spark.pipelines.failures import PipelineError, is_data_loss, of_run
from barnabas.spark.pipelines.graph import VIEW, Graph
from barnabas.spark.pipelines.lagging import Lags
from barnabas.spark.pipelines.project import Project, address_of, folder_of
from barnabas.spark.pipelines.reaching import check_brokers
from barnabas.spark.pipelines.reporting import (
    Delivered,
    FlowState,
    FlowStatus,
    Reporter,
    Silent,
    Summary,
    Table,
    UpdateResult,
    together,
)
from barnabas.spark.pipelines.server import catalog_folder
from barnabas.spark.pipelines.tracking import Tracker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from barnabas.spark.pipelines.server import ConnectServer

#: Spark keeps each update of a session until the session ends, and ends one of which nothing was heard for an hour.
_UPDATES_PER_SESSION: Final = 100
_SESSION_S: Final = 1800.0
#: Numbers of the last batch come a little after the end of their flow, another way, and brokers are asked for the lag.
_NUMBERS_S: Final = 10.0
_LOOK_S: Final = 0.1
_STOPPING_S: Final = 20.0
#: What a JVM that was killed may still keep waiting.
_KILLED_S: Final = 5.0
_BACKOFF_S: Final = 1.0
_MAX_BACKOFF_S: Final = 60.0
#: In the working folder: a note of where the project was when its catalog was made.
_PLACE: Final = "place"
_RETRIES: Final = ("spark.sql.pipelines.maxFlowRetryAttempts", "2")


@dataclass(frozen=True, slots=True)
class Selection:
    """Which tables an update is for; all, if nothing is said."""

    refresh: tuple[str, ...] = ()
    full_refresh: tuple[str, ...] = ()
    is_full_refresh_of_all: bool = False
    is_dry: bool = False

    def check(self) -> None:
        if self.is_full_refresh_of_all and (self.refresh or self.full_refresh):
            raise PipelineError("a full refresh of all tables leaves none to be named: give one or the other")
        both = [name for name in self.refresh if name in self.full_refresh]
        if both:
            raise PipelineError(f"{', '.join(both)}: either refresh or full refresh, not both")

    def next(self) -> Selection:
        """For the update after the first: what was rebuilt is not rebuilt again, but kept up to date."""
        refresh = (*self.refresh, *self.full_refresh)
        return replace(self, refresh=refresh, full_refresh=(), is_full_refresh_of_all=False)


def run_project(
    project: Project,
    *,
    master: str = "local[*]",
    refresh: Collection[str] = (),
    full_refresh: Collection[str] = (),
    full_refresh_all: bool = False,
    is_dry: bool = False,
    every_s: float | None = None,
    outlasts_failures: bool = False,
    settings: Mapping[str, str] | None = None,
    reporter: Reporter | None = None,
    stop: threading.Event | None = None,
    is_verbose: bool = False,
) -> Summary:
    """Start Spark, run an update (with `every_s` one after another, each so long after the start of the one before),
    and end Spark. Setting `stop` ends it early: flows are stopped where they are, and go on from there next time.

    A pipeline that fails does not raise: the summary says so. `PipelineError` is for what keeps it from starting. Of
    several updates, one that fails is the last, unless the run `outlasts_failures`: then the next one comes after a
    while, if an update has ended well before, Spark is still up, and no records are lost.
    `settings` are Spark's, over those of the project. `is_verbose` lets Spark's log go to standard error.
    """
    from barnabas.spark.pipelines.server import StartStoppedError, check_installed, started

    selection = Selection(tuple(refresh), tuple(full_refresh), full_refresh_all, is_dry)
    selection.check()
    check_installed()
    reporter, stop, settings = reporter or Silent(), stop or threading.Event(), settings or {}
    began_s = time.monotonic()
    with _alone(project):
        _check_place(project)
        if not is_dry:
            check_brokers({**project.configuration, **settings})
        _note_place(project)
        log = None if is_verbose else project.working_folder / "spark.log"
        reporter.said(f"starting Spark at {master}")
        _tell_of_local_folders(project, master, settings, reporter)
        try:
            with started(project, master, settings, log=log, stop=stop) as server:
                run = _Run(project, server, settings, log, reporter, stop)
                return run.supervised(lambda: run.updates(selection, every_s, outlasts_failures=outlasts_failures))
        except StartStoppedError:
            return Summary(UpdateResult.STOPPED, time.monotonic() - began_s, updates=0)


@contextmanager
def _alone(project: Project) -> Iterator[None]:
    """Two runs of a project would write into each other's checkpoints."""
    project.working_folder.mkdir(exist_ok=True)
    with (project.working_folder / "lock").open("w") as lock:
        try:
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:
            pass
        except OSError as failure:
            raise PipelineError(f"the pipeline {project.name} in {project.folder} runs already") from failure
        yield


def _check_place(project: Project) -> None:
    """The catalog, the checkpoints and the lists of a table's files hold whole paths: in a project that was moved or
    copied they lead into the old folder, and a run would write there."""
    noted, places = _noted_place(project), _places_inside(project)
    if not noted or not places:
        return
    before = Path(noted)
    if before == project.folder or (before.exists() and before.samefile(project.folder)):
        return
    if len(places) == 2 and not any(map(_has_files, places)):
        # A dry run makes the catalog and nothing else: it can be made again.
        shutil.rmtree(catalog_folder(project), ignore_errors=True)
        return
    raise PipelineError(
        f"the project in {project.folder} was run in {before}, and its tables and checkpoints belong there: "
        f"move it back; or, to read everything anew here, remove {project.working_folder}, the tables "
        f"({project.tables}) and the checkpoints ({project.storage}) first"
    )


def _note_place(project: Project) -> None:
    """Before there is a catalog: a dry run makes one as well."""
    place = str(project.folder)
    if _places_inside(project) and _noted_place(project) != place:
        note = project.working_folder / _PLACE
        # Half a note would lead nowhere.
        new = note.with_suffix(".new")
        new.write_text(place, encoding="utf-8")
        new.replace(note)


def _noted_place(project: Project) -> str:
    """Where the project was run before; empty if that is not known."""
    note = project.working_folder / _PLACE
    return note.read_text(encoding="utf-8") if note.exists() else ""


def _places_inside(project: Project) -> list[str]:
    """Those of tables and checkpoints that move along with the project."""
    home = address_of(project.folder) + "/"
    return [place for place in (project.tables, project.storage) if place.startswith(home)]


def _has_files(place: str) -> bool:
    return any(path.is_file() for path in folder_of(place).rglob("*"))


def _tell_of_local_folders(project: Project, master: str, settings: Mapping[str, str], reporter: Reporter) -> None:
    """Workers on other machines would write to their own disks, and nobody would find the rows again."""
    places = (project.storage, settings.get("spark.sql.warehouse.dir") or project.tables)
    local = [place for place in places if place.startswith("file:")]
    if local and not master.startswith("local"):
        reporter.said(f"every machine of the cluster must have the same folder at {' and at '.join(local)}")


class Numbers:
    """Gets what streaming queries tell after each batch, on a thread of Spark's client.

    Together with the sentences of the pipeline it feeds one tracker, so it also holds the lock.
    """

    def __init__(self, told_after: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda progress: {}) -> None:
        self.lock = threading.Condition()
        self.tracker: Tracker | None = None
        self._told_after = told_after
        #: Names by run. Those of Spark Connect hear of the start of a query only if they have started it themselves.
        self._names: dict[str, str] = {}
        self._ends = 0

    def follow(self, tracker: Tracker | None) -> None:
        with self.lock:
            self.tracker = tracker
            self._names.clear()
            self._ends = 0

    def progressed(self, progress: Mapping[str, Any]) -> None:
        # Brokers are asked, so others must not wait for the lock meanwhile.
        told = self._told_after(progress)
        with self.lock:
            if self.tracker is not None:
                self._names[str(progress.get("runId"))] = progress.get("name") or ""
                self.tracker.progressed(progress, **told)

    def ended(self, run_id: str, *, has_failed: bool = False) -> None:
        with self.lock:
            self._ends += 1
            name = self._names.pop(run_id, "")
            if self.tracker is not None and name:
                self.tracker.query_ended(name, has_failed=has_failed)
            self.lock.notify_all()

    def wait(self, timeout_s: float) -> None:
        """Until all queries have told their end, since nothing comes after that."""
        with self.lock:
            self.lock.wait_for(lambda: self.tracker is None or self._ends >= self.tracker.ends, timeout_s)


def _listener(numbers: Numbers) -> Any:
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class UpdateListener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:  # noqa: N802
            pass

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            numbers.progressed(json.loads(event.progress.json))

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802
            pass

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            numbers.ended(str(event.runId), has_failed=event.exception is not None)

    return UpdateListener()


@dataclass(slots=True)
class _Session:
    """A session of the server, with somebody who listens to its queries."""

    spark: SparkSession
    opened_at_s: float
    updates: int = 0

    @classmethod
    def opened(cls, server: ConnectServer, settings: Mapping[str, str], numbers: Numbers) -> Self:
        spark = server.open_session(settings)
        spark.streams.addListener(_listener(numbers))
        return cls(spark, time.monotonic())

    @property
    def is_old(self) -> bool:
        return self.updates >= _UPDATES_PER_SESSION or time.monotonic() - self.opened_at_s > _SESSION_S

    def interrupt(self) -> None:
        with suppress(Exception):
            self.spark.interruptAll()

    def close(self) -> None:
        """Stops what its pipeline still runs, too."""
        # Not by `removeListener`: that waits for the events that are on their way, and holds the lock without which
        # none can be handed over. Their stream ends with the session.
        with suppress(Exception):
            streams: Any = self.spark.streams
            streams._sqlb._listener_bus.clear()
        with suppress(Exception):
            self.spark.stop()


@dataclass(slots=True)
class _Run:
    project: Project
    server: ConnectServer
    settings: Mapping[str, str]
    #: Of Spark; None if it is shown.
    log: Path | None
    reporter: Reporter
    stop: threading.Event
    _lags: Lags = field(init=False)
    _deliveries: Deliveries = field(init=False)
    _numbers: Numbers = field(init=False)
    #: What each flow has decided in this run.
    _delivered: dict[str, Delivered] = field(default_factory=dict)
    _session: _Session | None = None
    _graph: Graph = field(default_factory=Graph)
    #: Of the last update.
    _flows: tuple[FlowState, ...] = ()

    def __post_init__(self) -> None:
        self._lags = Lags(self.project.short)
        self._deliveries = Deliveries(self.project.short)
        self._numbers = Numbers(self._told_after)

    def _told_after(self, progress: Mapping[str, Any]) -> dict[str, Any]:
        """What brokers tell of a flow whose query has told a progress."""
        return {
            "lag": self._lags.after(progress),
            "delivered": self._deliveries.after(progress),
            "bytes_read": self._lags.bytes_of(progress),
        }

    def supervised(self, work: Callable[[], Summary]) -> Summary:
        """Run it on a thread of its own, since waiting for Spark cannot be broken off, and watch for the stop."""
        done: list[Summary] = []
        failed: list[BaseException] = []

        def body() -> None:
            try:
                done.append(work())
            except BaseException as failure:
                failed.append(failure)

        thread = threading.Thread(target=body, name="pipeline", daemon=True)
        thread.start()
        try:
            while thread.is_alive() and not self.stop.is_set():
                thread.join(_LOOK_S)
        except BaseException:
            self.stop.set()
            raise
        finally:
            self._break_off(thread)
        if failed:
            raise failed[0]
        return done[0] if done else Summary(UpdateResult.STOPPED, 0.0)

    def _break_off(self, thread: threading.Thread) -> None:
        """An interrupt that comes between two requests is lost, hence again and again. A JVM that hangs answers none,
        and without it everything fails that waits for it."""
        give_up_at_s = time.monotonic() + _STOPPING_S
        while thread.is_alive() and time.monotonic() < give_up_at_s:
            # It waits for an answer as well, so it must not keep us from giving up.
            threading.Thread(target=self._interrupt, name="pipeline-interrupt", daemon=True).start()
            thread.join(1.0)
        if thread.is_alive():
            self.reporter.said("Spark does not answer: ending it")
            self.server.kill()
            thread.join(_KILLED_S)

    def _interrupt(self) -> None:
        session = self._session
        if session is not None:
            session.interrupt()

    def updates(self, selection: Selection, every_s: float | None, *, outlasts_failures: bool) -> Summary:
        whole: Summary | None = None
        number = failures = 0
        run_began_s = time.monotonic()
        try:
            while True:
                number += 1
                began_s = time.monotonic()
                summary = self._update(number, selection)
                whole = summary if whole is None else together(whole, summary)
                # Together with the waits between them.
                whole = replace(whole, seconds=time.monotonic() - run_began_s)
                if every_s is None or summary.outcome is UpdateResult.STOPPED:
                    return whole
                next_at_s = began_s + every_s
                if summary.outcome is UpdateResult.COMPLETED:
                    failures = 0
                    selection = selection.next()
                else:
                    if not outlasts_failures or number == 1 or not self._may_recover(summary):
                        return whole
                    backoff_s = min(_BACKOFF_S * 2**failures, _MAX_BACKOFF_S)
                    failures += 1
                    next_at_s = max(next_at_s, time.monotonic() + backoff_s)
                    self._close_session()
                    self._tell_failure(number, summary, next_at_s - time.monotonic())
                if self.stop.wait(max(0.0, next_at_s - time.monotonic())):
                    # Nothing was under way: whoever asked for the stop got all that was begun.
                    return replace(whole, outcome=UpdateResult.STOPPED, seconds=time.monotonic() - run_began_s)
        finally:
            # In this order: a session that is open may still ask for a lag.
            self._close_session()
            self._lags.close()
            self._deliveries.close()

    def _close_session(self) -> None:
        """What still runs in it ends as well."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _may_recover(self, summary: Summary) -> bool:
        return not self.server.has_ended and not is_data_loss(summary.failure or "")

    def _tell_failure(self, number: int, summary: Summary, wait_s: float) -> None:
        self.reporter.said(f"update {number} failed, the next one comes in {wait_s:.0f} s: {summary.failure}")

    def _update(self, number: int, selection: Selection) -> Summary:
        began_s = time.monotonic()
        self.reporter.update_started(number)
        retries = {**self.project.configuration, **self.settings}.get(*_RETRIES)
        tracker = Tracker(
            self.reporter.flow_changed,
            self.project.short,
            earlier=self._flows,
            retries=int(retries) if retries.isdigit() else 0,
            delivered=self._delivered,
        )
        self._numbers.follow(tracker)
        self._graph = Graph()
        tables: tuple[Table, ...] = ()
        outcome, failure = UpdateResult.COMPLETED, None
        try:
            spark = self._current_session()
            self._work_through(spark, selection, tracker)
            self._numbers.wait(_NUMBERS_S)
            self._finish(tracker)
            tables = () if selection.is_dry else self._tables(spark, tracker)
        except Exception as problem:
            outcome, failure = self._judged(problem, tracker)
        with self._numbers.lock:
            if outcome is not UpdateResult.COMPLETED:
                tracker.stopped()
                tables = tuple(Table(name) for name in self._written(tracker))
        self._numbers.follow(None)
        self._flows = tracker.flows
        summary = Summary(
            outcome,
            time.monotonic() - began_s,
            flows=tracker.flows,
            tables=tables,
            bad_records=tracker.bad_records,
            failure=None if failure is None else str(failure),
            details="" if failure is None else failure.details,
            is_spark_gone=outcome is UpdateResult.FAILED and self.server.has_ended,
        )
        self.reporter.update_ended(number, summary)
        return summary

    def _finish(self, tracker: Tracker) -> None:
        """The update is done: what has come to the topics meanwhile?"""
        lags = self._lags.now()
        with self._numbers.lock:
            tracker.settled()
            for name, lag in lags.items():
                tracker.lagged(name, lag)

    def _judged(self, problem: Exception, tracker: Tracker) -> tuple[UpdateResult, PipelineError | None]:
        if self.stop.is_set():
            return UpdateResult.STOPPED, None
        if self.server.has_ended:
            where = f" (see {self.log})" if self.log is not None else ""
            return UpdateResult.FAILED, PipelineError(f"Spark ended by itself in the middle{where}", str(problem))
        if isinstance(problem, PipelineError):
            return UpdateResult.FAILED, problem
        with self._numbers.lock:
            return UpdateResult.FAILED, of_run(problem, tracker.failed, self._graph)

    def _current_session(self) -> SparkSession:
        if self._session is not None and self._session.is_old:
            self._close_session()
        if self._session is None:
            settings = {**self.project.configuration, **self.settings}
            self._session = _Session.opened(self.server, settings, self._numbers)
        self._session.updates += 1
        return self._session.spark

    def _work_through(self, spark: SparkSession, selection: Selection, tracker: Tracker) -> None:
        """One update, from the definition files to the end of its last flow. A graph can be run only once."""
        from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph, start_run

        from barnabas.spark.pipelines.definitions import register

        self._make_database(spark)
        graph_id = create_dataflow_graph(
            spark,
            default_catalog=self.project.catalog,
            default_database=self.project.database,
            sql_conf=self.server.changeable({**self.project.configuration, **self.settings}),
        )
        graph = register(self.project, spark, graph_id)
        self._graph = self._lags.graph = graph
        if not selection.is_dry:
            self._deliveries.follow(graph)
        with self._numbers.lock:
            tracker.defined(graph)
        self.reporter.defined(graph)
        self._check_names(selection)
        if self.stop.is_set():
            raise InterruptedError
        events = start_run(
            spark,
            graph_id,
            full_refresh=list(selection.full_refresh),
            full_refresh_all=selection.is_full_refresh_of_all,
            refresh=list(selection.refresh),
            dry=selection.is_dry,
            storage=self.project.storage,
        )
        for event in events:
            if "pipeline_event_result" in event:
                with self._numbers.lock:
                    tracker.told(event["pipeline_event_result"].event.message)

    def _make_database(self, spark: SparkSession) -> None:
        """Spark wants it to exist, and to the catalog of a project nobody else has access."""
        if self.project.database is not None and self.project.catalog is None:
            name = self.project.database.replace("`", "``")
            spark.sql(f"CREATE DATABASE IF NOT EXISTS `{name}`")

    def _check_names(self, selection: Selection) -> None:
        stored = [dataset.name for dataset in self._graph.datasets.values() if dataset.is_stored]
        for name in (*selection.refresh, *selection.full_refresh):
            if name not in stored and self.project.short(name) not in stored:
                raise PipelineError(f"there is no table called {name} to refresh; there are {', '.join(stored)}")

    def _tables(self, spark: SparkSession, tracker: Tracker) -> tuple[Table, ...]:
        """What was written. Views are small and were made anew, so their rows are counted; tables may be huge."""
        tables = []
        for name in self._written(tracker):
            rows = None
            if self._graph.datasets[name].kind == VIEW:
                rows = spark.table(name).count()
                with self._numbers.lock:
                    tracker.counted(name, rows)
            tables.append(Table(name, rows))
        return tuple(tables)

    def _written(self, tracker: Tracker) -> list[str]:
        """Tables that have a flow which is done, or which has done at least a batch."""
        done = {flow.name for flow in tracker.flows if flow.state is FlowStatus.COMPLETED or flow.batches}
        return [
            dataset.name
            for dataset in self._graph.datasets.values()
            if dataset.is_stored and any(flow.name in done for flow in self._graph.flows_into(dataset.name))
        ]
