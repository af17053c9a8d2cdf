"""What there is to see at one moment, and how it looks: as a screen at a terminal, as a line elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final

from barnabas.spark.demo.story import SPEED

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.panel import Panel

#: What is going on before the first update.
STARTING: Final = "Spark is starting"
STARTING_AGAIN: Final = "Spark was killed, and starts again"
_BLOCKS: Final = " ▁▂▃▄▅▆▇█"
_TREND: Final = 12
_SESSIONS_TREND: Final = 9
_MOST_CAUSES: Final = 6
_SHORTEST_BAR: Final = 2
_LONGEST_NUMBER: Final = 100_000
_STATES: Final = {
    "starting": ("▸", "cyan"),
    "running": ("▶", "bold cyan"),
    "completed": ("✓", "green"),
    "failed": ("✗", "bold red"),
    "trying again": ("↻", "yellow"),
    "skipped": ("–", "yellow"),
    "stopped": ("■", "yellow"),
}
_WAITING: Final = ("·", "dim")


@dataclass(frozen=True, slots=True)
class FlowTotals:
    """One flow of the pipeline: its state in the update that runs or ran last, its rows in all of them."""

    name: str
    state: str
    rows_in: int | None = None
    rows_out: int | None = None
    lag: int | None = None


@dataclass(frozen=True, slots=True)
class Session:
    """A visit that is over, as it stands in the topic."""

    user: str
    name: str | None
    plan: str | None
    clicks: int
    has_bought: bool


@dataclass(frozen=True, slots=True)
class Window:
    """Views of the pages in the newest window of the table."""

    began_at: datetime
    views: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything that is shown."""

    bootstrap_servers: str
    elapsed_s: float
    phase: str
    clicks: int = 0
    broken: int = 0
    users: int = 0
    users_gone: int = 0
    trend: tuple[int, ...] = ()
    updates: int = 0
    flows: tuple[FlowTotals, ...] = ()
    table_rows: int = 0
    window: Window | None = None
    sessions: int = 0
    last_sessions: tuple[Session, ...] = ()
    sessions_trend: tuple[int, ...] = ()
    dead_letters: int = 0
    causes: Mapping[str, int] = field(default_factory=dict)
    hint: str = ""


def line(picture: Picture) -> str:
    """The picture in one line, for logs and pipes."""
    return (
        f"{picture.elapsed_s:6.1f} s  clicks {picture.clicks:,} ({picture.broken:,} broken)"
        f" | table {picture.table_rows:,} rows | sessions {picture.sessions:,}"
        f" | dead letters {picture.dead_letters:,} | {picture.phase}"
    )


def screen(picture: Picture) -> RenderableType:
    """The picture as panels, which fit into 80 columns and 24 lines."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(expand=True)
    grid.add_column(ratio=1)
    grid.add_column(ratio=1)
    grid.add_row(_writing(picture), _flows(picture))
    grid.add_row(_pages(picture), _dead_letters(picture))
    grid.add_row(_sessions(picture), _results(picture))
    title = Text.assemble(
        ("barnabas demo", "bold"),
        ("   node ", "dim"),
        picture.bootstrap_servers,
        (f"   {picture.elapsed_s:.0f} s   ", "dim"),
        (picture.phase, "cyan"),
        no_wrap=True,
        overflow="ellipsis",
    )
    # Too long for one line of a small terminal. Two that a shell takes for one can be copied.
    hint = picture.hint.replace(" --topic ", " \\\n    --topic ")
    return Group(title, grid, Text(hint, style="dim", no_wrap=True, overflow="ellipsis"))


def _writing(picture: Picture) -> Panel:
    from rich.text import Text

    text = Text.assemble(
        *_count(picture.clicks, "clicks", f"  {picture.broken:,} broken"),
        *_count(picture.users, "users", f"  {picture.users_gone:,} gone"),
        *_count(picture.trend[-1] if picture.trend else 0, "clicks/s  "),
    )
    text.rstrip()
    text.append("  ").append(sparkline(picture.trend[-_TREND:]), style="cyan")
    text.append(f"\n\none second here is {SPEED // 60} minutes there", style="dim")
    return _panel("into the topics", text, lines=6)


def _flows(picture: Picture) -> Panel:
    from rich.table import Table
    from rich.text import Text

    if not picture.flows:
        reason = "it takes Spark about 15 s to start" if picture.phase == STARTING else "nothing yet"
        return _nothing("the pipeline", reason, lines=6)
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, ratio=1)
    for _ in range(3):
        table.add_column(justify="right", no_wrap=True)
    table.add_row(*(Text(text, style="dim") for text in ("", "flow", "in", "out", "lag")))
    for flow in picture.flows:
        sign, style = _STATES.get(flow.state, _WAITING)
        numbers = (_number(flow.rows_in), _number(flow.rows_out), _number(flow.lag))
        table.add_row(Text(sign, style=style), Text(flow.name), *numbers)
    title = f"the pipeline, update {picture.updates}" if picture.updates else "the pipeline"
    return _panel(title, table, lines=6)


def _pages(picture: Picture) -> Panel:
    if picture.window is None:
        return _nothing("views of pages", "after the first update", lines=6)
    title = f"views of pages, from {picture.window.began_at:%H:%M} there"
    return _panel(title, _bars(picture.window.views[:6], "cyan"), lines=6)


def _dead_letters(picture: Picture) -> Panel:
    title = "dead letters, by cause"
    if not picture.causes:
        return _nothing(title, "none yet", lines=6)
    causes = sorted(picture.causes.items(), key=lambda item: (-item[1], item[0]))
    if len(causes) > _MOST_CAUSES:
        rest = causes[_MOST_CAUSES - 1 :]
        causes = [*causes[: _MOST_CAUSES - 1], (f"{len(rest)} others", sum(count for _, count in rest))]
    return _panel(title, _bars(causes, "yellow"), lines=6)


def _sessions(picture: Picture) -> Panel:
    from rich.text import Text

    title = "sessions that ended last"
    if not picture.last_sessions:
        return _nothing(title, "none yet", lines=3)
    text = Text(no_wrap=True, overflow="ellipsis")
    for session in picture.last_sessions[:3]:
        text.append(f"{session.user} ", style="bold")
        text.append(f"{session.name or '(gone)':<11}{session.plan or '':<5}{session.clicks:>2}")
        text.append(" bought\n" if session.has_bought else "\n", style="green")
    text.rstrip()
    return _panel(title, text, lines=3)


def _results(picture: Picture) -> Panel:
    from rich.text import Text

    text = Text.assemble(
        *_count(picture.table_rows, "rows in the table clicks", style="bold green"),
        *_count(
            picture.sessions,
            "in topic sessions",
            f" {sparkline(picture.sessions_trend[-_SESSIONS_TREND:])}",
            style="bold green",
        ),
        *_count(picture.dead_letters, "in topic clicks.dead", style="bold yellow"),
    )
    text.rstrip()
    return _panel("what came out", text, lines=3)


def _count(number: int, what: str, more: str = "", style: str = "bold") -> tuple[tuple[str, str], str, tuple[str, str]]:
    return (f"{number:>8,}", style), f" {what}", (f"{more}\n", "yellow")


def _nothing(title: str, reason: str, *, lines: int) -> Panel:
    from rich.text import Text

    return _panel(title, Text(reason, style="dim"), lines=lines)


def _panel(title: str, content: RenderableType, *, lines: int) -> Panel:
    from rich import box
    from rich.panel import Panel

    return Panel(content, title=title, title_align="left", box=box.ROUNDED, border_style="dim", height=lines + 2)


def _bars(counts: Sequence[tuple[str, int]], style: str) -> RenderableType:
    from rich.bar import Bar
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(no_wrap=True, overflow="ellipsis")
    table.add_column(ratio=1, min_width=_SHORTEST_BAR)
    table.add_column(justify="right", no_wrap=True)
    largest = max((count for _, count in counts), default=1)
    for name, count in counts:
        # As text, for brackets mean something else to `rich`.
        table.add_row(Text(name), Bar(largest, 0, count, color=style), f"{count:,}")
    return table


def sparkline(counts: Sequence[int]) -> str:
    """One character per count, as high as it is large."""
    largest = max(counts, default=0)
    return "".join(_BLOCKS[round(count / largest * 8) if largest else 0] for count in counts)


def _number(number: int | None) -> str:
    """In at most seven characters, up to some millions of millions."""
    if number is None:
        return ""
    for unit in ("", "k", "M"):
        if number < _LONGEST_NUMBER:
            return f"{number:,}{unit}"
        number //= 1000
    return f"{number:,}G"
