"""The demo from beginning to end: a node, the clicks, the example project, and what is to be seen of it meanwhile."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

from barnabas.spark.demo.picture import Picture, Window
from barnabas.spark.demo.progress import PipelineWatch
from barnabas.spark.demo.story import Story
from barnabas.spark.demo.watching import TableWatch, TopicWatch, newest_window
from barnabas.spark.demo.writing import ClickWriter, Written, create_topics, story_start_ms
from barnabas.spark.pipelines import load_project, run_project
from barnabas.spark.pipelines.templates import write_project
from barnabas.testing import EmbeddedBroker

_TICK_S: Final = 0.2
_ENDING_S: Final = 60.0
#: Compiled lightly, one core for the garbage: right for minutes, not for days. The last one is that of all pipelines.
_SETTINGS: Final = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dderby.stream.error.file=/dev/null"
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """What can be chosen. Without `seconds` it runs until it is stopped."""

    rate: float = 200
    seed: int = 1
    seconds: float | None = None
    keep: Path | None = None
    listen: str = "127.0.0.1:0"
    master: str = "local[2]"
    every_s: float = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How it ended. `is_complete`: an update ran after the last click was written, so nothing is on its way."""

    picture: Picture
    written: Written
    #: When the story began: with this, the seed and the rate, all of it can be told again.
    start_ms: int
    is_complete: bool
    #: Clicks in the table, none counted twice.
    distinct_clicks: int
    #: Of the topic of sessions, by user and beginning: how many clicks.
    sessions: Mapping[tuple[str, str], int]
    failure: BaseException | None

    @property
    def is_exact(self) -> bool:
        """Whether each valid click is in the table once, and each broken one among the dead letters."""
        is_in_table = self.written.valid == self.distinct_clicks == self.picture.table_rows
        return is_in_table and self.written.broken == self.picture.dead_letters


class Demo:
    """Everything that runs, and the order in which it starts and ends."""

    def __init__(self, options: DemoOptions, show: Callable[[Picture], None]) -> None:
        self._options = options
        self._show = show
        self._began_s = time.monotonic()
        self._start_ms = story_start_ms()
        self._window: Window | None = None
        self._table_rows = 0

    def run(self, stop: threading.Event) -> Outcome:
        """Return when the seconds are over and all is written, or soon after `stop` is set, or when Spark fails.

        The first picture is shown as soon as the node runs; Spark starts meanwhile.
        """
        with ExitStack() as cleaning:
            temporary = Path(tempfile.mkdtemp(prefix="barnabas-demo-"))
            cleaning.callback(shutil.rmtree, temporary, ignore_errors=True)
            self._start_clicks(cleaning)
            spark = self._start_pipeline(cleaning, temporary)
            is_complete = self._watch(stop, spark)
            self._show(self._picture("stopping Spark"))
            spark.stop()
            self._writer.stop()
            while self._topics.look(timeout_s=_TICK_S):
                pass
            picture = self._picture("done" if is_complete else "stopped")
            self._show(picture)
            return Outcome(
                picture=picture,
                written=self._writer.written,
                start_ms=self._start_ms,
                is_complete=is_complete,
                distinct_clicks=self._tables[0].count_distinct("id"),
                sessions=dict(self._topics.found_sessions),
                failure=spark.failure or self._pipeline.failure,
            )

    def _start_clicks(self, cleaning: ExitStack) -> None:
        """The node, the topics, and somebody who writes to them."""
        options = self._options
        broker = cleaning.enter_context(EmbeddedBroker(listen=options.listen))
        self._bootstrap_servers = broker.bootstrap_servers
        create_topics(self._bootstrap_servers)
        story = Story(seed=options.seed, rate=options.rate, start_ms=self._start_ms)
        self._writer = ClickWriter(story, self._bootstrap_servers, rate=options.rate)
        cleaning.callback(self._writer.stop)
        self._writer.start()

    def _start_pipeline(self, cleaning: ExitStack, temporary: Path) -> _SparkThread:
        """The project, Spark, and those who look at what it does."""
        options = self._options
        # Definition files run in the project's folder, which a relative path would then be counted from.
        folder = options.keep.absolute() if options.keep is not None else temporary / "clickstream"
        write_project(folder, name="clickstream", bootstrap_servers=self._bootstrap_servers)
        project = load_project(folder)
        tables = Path(url2pathname(urlsplit(project.tables).path))
        self._tables = TableWatch(tables / "clicks"), TableWatch(tables / "page_views")
        self._topics = TopicWatch(self._bootstrap_servers)
        cleaning.callback(self._topics.close)
        self._pipeline = PipelineWatch(on_update=self._read_tables)
        spark = _SparkThread(
            lambda told: run_project(
                project,
                master=options.master,
                every_s=options.every_s,
                settings=_SETTINGS,
                reporter=self._pipeline,
                stop=told,
            )
        )
        cleaning.callback(spark.stop)
        spark.start()
        return spark

    def _watch(self, stop: threading.Event, spark: _SparkThread) -> bool:
        """Look and show until it is over; whether an update has taken in everything that was written."""
        is_closing = False
        while not stop.wait(_TICK_S):
            self._topics.look()
            self._show(self._picture("the last update" if is_closing else self._pipeline.phase))
            if spark.is_over or self._writer.failure is not None:
                return False
            if is_closing and self._pipeline.has_taken_in_everything:
                return True
            if not is_closing and self._is_time_over():
                self._writer.stop()
                # Updates that run now may have passed some of the last clicks already: the next one has them all.
                self._pipeline.expect_one_more()
                is_closing = True
        return False

    def _is_time_over(self) -> bool:
        return self._options.seconds is not None and time.monotonic() - self._began_s >= self._options.seconds

    def _read_tables(self) -> None:
        """Between two updates, when nobody writes them."""
        clicks, page_views = self._tables
        self._table_rows = clicks.count_rows()
        views = page_views.read()
        if views is not None:
            self._window = newest_window(views)

    def _picture(self, phase: str) -> Picture:
        written = self._writer.written
        return Picture(
            bootstrap_servers=self._bootstrap_servers,
            elapsed_s=time.monotonic() - self._began_s,
            phase=phase,
            clicks=written.clicks,
            broken=written.broken,
            users=written.users,
            tombstones=written.tombstones,
            trend=tuple(written.trend),
            updates=self._pipeline.updates,
            flows=self._pipeline.flows,
            table_rows=self._table_rows,
            window=self._window,
            sessions=self._topics.sessions,
            last_sessions=tuple(self._topics.last_sessions),
            sessions_trend=self._topics.sessions_trend,
            dead_letters=self._topics.dead_letters,
            causes=dict(self._topics.causes),
            hint=f"barnabas console-consumer --bootstrap-server {self._bootstrap_servers} --topic sessions",
        )


class _SparkThread:
    """The pipeline in a thread of its own, since it waits for Spark most of the time."""

    def __init__(self, work: Callable[[threading.Event], object]) -> None:
        self.failure: BaseException | None = None
        self._work = work
        self._told_to_stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pipeline", daemon=True)

    @property
    def is_over(self) -> bool:
        return self._thread.ident is not None and not self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Return when Spark is gone. Stopping again does nothing.

        A Spark that was killed is asked in vain; it is not waited for longer than a living one could take.
        """
        self._told_to_stop.set()
        if self._thread.ident is not None:
            self._thread.join(_ENDING_S)

    def _run(self) -> None:
        try:
            self._work(self._told_to_stop)
        except BaseException as failure:
            # The thread ends here; whoever looks at the outcome hears why.
            self.failure = failure
