"""From what Spark tells of an update to the state of its flows.

Two streams of events are put together. The pipeline itself tells in sentences which flow entered which state, and no
numbers. The streaming queries under it tell numbers after every batch, and carry the name of their flow. Batch flows
(materialized views) tell no numbers.

The pipeline says of every streaming query that ends, even of one that fails, that its flow has completed; so that is
believed only when the query itself has told how it ended.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from barnabas.spark.pipelines.graph import Graph
from barnabas.spark.pipelines.reporting import Delivered, FlowLag, FlowState, FlowStatus

#: How `quality` names the counts that it asks Spark for: a prefix, then what tells one use of rules from another.
METRICS_PREFIX: Final = "barnabas.quality "
#: The count in there that is not that of a rule.
BAD_METRIC: Final = "(bad)"

_ENTERED: Final = re.compile(r"^Flow (?P<quote>'?)(?P<name>.+?)(?P=quote) (?:is |has |)(?P<state>[A-Z]+)\b")
_DONE_BEFORE: Final = re.compile(r"^Flow '(?P<name>.+)' has been processed by a previous iteration")
_LAST_TRY: Final = "will not be restarted"
_BY_ANOTHER: Final = "due to upstream failure"
_UNRESOLVED: Final = re.compile(r"^Failed to resolve flow.*: '(?P<name>.+?)'\.")


class Tracker:
    """The flows of one update. Not for several threads at once.

    `earlier` are the flows of the update before: speed and lag of a flow that has nothing new to read are as they were.
    `retries` is how often Spark tries a flow again that failed. `delivered` is what each flow has decided in the run so
    far, which is kept there for the next update.
    """

    def __init__(
        self,
        changed: Callable[[FlowState], None],
        short: Callable[[str], str] = str,
        *,
        earlier: Iterable[FlowState] = (),
        retries: int = 2,
        delivered: dict[str, Delivered] | None = None,
    ) -> None:
        self._changed = changed
        self._short = short
        self._earlier = {flow.name: flow for flow in earlier}
        self._tries = retries + 1
        self._delivered_ever = {} if delivered is None else delivered
        self._delivered_before: dict[str, Delivered] = {}
        self._order: dict[str, int] = {}
        self._flows: dict[str, FlowState] = {}
        #: Flows without a query: only these are planned in a step of its own.
        self._planned: set[str] = set()
        #: Flows whose query has told its end, whether or not it failed, and those that are only said to have completed.
        self._ended: dict[str, bool] = {}
        self._completed: dict[str, None] = {}
        #: How many ends of queries the pipeline has spoken of; each query tells its own end as well.
        self.ends = 0
        #: By use of rules and flow, since several flows may read what one use of rules has passed.
        self._bad: dict[str, dict[str, int]] = {}
        self._failed: dict[str, str] = {}
        self._failed_by_others: dict[str, str] = {}

    @property
    def flows(self) -> tuple[FlowState, ...]:
        """In the order in which they are defined."""
        last = len(self._order)
        return tuple(sorted(self._flows.values(), key=lambda flow: self._order.get(flow.name, last)))

    @property
    def bad_records(self) -> int:
        """What one use of rules has seen is counted once, by the flow that saw most."""
        return sum(max(by_flow.values()) for by_flow in self._bad.values())

    @property
    def failed(self) -> list[tuple[str, str]]:
        """Flows that failed and what Spark said then; those that failed only because another did come last."""
        return [*self._failed.items(), *self._failed_by_others.items()]

    def defined(self, graph: Graph) -> None:
        self._order = {name: number for number, name in enumerate(graph.flows)}

    def query_ended(self, name: str, *, has_failed: bool) -> None:
        name = self._short(name)
        self._ended[name] = has_failed
        if not has_failed and name in self._completed:
            del self._completed[name]
            self._put(replace(self._flow(name), state=FlowStatus.COMPLETED))

    def settled(self) -> None:
        """The update has ended well: so has all that was said to."""
        for name in self._completed:
            self._put(replace(self._flow(name), state=FlowStatus.COMPLETED))
        self._completed.clear()

    def told(self, message: str) -> None:
        """A sentence of the pipeline: of a flow that entered a state, or of something else."""
        found = _ENTERED.match(message)
        if found is not None and found["state"] in FlowStatus.__members__:
            name, state = found["name"], FlowStatus[found["state"]]
        elif (unresolved := _UNRESOLVED.match(message)) is not None:
            name, state = unresolved["name"], FlowStatus.FAILED
        elif (done := _DONE_BEFORE.match(message)) is not None:
            name, state = done["name"], FlowStatus.SKIPPED
        else:
            return
        name = self._short(name)
        flow = self._flow(name)
        if state is FlowStatus.COMPLETED and name not in self._planned:
            self.ends += 1
            if self._ended.get(name) is not False:
                self._completed[name] = None
                return
        self._completed.pop(name, None)
        if state is FlowStatus.PLANNING:
            self._planned.add(name)
        elif state is FlowStatus.RUNNING and name not in self._planned:
            self._ended.pop(name, None)
            # It reads rows, even if it turns out that there are none.
            flow = replace(flow, rows=flow.rows or 0)
        if state is FlowStatus.FAILED:
            flow = replace(flow, failures=flow.failures + 1, tries=self._tries)
            if found is not None and _LAST_TRY not in message and flow.failures < self._tries:
                state = FlowStatus.RETRYING
            failed = self._failed_by_others if _BY_ANOTHER in message.partition("\n")[0] else self._failed
            # The last try of a flow tells more than that it was the last one: so does the first.
            failed.setdefault(name, message.partition("\nError: ")[2] or message)
        self._put(replace(flow, state=state))

    def progressed(
        self,
        progress: Mapping[str, Any],
        lag: FlowLag | None = None,
        delivered: Delivered | None = None,
        bytes_read: int | None = None,
    ) -> None:
        """The JSON of a progress, as a `StreamingQueryListener` gets it, and what the brokers tell since: the lag, what
        is decided in this run, and how large the rows of this batch were.

        The ends in the progress are what the update is to read, as it was found at its start."""
        if not progress.get("name"):
            return
        flow = self._flow(self._short(progress["name"]))
        rows = int(progress.get("numInputRows") or 0)
        written = int((progress.get("sink") or {}).get("numOutputRows", -1))
        batch_ms = progress.get("batchDuration")
        per_s = progress.get("processedRowsPerSecond")
        left = lag_records(progress)
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
                lag_records=flow.lag_records if lag is None else lag.records,
                lag_s=flow.lag_s if lag is None else lag.seconds,
                bytes_read=flow.bytes_read if bytes_read is None else (flow.bytes_read or 0) + bytes_read,
                **self._delivered(flow, delivered),
                left_records=flow.left_records if left is None else left,
                batch_s=flow.batch_s if batch_ms is None else batch_ms / 1000,
                batches=flow.batches + 1,
                bad=flow.bad + self._bad_rows(flow, metrics),
                broken=_broken(flow, metrics),
            )
        )

    def lagged(self, name: str, lag: FlowLag) -> None:
        """How far the topics of a flow are ahead by now."""
        flow = self._flows.get(name)
        if flow is not None and (flow.lag_records, flow.lag_s) != lag:
            self._put(replace(flow, lag_records=lag.records, lag_s=lag.seconds))

    def _delivered(self, flow: FlowState, delivered: Delivered | None) -> dict[str, Any]:
        """Of this update: what was decided before in the run is that of the updates before."""
        if delivered is None:
            return {}
        before = self._delivered_before.setdefault(
            flow.name, self._delivered_ever.get(flow.name, Delivered(0, 0, 0, 0))
        )
        self._delivered_ever[flow.name] = delivered
        return {
            "bytes_written": delivered.size_bytes - before.size_bytes,
            "transactions_decided": delivered.decided - before.decided,
            "transactions_open": delivered.open,
        }

    def counted(self, name: str, rows: int) -> None:
        """What a batch flow wrote: nobody tells, but it can be counted afterwards."""
        if name in self._flows:
            self._put(replace(self._flows[name], rows_written=rows))

    def stopped(self) -> None:
        """Nobody will tell the end of flows that were stopped, nor of those that Spark would have tried again."""
        for flow in self.flows:
            if not flow.state.is_final:
                is_failed = flow.state is FlowStatus.RETRYING
                self._put(replace(flow, state=FlowStatus.FAILED if is_failed else FlowStatus.STOPPED))

    def _bad_rows(self, flow: FlowState, metrics: Mapping[str, Mapping[str, Any]]) -> int:
        bad = 0
        for name, counts in metrics.items():
            count = int(counts.get(BAD_METRIC) or 0)
            by_flow = self._bad.setdefault(name, {})
            by_flow[flow.name] = by_flow.get(flow.name, 0) + count
            bad += count
        return bad

    def _flow(self, name: str) -> FlowState:
        flow = self._flows.get(name)
        if flow is not None:
            return flow
        before = self._earlier.get(name)
        if before is None:
            return FlowState(name, FlowStatus.QUEUED)
        return FlowState(
            name,
            FlowStatus.QUEUED,
            rows_per_s=before.rows_per_s,
            lag_records=before.lag_records,
            lag_s=before.lag_s,
            batch_s=before.batch_s,
            broken=dict.fromkeys(before.broken, 0),
        )

    def _put(self, flow: FlowState) -> None:
        self._flows[flow.name] = flow
        self._changed(flow)


def _broken(flow: FlowState, metrics: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    broken = dict(flow.broken)
    for counts in metrics.values():
        for rule, count in counts.items():
            if rule != BAD_METRIC:
                broken[rule] = broken.get(rule, 0) + int(count or 0)
    return broken


def lag_records(progress: Mapping[str, Any]) -> int | None:
    """How much more the ends in a progress are than was read; None if the sources are no topics, or do not tell."""
    from barnabas.spark.core.errors import SparkConnectorError
    from barnabas.spark.lag import lag

    try:
        partitions = lag(progress)
    except (SparkConnectorError, ValueError):
        return None
    return sum(max(0, each.records) for each in partitions) if partitions else None
