"""The demo from beginning to end: a node, the clicks, the example project, and what is to be seen of it meanwhile."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from barnabas.spark.demo.counting import sessions_of
from barnabas.spark.demo.picture import Picture, Window
from barnabas.spark.demo.progress import PipelineWatch
from barnabas.spark.demo.story import Story
from barnabas.spark.demo.watching import TableWatch, TopicWatch, newest_window
from barnabas.spark.demo.writing import CLICKS, ClickWriter, WrittenClicks, create_topics, story_start_ms
from barnabas.spark.pipelines import PipelineError, load_project, run_project
from barnabas.spark.pipelines.project import Project, folder_of
from barnabas.spark.pipelines.templates import check_folder, write_project
from barnabas.testing import EmbeddedBroker

_MASTER: Final = "local[2]"
_PAGE_VIEWS: Final = "page_views"
_LAST_UPDATE: Final = "the last update (Ctrl-C: do not wait)"
_TICK_S: Final = 0.2
_ENDING_S: Final = 60.0
_CREATING_S: Final = 60.0
#: Compiled lightly, one core for the garbage: right for minutes, not for days.
_SETTINGS: Final = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
#: How often a Spark that somebody kills is started again.
_MOST_STARTS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """What can be chosen. Without `seconds` it runs until it is stopped."""

    rate: float = 200
    seed: int = 1
    seconds: float | None = None
    keep: Path | None = None
    listen: str = "127.0.0.1:0"
    every_s: float = 1
    #: Of Spark, over ours.
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """How it ended. `is_complete`: an update ran after the last click was written, so nothing is on its way."""

    picture: Picture
    written: WrittenClicks
    #: When the story began: with this, the seed and the rate, all of it can be told again.
    start_ms: int
    is_complete: bool
    #: Clicks in the table, none counted twice.
    distinct_clicks: int
    #: The number of the update that was under way when it ended, if one was.
    broken_off: int | None
    #: Of the topic of sessions, by user and beginning: how many clicks.
    sessions: Mapping[tuple[str, str], int]
    #: Those that are over when all clicks that were written are known.
    expected_sessions: Mapping[tuple[str, str], int]
    #: Records of the topics of sessions and dead letters that were there before.
    twice: int
    failure: BaseException | None
    #: How often Spark was gone and came back.
    restarts: int = 0

    @property
    def is_exact(self) -> bool:
        """Whether each valid click is in the table once, each broken one among the dead letters once, and each session
        that is over in its topic once, with all of its clicks."""
        is_in_table = self.written.valid == self.distinct_clicks == self.picture.table_rows
        is_in_topics = self.written.broken == self.picture.dead_letters and self.sessions == self.expected_sessions
        return is_in_table and is_in_topics and not self.twice


class Demo:
    """Everything that runs, and the order in which it starts and ends."""

    def __init__(self, options: DemoOptions, show: Callable[[Picture], None]) -> None:
        self._options = options
        self._show = show
        self._began_s = time.monotonic()
        self._start_ms = story_start_ms()
        self._window: Window | None = None
        self._table_rows = 0
        self._failure: BaseException | None = None
        self._restarts = 0

    def run(self, stop: threading.Event, enough: threading.Event | None = None) -> DemoResult:
        """Return when the seconds are over (or `enough` is set) and all that was written is taken in; or soon after
        `stop` is set; or when Spark fails.

        The first picture is shown as soon as the node runs; Spark starts meanwhile.
        """
        if self._options.keep is not None:
            check_folder(self._options.keep)
        with ExitStack() as cleaning:
            temporary = Path(tempfile.mkdtemp(prefix="barnabas-demo-"))
            cleaning.callback(self._clean, temporary)
            self._start_clicks(cleaning)
            spark = self._start_pipeline(cleaning, temporary)
            is_complete = self._watch(stop, enough or threading.Event(), spark)
            # What nobody will read need not be written while Spark takes its time.
            self._writer.stop()
            self._see_out(spark)
            is_complete = self._topics.look_to_the_end(_ENDING_S) and is_complete
            self._read_table(CLICKS)
            picture = self._picture("done" if is_complete else "stopped")
            self._show(picture)
            self._failure = spark.failure or self._pipeline.failure
            return DemoResult(
                picture=picture,
                written=self._writer.written,
                start_ms=self._start_ms,
                is_complete=is_complete,
                distinct_clicks=self._clicks.count_distinct("id"),
                broken_off=self._pipeline.broken_off,
                sessions=dict(self._topics.found_sessions),
                expected_sessions=self._expected_sessions() if is_complete else {},
                twice=self._topics.twice,
                failure=self._failure,
                restarts=self._restarts,
            )

    def _expected_sessions(self) -> dict[tuple[str, str], int]:
        story = Story(seed=self._options.seed, rate=self._options.rate, start_ms=self._start_ms)
        return sessions_of(story.clicks(self._writer.written.clicks).clicks)

    def _clean(self, temporary: Path) -> None:
        """Leave nothing, but for files that the failure tells people to look into."""
        named = [path for path in temporary.rglob("*") if path.is_file() and str(path) in str(self._failure)]
        kept = {path: path.read_bytes() for path in named}
        shutil.rmtree(temporary, ignore_errors=True)
        for path, content in kept.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def _start_clicks(self, cleaning: ExitStack) -> None:
        """The node, the topics, and somebody who writes to them."""
        options = self._options
        broker = cleaning.enter_context(EmbeddedBroker(listen=options.listen))
        self._bootstrap_servers = broker.bootstrap_servers
        create_topics(self._bootstrap_servers, _CREATING_S)
        story = Story(seed=options.seed, rate=options.rate, start_ms=self._start_ms)
        self._writer = ClickWriter(story, self._bootstrap_servers, rate=options.rate)
        self._writer.start()
        cleaning.callback(self._writer.stop)

    def _start_pipeline(self, cleaning: ExitStack, temporary: Path) -> _SparkThread:
        """The project, Spark, and those who look at what it does."""
        options = self._options
        # Definition files run in the project's folder, which a relative path would then be counted from.
        folder = options.keep.absolute() if options.keep is not None else temporary / "clickstream"
        write_project(folder, name="clickstream", bootstrap_servers=self._bootstrap_servers)
        project = load_project(folder)
        tables = folder_of(project.tables)
        self._clicks, self._page_views = TableWatch(tables / CLICKS), TableWatch(tables / _PAGE_VIEWS)
        self._topics = TopicWatch(self._bootstrap_servers)
        cleaning.callback(self._topics.close)
        self._pipeline = PipelineWatch(on_flow=self._read_table)
        spark = _SparkThread(lambda told: self._run_pipeline(project, told))
        spark.start()
        cleaning.callback(spark.stop)
        return spark

    def _run_pipeline(self, project: Project, told_to_stop: threading.Event) -> None:
        """Again and again, if somebody kills Spark: everything goes on where it was."""
        failed: PipelineError | None = None
        for _ in range(_MOST_STARTS):
            try:
                summary = run_project(
                    project,
                    master=_MASTER,
                    every_s=self._options.every_s,
                    settings={**_SETTINGS, **self._options.settings},
                    reporter=self._pipeline,
                    stop=told_to_stop,
                )
                is_spark_gone, failed = summary.is_spark_gone, None
            except PipelineError as problem:
                # What has started here before, can: it was killed again on the way. Twice in a row it was not that.
                if failed is not None or not self._restarts:
                    raise
                is_spark_gone, failed = True, problem
            if told_to_stop.is_set() or not is_spark_gone:
                return
            self._pipeline.starts_again()
            self._restarts += 1
        raise PipelineError(f"Spark was gone {_MOST_STARTS} times: something ends it")

    def _watch(self, stop: threading.Event, enough: threading.Event, spark: _SparkThread) -> bool:
        """Look and show until it is over; whether an update has taken in everything that was written."""
        is_closing = False
        while not stop.wait(_TICK_S):
            self._topics.look()
            self._show(self._picture(_LAST_UPDATE if is_closing else self._pipeline.phase))
            if spark.is_over or self._writer.failure is not None:
                return False
            if is_closing and self._pipeline.has_taken_in_everything:
                return True
            if not is_closing and (enough.is_set() or self._is_time_over()):
                self._writer.stop()
                # Updates that run now may have passed some of the last clicks already: the next one has them all.
                self._pipeline.expect_one_more()
                is_closing = True
        return False

    def _see_out(self, spark: _SparkThread) -> None:
        """Go on looking and showing until Spark is gone, which takes seconds, or does not want to go."""
        spark.tell_to_stop()
        give_up_s = time.monotonic() + _ENDING_S
        while not spark.has_ended_within(_TICK_S) and time.monotonic() < give_up_s:
            self._topics.look()
            self._show(self._picture("stopping Spark"))

    def _is_time_over(self) -> bool:
        return self._options.seconds is not None and time.monotonic() - self._began_s >= self._options.seconds

    def _read_table(self, name: str) -> None:
        """After the flow into it, when nobody writes it."""
        if name == CLICKS:
            self._table_rows = self._clicks.count_rows()
        elif name == _PAGE_VIEWS:
            views = self._page_views.read()
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
            users_gone=written.users_gone,
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
            hint=(
                f"barnabas console-consumer --bootstrap-server {self._bootstrap_servers}"
                " --topic sessions --from-beginning"
            ),
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
        return not self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def tell_to_stop(self) -> None:
        self._told_to_stop.set()

    def has_ended_within(self, seconds: float) -> bool:
        self._thread.join(seconds)
        return self.is_over

    def stop(self) -> None:
        """Return when Spark is gone. Stopping again does nothing.

        A Spark that was killed is asked in vain; it is not waited for longer than a living one could take.
        """
        if not self._told_to_stop.is_set():
            self.tell_to_stop()
            self.has_ended_within(_ENDING_S)

    def _run(self) -> None:
        try:
            self._work(self._told_to_stop)
        except BaseException as failure:
            # The thread ends here; whoever looks at the outcome hears why.
            self.failure = failure
