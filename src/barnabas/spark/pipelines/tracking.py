"""From what Spark tells of an update to the state of its flows.

Two streams of events are put together. The pipeline itself tells in sentences which flow entered which state, and no
numbers. The streaming queries under it tell numbers after every batch, and carry the name of their flow. Batch flows
(materialized views) tell no numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from barnabas.spark.pipelines.reporting import FlowState, State

#: How `quality` names the counts that it asks Spark for: a prefix, then what tells one use of rules from another.
METRICS_PREFIX: Final = "barnabas.quality "
#: The counts in there that are not those of a rule.
ROWS_METRIC: Final = "(rows)"
BAD_METRIC: Final = "(bad)"

_ENTERED: Final = re.compile(r"^Flow (?P<quote>'?)(?P<name>.+?)(?P=quote) (?:is |has |)(?P<state>[A-Z]+)\b")
_DONE_BEFORE: Final = re.compile(r"^Flow '(?P<name>.+)' has been processed by a previous iteration")
_BY_ANOTHER: Final = "due to upstream failure"
_UNRESOLVED: Final = re.compile(r"^Failed to resolve flow.*: '(?P<name>.+?)'\.")


class Tracker:
    """The flows of one update. Not for several threads at once."""

    def __init__(self, changed: Callable[[FlowState], None], short: Callable[[str], str] = str) -> None:
        self._changed = changed
        self._short = short
        self._flows: dict[str, FlowState] = {}
        #: By use of rules and flow, since several flows may read what one use of rules has passed.
        self._bad: dict[str, dict[str, int]] = {}
        self._failed: dict[str, str] = {}
        self._failed_by_others: dict[str, str] = {}

    @property
    def flows(self) -> tuple[FlowState, ...]:
        return tuple(self._flows.values())

    @property
    def bad_records(self) -> int:
        """What one use of rules has seen is counted once, by the flow that saw most."""
        return sum(max(by_flow.values()) for by_flow in self._bad.values())

    @property
    def failed(self) -> list[tuple[str, str]]:
        """Flows that failed and what Spark said then; those that failed only because another did come last."""
        return [*self._failed.items(), *self._failed_by_others.items()]

    def told(self, message: str) -> State | None:
        """A sentence of the pipeline; the state that it speaks of, if it does."""
        found = _ENTERED.match(message)
        if found is not None and found["state"] in State.__members__:
            name, state = found["name"], State[found["state"]]
        elif (unresolved := _UNRESOLVED.match(message)) is not None:
            name, state = unresolved["name"], State.FAILED
        elif (done := _DONE_BEFORE.match(message)) is not None:
            name, state = done["name"], State.SKIPPED
        else:
            return None
        name = self._short(name)
        if state is State.FAILED:
            failed = self._failed_by_others if _BY_ANOTHER in message.partition("\n")[0] else self._failed
            # The last try of a flow tells more than that it was the last one: so does the first.
            failed.setdefault(name, message.partition("\nError: ")[2] or message)
        self._put(replace(self._flow(name), state=state))
        return state

    def progressed(self, progress: Mapping[str, Any]) -> None:
        """The JSON of a progress, as a `StreamingQueryListener` gets it."""
        if not progress.get("name"):
            return
        flow = self._flow(self._short(progress["name"]))
        rows = int(progress.get("numInputRows") or 0)
        written = int((progress.get("sink") or {}).get("numOutputRows", -1))
        batch_ms = progress.get("batchDuration")
        per_s = progress.get("processedRowsPerSecond")
        lag = lag_records(progress)
        metrics = {
            name: counts
            for name, counts in (progress.get("observedMetrics") or {}).items()
            if name.startswith(METRICS_PREFIX)
        }
        self._put(
            replace(
                flow,
                rows=(flow.rows or 0) + rows,
                rows_written=flow.rows_written if written < 0 else (flow.rows_written or 0) + written,
                # A batch without rows tells nothing of speed.
                rows_per_s=float(per_s) if per_s and rows else flow.rows_per_s,
                lag_records=flow.lag_records if lag is None else lag,
                batch_s=flow.batch_s if batch_ms is None else batch_ms / 1000,
                batches=flow.batches + 1,
                bad=flow.bad + self._bad_rows(flow, metrics),
                broken=_broken(flow, metrics),
            )
        )

    def counted(self, name: str, rows: int) -> None:
        """What a batch flow wrote: nobody tells, but it can be counted afterwards."""
        if name in self._flows:
            self._put(replace(self._flows[name], rows_written=rows))

    def stopped(self) -> None:
        """Nobody will tell the end of flows that were stopped."""
        for flow in self.flows:
            if not flow.state.is_final:
                self._put(replace(flow, state=State.STOPPED))

    def _bad_rows(self, flow: FlowState, metrics: Mapping[str, Mapping[str, Any]]) -> int:
        bad = 0
        for name, counts in metrics.items():
            count = int(counts.get(BAD_METRIC) or 0)
            by_flow = self._bad.setdefault(name, {})
            by_flow[flow.name] = by_flow.get(flow.name, 0) + count
            bad += count
        return bad

    def _flow(self, name: str) -> FlowState:
        return self._flows.get(name) or FlowState(name, State.QUEUED)

    def _put(self, flow: FlowState) -> None:
        self._flows[flow.name] = flow
        self._changed(flow)


def _broken(flow: FlowState, metrics: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    broken = dict(flow.broken)
    for counts in metrics.values():
        for rule, count in counts.items():
            if rule not in (ROWS_METRIC, BAD_METRIC):
                broken[rule] = broken.get(rule, 0) + int(count or 0)
    return broken


def lag_records(progress: Mapping[str, Any]) -> int | None:
    """How much the topics had more than was read; None if the sources are no topics, or do not tell."""
    from barnabas.spark.core.errors import SparkConnectorError
    from barnabas.spark.lag import lag

    try:
        partitions = lag(progress)
    except (SparkConnectorError, ValueError):
        return None
    return sum(max(0, each.records) for each in partitions) if partitions else None
