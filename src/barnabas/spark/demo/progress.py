"""What the pipeline tells while it runs, kept for whoever draws it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from barnabas.spark.demo.picture import Flow
from barnabas.spark.pipelines.failures import PipelineError
from barnabas.spark.pipelines.graph import Graph
from barnabas.spark.pipelines.reporting import FlowState, Outcome, Summary

STARTING = "Spark is starting, which takes about 15 seconds"


class PipelineWatch:
    """A reporter of pipelines. `on_update` is called after each update, while nobody writes the tables."""

    def __init__(self, on_update: Callable[[], None] = lambda: None) -> None:
        self.phase = STARTING
        #: Updates that have ended well.
        self.updates = 0
        #: What ended the pipeline, if something did.
        self.failure: PipelineError | None = None
        self._on_update = on_update
        self._flows: dict[str, Flow] = {}
        self._lock = threading.Lock()
        self._running = 0
        self._awaited: int | None = None

    @property
    def flows(self) -> tuple[Flow, ...]:
        """In the order in which they were first heard of, which stays the same."""
        with self._lock:
            return tuple(self._flows.values())

    @property
    def has_taken_in_everything(self) -> bool:
        """Whether an update has ended that began after `expect_one_more` was called."""
        with self._lock:
            return self._awaited is not None and self.updates >= self._awaited

    def expect_one_more(self) -> None:
        """The update that runs, or the next that begins, may have passed what came last; the one after has it all."""
        with self._lock:
            self._awaited = self._running + 1

    def said(self, text: str) -> None:
        pass

    def defined(self, graph: Graph) -> None:
        """All flows are there from now on, though nothing is known of them yet."""
        with self._lock:
            for name in graph.flows:
                if name not in graph.datasets or graph.datasets[name].is_stored:
                    self._flows.setdefault(name, Flow(name, "queued"))

    def update_started(self, number: int) -> None:
        with self._lock:
            self._running = number
        self.phase = f"update {number}"

    def flow_changed(self, flow: FlowState) -> None:
        shown = Flow(flow.name, flow.state.value, flow.rows, flow.rows_per_s, flow.lag_records, flow.batch_s)
        with self._lock:
            self._flows[flow.name] = shown

    def update_ended(self, number: int, summary: Summary) -> None:
        if summary.failure is not None:
            self.failure = PipelineError(summary.failure, summary.details)
        if summary.outcome is not Outcome.COMPLETED:
            return
        self._on_update()
        with self._lock:
            self.updates = number
