"""What the pipeline tells while it runs, kept for whoever draws it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from barnabas.spark.demo.picture import STARTING, STARTING_AGAIN, FlowTotals
from barnabas.spark.pipelines.failures import PipelineError
from barnabas.spark.pipelines.graph import VIEW, Graph
from barnabas.spark.pipelines.reporting import FlowState, FlowStatus, Summary, UpdateResult


class PipelineWatch:
    """A reporter of pipelines. `on_flow` is called with the name of each flow that has ended well: nobody writes its
    table until the next update.

    Rows of streaming flows are those of all updates. An update that finds nothing new tells no numbers, so what was
    known before stays.
    """

    def __init__(self, on_flow: Callable[[str], None] = lambda name: None) -> None:
        self.phase = STARTING
        #: Updates that have ended well.
        self.updates = 0
        #: What ended the pipeline, if something did.
        self.failure: PipelineError | None = None
        self._on_flow = on_flow
        self._flows: dict[str, FlowTotals] = {}
        #: As they were when the update began.
        self._before: dict[str, FlowTotals] = {}
        self._views: set[str] = set()
        self._lock = threading.Lock()
        #: Updates are counted over all runs of Spark: how many there were before this one, the one that runs, and the
        #: last that ended well.
        self._earlier = 0
        self._running = 0
        self._done = 0
        self._awaited: int | None = None

    @property
    def flows(self) -> tuple[FlowTotals, ...]:
        """In the order in which they were first heard of, which stays the same."""
        with self._lock:
            return tuple(self._flows.values())

    @property
    def broken_off(self) -> int | None:
        """The number of the update that began and has not ended well, if there is one."""
        with self._lock:
            return self._running if self._running > self._done else None

    @property
    def has_taken_in_everything(self) -> bool:
        """Whether an update has ended that began after `expect_one_more` was called."""
        with self._lock:
            return self._awaited is not None and self._done >= self._awaited

    def expect_one_more(self) -> None:
        """All is written. The update that runs may have passed what came last; the next one to begin has it all."""
        with self._lock:
            self._awaited = self._running + 1

    def starts_again(self) -> None:
        """Spark is gone, and comes back: it counts updates from 1 again."""
        with self._lock:
            self._earlier = self._running
            self.failure = None
        self.phase = STARTING_AGAIN

    def said(self, text: str) -> None:
        pass

    def defined(self, graph: Graph) -> None:
        """All flows are there from now on, though nothing is known of them yet."""
        with self._lock:
            for name in graph.flows:
                if name not in graph.datasets or graph.datasets[name].is_stored:
                    self._flows.setdefault(name, FlowTotals(name, "queued"))
            self._views = {name for name, dataset in graph.datasets.items() if dataset.kind == VIEW}

    def update_started(self, number: int) -> None:
        with self._lock:
            self._running = self._earlier + number
            self._before = dict(self._flows)
        self.phase = f"update {self._running}"

    def flow_changed(self, flow: FlowState) -> None:
        with self._lock:
            self._flows[flow.name] = self._shown(flow, self._before.get(flow.name, FlowTotals(flow.name, "queued")))
        if flow.state is FlowStatus.COMPLETED:
            self._on_flow(flow.name)

    def update_ended(self, number: int, summary: Summary) -> None:
        if summary.failure is not None:
            self.failure = PipelineError(summary.failure, summary.details)
        if summary.outcome is UpdateResult.COMPLETED:
            with self._lock:
                self.updates += 1
                self._done = self._earlier + number

    def _shown(self, flow: FlowState, before: FlowTotals) -> FlowTotals:
        # A view is computed anew each time: what it had before is not to be added.
        added = _last if flow.name in self._views else _sum
        return FlowTotals(
            flow.name,
            flow.state.value,
            rows_in=added(before.rows_in, flow.rows),
            rows_out=added(before.rows_out, flow.rows_written),
            lag=_last(before.lag, flow.lag_records),
        )


def _sum(before: int | None, now: int | None) -> int | None:
    return _last(before, now) if before is None or now is None else before + now


def _last(before: int | None, now: int | None) -> int | None:
    return before if now is None else now
