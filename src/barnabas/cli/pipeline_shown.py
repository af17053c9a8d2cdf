"""How a run of a pipeline is shown: a table that lives at a terminal, lines elsewhere, JSON for programs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from barnabas.base.foreign_text import escaped_lines
from barnabas.cli import output
from barnabas.spark.pipelines.graph import Graph
from barnabas.spark.pipelines.reporting import FlowState, FlowStatus, Summary, UpdateResult

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_COLOURS: Final = {
    FlowStatus.RUNNING: "cyan",
    FlowStatus.COMPLETED: "green",
    FlowStatus.FAILED: "bold red",
    FlowStatus.RETRYING: "yellow",
    FlowStatus.STOPPED: "yellow",
    FlowStatus.SKIPPED: "yellow",
}
#: Rows that a flow has read, and those that it has written: views tell only these, tables only those.
_HEADINGS: Final = ("flow", "state", "in", "out", "bytes", "rows/s", "lag", "batch", "bad", "transactions")
#: From this width on there is room for a bar.
_BAR_COLUMNS: Final = 100
#: Figures that are left out where there is no room for all, in this order. What came in always stays.
_LEFT_OUT: Final = ("batch", "rows/s", "bytes", "bad", "transactions", "lag", "out")
#: Names and states go on in the next line, but not for each letter: `completed` fits.
_WORDS: Final = {"flow": 8, "state": 9}
#: Figures of topics, and of flows that are exactly once: not there where no flow has them.
_IF_ANY: Final = ("bytes", "transactions")
#: `rich` sets it aside for each column.
_GAP: Final = 2


class ShownPipeline:
    """What is common to all: a reporter that can be entered, left, and told the end."""

    def __init__(self) -> None:
        self.graph = Graph()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def said(self, text: str) -> None:
        pass

    def update_started(self, number: int) -> None:
        pass

    def defined(self, graph: Graph) -> None:
        self.graph = graph

    def flow_changed(self, flow: FlowState) -> None:
        pass

    def update_ended(self, number: int, summary: Summary) -> None:
        pass

    def ended(self, summary: Summary, *, is_dry: bool) -> None:
        """After everything, on standard output."""
        if is_dry:
            if summary.outcome is UpdateResult.COMPLETED:
                print_graph(self.graph)
        else:
            print_summary(summary)
            if self.graph.flows:
                output.say(delivery_text(self.graph))


class AsLines(ShownPipeline):
    """One line per change that matters, on standard error."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._began_s = clock()
        self._states: dict[str, str] = {}

    def said(self, text: str) -> None:
        output.say(f"{self._clock() - self._began_s:7.1f} s  {text}", err=True)

    def update_started(self, number: int) -> None:
        self._states.clear()
        self.said(f"update {number}")

    def flow_changed(self, flow: FlowState) -> None:
        text = flow.state_text
        if flow.state is FlowStatus.RUNNING and flow.batches:
            text = _sentence(flow)
        elif flow.state not in _TOLD:
            return
        if self._states.get(flow.name) != text:
            self._states[flow.name] = text
            self.said(f"{flow.name}: {text}")


_TOLD: Final = (
    FlowStatus.RUNNING,
    FlowStatus.COMPLETED,
    FlowStatus.RETRYING,
    FlowStatus.FAILED,
    FlowStatus.SKIPPED,
    FlowStatus.STOPPED,
)


def _sentence(flow: FlowState) -> str:
    parts = [f"{flow.rows or 0:,} rows in"]
    if flow.rows_written is not None:
        parts.append(f"{flow.rows_written:,} out")
    if flow.rows_per_s is not None:
        parts.append(f"{flow.rows_per_s:,.0f} rows/s")
    if size := _bytes_text(flow):
        parts.append(size)
    if flow.lag_records is not None:
        parts.append(f"lag {_lag_text(flow)}")
    if flow.batch_s is not None:
        parts.append(f"batch {flow.batch_s:.1f} s")
    if flow.transactions_decided is not None:
        parts.append(f"transactions {_transactions_text(flow)}")
    return ", ".join(parts)


def _bytes_text(flow: FlowState) -> str:
    """What was written where that is known, else what was read: that is estimated."""
    if flow.bytes_written is not None:
        return output.size_text(flow.bytes_written)
    return "" if flow.bytes_read is None else f"~{output.size_text(flow.bytes_read)}"


def _lag_text(flow: FlowState) -> str:
    """In records, and in seconds where there are some."""
    text = f"{flow.lag_records:,}"
    return f"{text} ({flow.lag_s:,.0f} s)" if flow.lag_records and flow.lag_s is not None else text


def _transactions_text(flow: FlowState) -> str:
    text = f"{flow.transactions_decided:,} decided"
    return text if flow.transactions_open is None else f"{text}, {flow.transactions_open:,} open"


class AsJson(ShownPipeline):
    """One line per event, on standard output."""

    def __init__(self) -> None:
        super().__init__()
        self._number = 0

    def said(self, text: str) -> None:
        output.say(output.compact_json({"event": "said", "text": text}))

    def update_started(self, number: int) -> None:
        self._number = number
        output.say(output.compact_json({"event": "update-started", "update": number}))

    def defined(self, graph: Graph) -> None:
        super().defined(graph)
        datasets = [
            {"name": each.name, "kind": each.kind, "format": each.format, "defined": each.place}
            for each in graph.datasets.values()
        ]
        flows = [
            {"name": each.name, "target": each.target, "inputs": list(each.inputs), "defined": each.place}
            for each in graph.flows.values()
        ]
        once, again = graph.deliveries()
        delivery = {"exactlyOnce": once, "atLeastOnce": again}
        output.say(
            output.compact_json({"event": "defined", "datasets": datasets, "flows": flows, "delivery": delivery})
        )

    def flow_changed(self, flow: FlowState) -> None:
        output.say(output.compact_json({"event": "flow", "update": self._number, **flow_json(flow)}))

    def update_ended(self, number: int, summary: Summary) -> None:
        output.say(output.compact_json({"event": "update-ended", "update": number, **summary_json(summary)}))

    def ended(self, summary: Summary, *, is_dry: bool) -> None:
        output.say(output.compact_json({"event": "ended", **summary_json(summary)}))


def flow_json(flow: FlowState) -> dict[str, Any]:
    return {
        "flow": flow.name,
        "state": flow.state.value,
        "failures": flow.failures,
        "rows": flow.rows,
        "rowsWritten": flow.rows_written,
        "rowsPerSecond": flow.rows_per_s,
        "lagRecords": flow.lag_records,
        "lagSeconds": flow.lag_s,
        "bytesRead": flow.bytes_read,
        "bytesWritten": flow.bytes_written,
        "transactionsDecided": flow.transactions_decided,
        "transactionsOpen": flow.transactions_open,
        "leftRecords": flow.left_records,
        "batchSeconds": flow.batch_s,
        "batches": flow.batches,
        "bad": flow.bad,
        "broken": dict(flow.broken),
    }


def summary_json(summary: Summary) -> dict[str, Any]:
    return {
        "outcome": summary.outcome.value,
        "seconds": round(summary.seconds, 3),
        "updates": summary.updates,
        "flows": [flow_json(flow) for flow in summary.flows],
        "tables": [{"table": table.name, "rows": table.rows} for table in summary.tables],
        "badRecords": summary.bad_records,
        "failure": summary.failure,
    }


class AsTable(ShownPipeline):
    """A table with one row per flow, drawn anew several times a second. Of updates in a row, it shows the last one;
    of a flow that has not begun in it, what was last known."""

    def __init__(self, console: Console | None = None) -> None:
        super().__init__()
        from rich.console import Console
        from rich.live import Live
        from rich.spinner import Spinner

        # One for all pictures: a new one would begin to turn each time.
        self._spinner = Spinner("dots")
        self._console = console or Console()
        self._flows: dict[str, FlowState] = {}
        self._doing = ""
        #: Why the last update failed, if it did.
        self._failure: str | None = None
        self._live = Live(
            get_renderable=self.drawn,
            console=self._console,
            refresh_per_second=8,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def said(self, text: str) -> None:
        self._doing = text

    def update_started(self, number: int) -> None:
        from rich.text import Text

        if self._failure is not None:
            # The run goes on, so nobody else will tell it. Above the table it stays.
            self._console.print(Text(escaped_lines(f"update {number - 1} failed: {self._failure}")))
            self._failure = None
        self._doing = f"update {number}"

    def flow_changed(self, flow: FlowState) -> None:
        self._flows[flow.name] = flow

    def update_ended(self, number: int, summary: Summary) -> None:
        self._failure = summary.failure
        self._doing = f"update {number}: {summary.outcome.value} in {summary.seconds:.1f} s"

    def drawn(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        # A copy in one step: flows change on other threads.
        flows = list(self._flows.values())
        order = {name: number for number, name in enumerate(list(self.graph.flows))}
        flows.sort(key=lambda flow: order.get(flow.name, len(order)))
        parts: list[Any] = [flow_table(flows, self._console.width)] if flows else []
        # As text, for brackets mean something else to `rich`.
        self._spinner.update(text=Text(output.shown(self._doing)))
        return Group(*parts, self._spinner)


def flow_table(flows: Sequence[FlowState], width: int = _BAR_COLUMNS) -> Table:
    """One row per flow, in so many columns of a terminal."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    rows = [dict(zip(_HEADINGS, _cells(flow), strict=True)) for flow in flows]
    needed = _needed_columns(rows, width)
    table = Table(header_style="bold", box=None, pad_edge=False)
    for heading, columns in needed.items():
        # Where there is no room, words go on in the next line; figures are never cut.
        if heading in _WORDS:
            table.add_column(heading, min_width=columns, overflow="fold")
        else:
            table.add_column(heading, justify="right", no_wrap=True, min_width=columns)
    has_bar = width >= _BAR_COLUMNS
    if has_bar:
        table.add_column("", ratio=1, min_width=8, max_width=24)
    for flow, row in zip(flows, rows, strict=True):
        share = flow.share_done
        bar = ProgressBar(total=1.0, completed=share or 0.0, pulse=share is None and flow.state is FlowStatus.RUNNING)
        cells: list[Any] = [
            Text(output.shown(row[heading]), style=_COLOURS.get(flow.state, "dim") if heading == "state" else "")
            for heading in needed
        ]
        table.add_row(*cells, *([bar] if has_bar else []))
    return table


def _needed_columns(rows: Sequence[Mapping[str, str]], width: int) -> dict[str, int]:
    """The headings that there is room for, and what each needs at least."""
    headings = _shown_headings(rows)
    needed = {heading: max(len(text) for text in (heading, *(row[heading] for row in rows))) for heading in headings}
    for heading, shortest in _WORDS.items():
        needed[heading] = min(needed[heading], shortest)
    for heading in _LEFT_OUT:
        if heading in needed and sum(needed.values()) + _GAP * len(needed) > width:
            del needed[heading]
    return needed


def _shown_headings(rows: Sequence[Mapping[str, str]]) -> list[str]:
    return [heading for heading in _HEADINGS if heading not in _IF_ANY or any(row[heading] for row in rows)]


def _cells(flow: FlowState) -> list[str]:
    return [
        flow.name,
        flow.state_text,
        "" if flow.rows is None else f"{flow.rows:,}",
        "" if flow.rows_written is None else f"{flow.rows_written:,}",
        _bytes_text(flow),
        "" if flow.rows_per_s is None else f"{flow.rows_per_s:,.0f}",
        "" if flow.lag_records is None else _lag_text(flow),
        "" if flow.batch_s is None else f"{flow.batch_s:.1f} s",
        f"{flow.bad:,}" if flow.broken else "",
        "" if flow.transactions_decided is None else _transactions_text(flow),
    ]


def delivery_text(graph: Graph) -> str:
    """Which flows write what they read once, and which may write it again after a crash."""
    once, again = graph.deliveries()
    text = f"exactly once: {', '.join(once) or 'none'}"
    return f"{text}; at least once: {', '.join(again)}" if again else text


def print_summary(summary: Summary) -> None:
    """What was done, as a table and a few sentences."""
    if summary.flows:
        rows = [dict(zip(_HEADINGS, _cells(flow), strict=True)) for flow in summary.flows]
        headings = _shown_headings(rows)
        output.print_table(headings, [[row[heading] for heading in headings] for row in rows])
    for flow in summary.flows:
        for rule, count in flow.broken.items():
            if count:
                output.say(f"{flow.name}: {count:,} rows break the rule: {rule}")
    if summary.tables:
        named = [
            table.name if table.rows is None else f"{table.name} ({table.rows:,} rows)" for table in summary.tables
        ]
        output.say(f"tables written: {', '.join(named)}")
    updates = f"{summary.updates} updates" if summary.updates > 1 else "update"
    bad = f", {summary.bad_records:,} bad records" if summary.bad_records else ""
    output.say(f"{updates} {summary.outcome.value} in {summary.seconds:.1f} s{bad}")
    if summary.failure and summary.outcome is UpdateResult.STOPPED:
        output.say(f"the last update failed: {summary.failure}")


def print_graph(graph: Graph) -> None:
    """What a project defines: each dataset, below it the flows into it and what they read."""
    rows = []
    for dataset in graph.datasets.values():
        flows = graph.flows_into(dataset.name)
        kind = dataset.kind if dataset.format is None else f"{dataset.kind} ({dataset.format})"
        single = flows[0] if len(flows) == 1 and flows[0].name == dataset.name else None
        rows.append((dataset.name, kind, ", ".join(single.inputs) if single else "", dataset.place))
        if single is None:
            rows.extend(
                (f"{'└─' if flow is flows[-1] else '├─'} {flow.name}", "flow", ", ".join(flow.inputs), flow.place)
                for flow in flows
            )
    output.print_table(("dataset", "kind", "reads", "defined"), rows)
    output.say(f"{len(graph.datasets)} datasets, {len(graph.flows)} flows: all sound")
