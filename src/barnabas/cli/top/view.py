"""The screen of `barnabas top`: from a model and a size to lines. Nothing here knows a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final, NamedTuple

from barnabas.cli.output import shown, size_text
from barnabas.cli.top.model import FENCED, SILENT, ApiRow, BrokerRow, GroupRow, Model, PartitionRow, TopicRow
from barnabas.cli.top.reasons import reasons

#: From this width on there are two columns.
WIDE: Final = 150
_GAP: Final = "  "
_SHORTEST_NAME: Final = 8
_UNKNOWN: Final = "-"
#: On a screen, where rows need the room.
_MOST_PROBLEMS: Final = 2
_NO_NODE_TELLS: Final = "no node tells: start them with --metrics, or name them with top --metrics"


class Section(Enum):
    """What a screen is made of; its value is the key that shows it alone."""

    BROKERS = "1"
    TOPICS = "2"
    GROUPS = "3"
    APIS = "4"
    PARTITIONS = "5"


@dataclass(frozen=True, slots=True)
class Choice:
    """What whoever looks has chosen: the order of rows, and one section instead of all."""

    by_name: bool = False
    only: Section | None = None
    interval_s: float = 2.0
    has_keys: bool = False


ALL: Final = Choice()


class ScreenColumn(NamedTuple):
    """A column after the name. Those with a higher `rank` go first where the screen is narrow."""

    heading: str
    text: Callable[[Any], str]
    rank: int = 0


class ScreenTable(NamedTuple):
    section: Section
    heading: str
    name: Callable[[Any], str]
    columns: Sequence[ScreenColumn]
    rows: Sequence[Any]
    #: What is said where there are no rows.
    empty: str


class Screen(NamedTuple):
    """Lines, and which of them are headings."""

    lines: list[str]
    headings: frozenset[int]


def screen(model: Model, width: int, height: int | None, choice: Choice = ALL) -> Screen:
    """The whole screen: never more lines than `height`, if there is one, nor wider ones than `width`."""
    lines = [fit(line, width) for line in _head(model, choice)]
    foot = [fit(line, width) for line in _foot(model, choice, _MOST_PROBLEMS if height is not None else None)]
    room = None if height is None else max(0, height - len(lines) - len(foot))
    tables = [each for each in _tables(model, choice) if choice.only in (None, each.section)]
    # A column that is fit for a screen, and two where that leaves each enough.
    if width >= WIDE and choice.only is None and len(tables) > 1:
        body, headings = _two_columns(tables, width, room)
    else:
        body, headings = _one_column(tables, width, room)
    start = len(lines)
    if room is not None:
        body += [""] * (room - len(body))
    return Screen([*lines, *body, *foot][:height], frozenset({0, *(start + each for each in headings)}))


# Sections


def _tables(model: Model, choice: Choice) -> list[ScreenTable]:
    by_name = choice.by_name
    return [
        ScreenTable(
            Section.BROKERS,
            "BROKERS",
            lambda each: f"{each.broker_id} {each.address}",
            _BROKER_COLUMNS,
            sorted(model.brokers, key=lambda each: each.broker_id),
            "no broker is known",
        ),
        ScreenTable(
            Section.TOPICS,
            "TOPICS",
            lambda each: each.name,
            _TOPIC_COLUMNS,
            _ordered(model.topics, lambda each: each.name, lambda each: each.records_s or 0.0, by_name),
            "no topics",
        ),
        ScreenTable(
            Section.GROUPS,
            "GROUPS",
            lambda each: each.group_id,
            _GROUP_COLUMNS,
            _ordered(model.groups, lambda each: each.group_id, lambda each: each.lag or 0, by_name),
            "no groups",
        ),
        ScreenTable(
            Section.APIS,
            "SLOWEST APIS",
            lambda each: each.name,
            _API_COLUMNS,
            _ordered(model.apis or (), lambda each: each.name, lambda each: each.cost_ms, by_name),
            _NO_NODE_TELLS if model.apis is None else "no requests since the last look",
        ),
        ScreenTable(
            Section.PARTITIONS,
            "UNDER-REPLICATED",
            lambda each: each.name,
            _PARTITION_COLUMNS,
            model.partitions,
            "none",
        ),
    ]


def _ordered(
    rows: Sequence[Any], name: Callable[[Any], str], value: Callable[[Any], float], by_name: bool
) -> list[Any]:
    return sorted(rows, key=lambda each: (0.0 if by_name else -value(each), name(each)))


def _brokers(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers)) or _UNKNOWN


_BROKER_COLUMNS: Final[Sequence[ScreenColumn]] = (
    ScreenColumn("", lambda each: each.state, 1),
    ScreenColumn("LEADS", lambda each: f"{each.leaders:,}"),
    ScreenColumn("REPLICAS", lambda each: f"{each.replicas:,}", 3),
    ScreenColumn("BEHIND", lambda each: f"{each.behind:,}"),
    ScreenColumn("DATA", lambda each: _size(each.size_bytes), 4),
    ScreenColumn("IN/s", lambda each: _size(each.bytes_in_s), 2),
    ScreenColumn("OUT/s", lambda each: _size(each.bytes_out_s), 2),
    ScreenColumn("REQ/s", lambda each: _number(each.requests_s), 5),
    ScreenColumn("IDLE", lambda each: _UNKNOWN if each.idle is None else f"{each.idle:.0%}", 1),
    ScreenColumn("STALL ms", lambda each: _ms(each.longest_stall_ms), 2),
)
_TOPIC_COLUMNS: Final[Sequence[ScreenColumn]] = (
    ScreenColumn("PARTITIONS", lambda each: f"{each.partitions:,}", 3),
    ScreenColumn("RECORDS/s", lambda each: _number(each.records_s)),
    ScreenColumn("IN/s", lambda each: _size(each.bytes_in_s), 1),
    ScreenColumn("OUT/s", lambda each: _size(each.bytes_out_s), 1),
    ScreenColumn("DATA", lambda each: _size(each.size_bytes), 2),
)
_GROUP_COLUMNS: Final[Sequence[ScreenColumn]] = (
    ScreenColumn("STATE", lambda each: each.state, 2),
    ScreenColumn("MEMBERS", lambda each: f"{each.members:,}", 1),
    ScreenColumn("LAG", lambda each: _UNKNOWN if each.lag is None else f"{each.lag:,}"),
    ScreenColumn("LAG TIME", lambda each: lag_text(each)),
)
_API_COLUMNS: Final[Sequence[ScreenColumn]] = (
    ScreenColumn("REQ/s", lambda each: _number(each.requests_s), 1),
    ScreenColumn("P99 ms", lambda each: _ms(each.p99_ms), 1),
    ScreenColumn("MEAN ms", lambda each: _ms(each.mean_ms)),
    ScreenColumn("= QUEUE", lambda each: _ms(each.queue_ms), 2),
    ScreenColumn("LOCAL", lambda each: _ms(each.local_ms), 2),
    ScreenColumn("REMOTE", lambda each: _ms(each.remote_ms), 2),
    ScreenColumn("ANSWER", lambda each: _ms(each.response_queue_ms), 3),
    ScreenColumn("SEND", lambda each: _ms(each.send_ms), 3),
    ScreenColumn("THROTTLED", lambda each: _ms(each.throttle_ms), 3),
)
_PARTITION_COLUMNS: Final[Sequence[ScreenColumn]] = (
    ScreenColumn("LEADER", lambda each: "none" if each.leader is None else str(each.leader)),
    ScreenColumn("IN SYNC", lambda each: _brokers(each.isr)),
    ScreenColumn("MISSING", lambda each: _brokers(each.missing)),
)
#: For readers of this file: what the rows are.
Row = BrokerRow | TopicRow | GroupRow | ApiRow | PartitionRow


# Head and foot


def _head(model: Model, choice: Choice) -> list[str]:
    brokers = sum(each.state not in (FENCED, SILENT) for each in model.brokers)
    controller = "no controller" if model.controller_id is None else f"controller {model.controller_id}"
    cluster = f"cluster {shown(model.cluster_id)}" if model.cluster_id else "cluster"
    offline = sum(each.leader is None for each in model.partitions)
    lacking = f"{len(model.partitions) - offline:,} under-replicated, {offline:,} offline"
    if not model.has_controller:
        lacking += ", as last known"
    counts = f"{len(model.topics):,} topics, {model.partition_count:,} partitions: {lacking}"
    rate = "" if model.records_s is None else f" · {_number(model.records_s)} records/s"
    return [
        f"{cluster} · {_count(brokers, 'broker')}, {controller} · {time_text(model.at_ms)} · {choice.interval_s:g} s",
        f"{counts}{rate}",
    ]


def _foot(model: Model, choice: Choice, most_problems: int | None) -> list[str]:
    """Why it is slow, if it is; what could not be asked; the keys."""
    lines = [f"! {shown(sentence)}" for sentence in reasons(model)]
    lines += [f"? {shown(problem)}" for problem in model.problems[:most_problems]]
    if choice.has_keys:
        lines.append("q quit · 1-5 one part alone, 0 all · n by name, v by value · + - interval")
    return lines


# Places


def _one_column(tables: Sequence[ScreenTable], width: int, room: int | None) -> tuple[list[str], list[int]]:
    lines: list[str] = []
    headings = []
    for table, share in zip(tables, shares([len(each.rows) for each in tables], room), strict=True):
        if share is not None and share < 2:
            continue  # a heading without rows tells nothing
        headings.append(len(lines))
        lines += _drawn(table, width, share)
    return lines, headings


def _two_columns(tables: Sequence[ScreenTable], width: int, room: int | None) -> tuple[list[str], list[int]]:
    """What brokers hold on the left, who reads it and how fast it is on the right."""
    half = (width - len(_GAP)) // 2
    left_ones = (Section.BROKERS, Section.TOPICS)
    left, marks = _one_column([each for each in tables if each.section in left_ones], half, room)
    right, more = _one_column([each for each in tables if each.section not in left_ones], half, room)
    count = max(len(left), len(right))
    left += [""] * (count - len(left))
    right += [""] * (count - len(right))
    lines = [f"{pad(one, half)}{_GAP}{other}".rstrip() for one, other in zip(left, right, strict=True)]
    return lines, sorted({*marks, *more})


def shares(counts: Sequence[int], room: int | None) -> list[int | None]:
    """How many lines each table gets, headings included, if they have so many rows: the short ones all that they need,
    and what is left the long ones alike. None for all."""
    if room is None:
        return [None] * len(counts)
    wanted = [max(1, count) + 1 for count in counts]
    given = [0] * len(counts)
    open_ones = set(range(len(counts)))
    left = room
    while open_ones:
        fair = left // len(open_ones)
        fitting = [each for each in open_ones if wanted[each] <= fair]
        if not fitting:
            for number, each in enumerate(sorted(open_ones)):
                given[each] = fair + (number < left - fair * len(open_ones))
            break
        for each in fitting:
            given[each] = wanted[each]
            left -= wanted[each]
            open_ones.discard(each)
    return list(given)


def _drawn(table: ScreenTable, width: int, share: int | None) -> list[str]:
    """A table in so many lines, two at least; if rows are left out, the heading tells how many are there."""
    rows = list(table.rows)
    if not rows:
        return [fit(table.heading, width), fit(f"({table.empty})", width)][:share]
    heading = table.heading
    if share is not None and len(rows) > share - 1:
        rows = rows[: share - 1]
        heading = f"{heading} {len(rows):,}/{len(table.rows):,}"
    columns = _fitting(table, rows, width)
    cells = [[shown(column.text(row)) for column in columns] for row in rows]
    widths = [
        max(cell_width(column.heading), *(cell_width(line[index]) for line in cells))
        for index, column in enumerate(columns)
    ]
    longest = max(cell_width(heading), *(cell_width(shown(table.name(row))) for row in rows))
    name_width = min(longest, width - sum(each + len(_GAP) for each in widths))

    def line(name: str, texts: Sequence[str]) -> str:
        ends = "".join(_GAP + right(text, size) for text, size in zip(texts, widths, strict=True))
        return fit(pad(fit(name, name_width), name_width) + ends, width).rstrip()

    lines = [line(heading, [column.heading for column in columns])]
    lines += [line(shown(table.name(row)), texts) for row, texts in zip(rows, cells, strict=True)]
    return lines


def _fitting(table: ScreenTable, rows: Sequence[Any], width: int) -> list[ScreenColumn]:
    """The columns that have room beside the name: of the least rank first go those that matter least. A column in which
    nothing is known is not shown."""
    columns = [
        each
        for each in table.columns
        if not rows or any(each.text(row) not in ("", _UNKNOWN) for row in rows) or not each.rank
    ]
    names = max((cell_width(shown(table.name(row))) for row in rows), default=0)
    wanted = min(max(names, _SHORTEST_NAME, len(table.heading)), max(width // 3, _SHORTEST_NAME))

    def taken(kept: Sequence[ScreenColumn]) -> int:
        return wanted + sum(
            len(_GAP) + max(cell_width(each.heading), *(cell_width(shown(each.text(row))) for row in rows), 0)
            for each in kept
        )

    while taken(columns) > width and any(each.rank for each in columns):
        least = max(each.rank for each in columns)
        columns = [each for each in columns if each.rank != least]
    return columns


# Texts


def time_text(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%H:%M:%S UTC")


def lag_text(group: GroupRow) -> str:
    """Seconds, minutes, hours: as people say it."""
    if group.lag_s is None:
        return _UNKNOWN
    text = duration_text(group.lag_s)
    return f"≥{text}" if group.is_at_least and group.lag_s else text


def duration_text(seconds: float) -> str:
    """0, 4.2, 59, 3m20, 5h02, 12d."""
    if seconds < 10:
        return f"{seconds:.1f}" if seconds else "0"
    if seconds < 100:
        return f"{seconds:.0f}"
    if seconds < 3600:
        return f"{seconds // 60:.0f}m{seconds % 60:02.0f}"
    if seconds < 86400:
        return f"{seconds // 3600:.0f}h{seconds % 3600 // 60:02.0f}"
    return f"{seconds // 86400:.0f}d"


def _number(value: float | None) -> str:
    if value is None:
        return _UNKNOWN
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.1f}"


def _ms(value: float | None) -> str:
    if value is None:
        return _UNKNOWN
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _size(value: float | None) -> str:
    return _UNKNOWN if value is None else size_text(int(value))


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def cell_width(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text
    )


def pad(text: str, width: int) -> str:
    return text + " " * (width - cell_width(text))


def right(text: str, width: int) -> str:
    return " " * (width - cell_width(text)) + text


def fit(text: str, width: int) -> str:
    """Cut to a width, with a sign that it was."""
    if cell_width(text) <= width:
        return text
    while text and cell_width(text) > width - 1:
        text = text[:-1]
    return f"{text}…" if width > 0 else ""
