"""What a run tells while it goes on: the state of each flow, and a summary at the end. Nothing here knows of Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol

from barnabas.spark.pipelines.graph import Graph


class FlowStatus(Enum):
    """Where a flow is; the names are those of Spark."""

    QUEUED = "queued"
    PLANNING = "planning"
    STARTING = "starting"
    RUNNING = "running"
    IDLE = "idle"
    #: Failed, and Spark will try again. A state of ours: Spark says "failed" then as well.
    RETRYING = "trying again"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"
    EXCLUDED = "excluded"
    STOPPED = "stopped"

    @property
    def is_final(self) -> bool:
        return self in _FINAL


_FINAL = frozenset(
    {FlowStatus.COMPLETED, FlowStatus.FAILED, FlowStatus.SKIPPED, FlowStatus.EXCLUDED, FlowStatus.STOPPED}
)


class UpdateResult(Enum):
    """How an update, or a whole run, ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"


class FlowLag(NamedTuple):
    """How far topics are ahead of a flow: in records, and by the age of the first that it has not read, if known."""

    records: int
    seconds: float | None = None


class Delivered(NamedTuple):
    """What a flow has decided that writes exactly once: transactions, rows, and bytes of keys and values. And how many
    transactions are open, where the cluster tells."""

    decided: int
    open: int | None
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class FlowState:
    """One flow in one update. Numbers that are not known are None: a batch flow tells none while it runs."""

    name: str
    state: FlowStatus
    #: Read from the sources of this flow.
    rows: int | None = None
    #: Given to the target, where that tells: topics do, files do not.
    rows_written: int | None = None
    rows_per_s: float | None = None
    #: Records that the topics had more when they were last asked: after a batch, and at the end of an update.
    lag_records: int | None = None
    #: The last batch.
    batch_s: float | None = None
    batches: int = 0
    #: Rows that broke a rule of `quality`, and how many broke which; one may break several.
    bad: int = 0
    broken: Mapping[str, int] = field(default_factory=dict)
    #: Records that this update has still to read: it takes in what was there when it started.
    left_records: int | None = None
    #: How often it has failed in this update, and how often Spark tries at most.
    failures: int = 0
    tries: int = 0
    #: The age of the first record of the lag.
    lag_s: float | None = None
    #: Of keys and values that were given to a topic, where the flow is exactly once; and what it read, as that lies in
    #: the log, estimated.
    bytes_written: int | None = None
    bytes_read: int | None = None
    #: Transactions of a flow that is exactly once: those of decided batches, and those that are open now.
    transactions_decided: int | None = None
    transactions_open: int | None = None

    @property
    def state_text(self) -> str:
        """The state in words, with the number of the next try where there is one."""
        if self.state is FlowStatus.RETRYING:
            return f"failed, trying again ({self.failures + 1} of {self.tries})"
        text: str = self.state.value
        return text

    @property
    def share_done(self) -> float | None:
        """From 0 to 1, as far as it can be known."""
        if self.state is FlowStatus.COMPLETED:
            return 1.0
        if not self.rows or self.left_records is None:
            return None
        return self.rows / (self.rows + self.left_records)


@dataclass(frozen=True, slots=True)
class Table:
    """A table that a run wrote, and how many rows it has now, if that was counted."""

    name: str
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """What an update did; of a run with several, all of them together."""

    outcome: UpdateResult
    seconds: float
    flows: tuple[FlowState, ...] = ()
    tables: tuple[Table, ...] = ()
    updates: int = 1
    #: Rows that broke at least one rule. One that several flows read counts once.
    bad_records: int = 0
    #: What went wrong, in one sentence.
    failure: str | None = None
    #: All that Spark said about it.
    details: str = ""
    #: Whether Spark itself has ended in the middle, as it does if somebody kills its driver.
    is_spark_gone: bool = False


class Reporter(Protocol):
    """Who wants to know. Calls come from several threads, one at a time."""

    def said(self, text: str) -> None:
        """What is going on that takes a while, like the start of Spark."""

    def update_started(self, number: int) -> None:
        """Updates are counted from 1."""

    def defined(self, graph: Graph) -> None:
        """What the definition files say; in each update, as they may have changed."""

    def flow_changed(self, flow: FlowState) -> None:
        """A flow entered a state, or finished a batch."""

    def update_ended(self, number: int, summary: Summary) -> None:
        """Of this update alone; `run_project` returns that of all."""


class Silent:
    """A reporter that keeps everything to itself."""

    def said(self, text: str) -> None:
        pass

    def update_started(self, number: int) -> None:
        pass

    def defined(self, graph: Graph) -> None:
        pass

    def flow_changed(self, flow: FlowState) -> None:
        pass

    def update_ended(self, number: int, summary: Summary) -> None:
        pass


def together(earlier: Summary, update: Summary) -> Summary:
    """The summary of a run after one more of its updates."""
    flows = {flow.name: flow for flow in earlier.flows}
    for flow in update.flows:
        flows[flow.name] = _added(flows.get(flow.name), flow)
    tables = {table.name: table for table in (*earlier.tables, *update.tables)}
    return Summary(
        outcome=update.outcome,
        seconds=earlier.seconds + update.seconds,
        flows=tuple(flows.values()),
        tables=tuple(tables.values()),
        updates=earlier.updates + update.updates,
        bad_records=earlier.bad_records + update.bad_records,
        failure=update.failure,
        details=update.details,
        is_spark_gone=update.is_spark_gone,
    )


def _added(earlier: FlowState | None, now: FlowState) -> FlowState:
    if earlier is None:
        return now
    return FlowState(
        name=now.name,
        state=now.state,
        rows=_sum(earlier.rows, now.rows),
        rows_written=_sum(earlier.rows_written, now.rows_written),
        rows_per_s=now.rows_per_s if now.rows_per_s is not None else earlier.rows_per_s,
        lag_records=now.lag_records if now.lag_records is not None else earlier.lag_records,
        lag_s=now.lag_s if now.lag_records is not None else earlier.lag_s,
        bytes_written=_sum(earlier.bytes_written, now.bytes_written),
        bytes_read=_sum(earlier.bytes_read, now.bytes_read),
        transactions_decided=_sum(earlier.transactions_decided, now.transactions_decided),
        transactions_open=now.transactions_open if now.transactions_open is not None else earlier.transactions_open,
        batch_s=now.batch_s if now.batch_s is not None else earlier.batch_s,
        batches=earlier.batches + now.batches,
        bad=earlier.bad + now.bad,
        broken=_merged(earlier.broken, now.broken),
        left_records=now.left_records,
        failures=now.failures,
        tries=now.tries,
    )


def _sum(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else one + other


def _merged(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {rule: one.get(rule, 0) + other.get(rule, 0) for rule in [*one, *(r for r in other if r not in one)]}
