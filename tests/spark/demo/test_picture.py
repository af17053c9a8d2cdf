"""What the demo shows: it fits a small terminal, and says what there is."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from rich.console import Console

from barnabas.spark.demo.picture import STARTING, FlowTotals, Picture, Session, Window, line, screen, sparkline

EARLY = Picture("127.0.0.1:40123", 1.2, STARTING, clicks=240, broken=3, users=900)
LATE = replace(
    EARLY,
    elapsed_s=3600.0,
    phase="update 312",
    clicks=12_345_678,
    broken=246_000,
    users=60_960,
    users_gone=912,
    trend=tuple(range(60)),
    updates=312,
    flows=tuple(
        FlowTotals(name, state, rows_in=12_345_678, rows_out=99_999, lag=0)
        for name, state in [
            ("clicks", "running"),
            ("dead_letters", "completed"),
            ("users", "failed"),
            ("page_views", "queued"),
            ("sessions", "no such state"),
        ]
    ),
    table_rows=12_000_000,
    window=Window(
        datetime(2026, 11, 16, 12, 20, tzinfo=UTC), tuple((f"/product/{n}", 100_000 // n) for n in range(1, 12))
    ),
    sessions=1_422_000,
    last_sessions=tuple(Session(f"u{n:05}", ["Gerstäcker", None][n % 2], "plus", n, n % 3 == 0) for n in range(8)),
    sessions_trend=(3, 50, 60),
    dead_letters=240_000,
    causes={
        "JSON_SYNTAX": 3,
        "JSON_ENCODING": 40_000,
        "JSON_VALUE": 40_000,
        "breaks: stay is not negative": 40_000,
        "breaks: page is a path": 40_000,
        "breaks: has a user": 40_001,
    },
    hint="barnabas console-consumer --bootstrap-server 127.0.0.1:40123 --topic sessions --from-beginning",
)


def drawn(picture: Picture, width: int = 80) -> list[str]:
    console = Console(width=width, record=True, color_system=None, file=io.StringIO())
    console.print(screen(picture))
    return console.export_text().rstrip("\n").split("\n")


@pytest.mark.parametrize("picture", [EARLY, LATE])
@pytest.mark.parametrize("width", [80, 200])
def test_it_fits_a_terminal(picture: Picture, width: int) -> None:
    lines = drawn(picture, width)
    assert len(lines) <= 24
    assert max(map(len, lines)) <= width


def test_before_spark_runs_there_is_something_to_see() -> None:
    text = "\n".join(drawn(EARLY))
    assert "240 clicks  3 broken" in text
    # Once, and whole.
    assert text.count("Spark is starting\n") == 1
    assert text.count("it takes Spark about 15 s to start") == 1
    assert "…" not in text


def test_a_pipeline_that_never_ran_is_not_said_to_be_starting() -> None:
    assert "15 s" not in "\n".join(drawn(replace(EARLY, phase="stopping Spark")))


def test_numbers_pages_causes_and_sessions_are_there() -> None:
    text = "\n".join(drawn(LATE))
    for expected in (
        "12,345,678 clicks",
        "the pipeline, update 312",
        "▶ clicks",
        "✓ dead_letters",
        "✗ users",
        "views of pages, from 12:20",
        "100,000",
        "12,345k",
        "99,999",
        "12,000,000 rows in the table clicks",
        "1,422,000 in topic sessions",
        "u00001 (gone)",
        "breaks: stay is not negative",
        "60,960 users  912 gone",
        "127.0.0.1:40123 \\\n    --topic sessions --from-beginning",
    ):
        assert expected in text
    assert text.index("has a user") < text.index("stay is not negative") < text.index("JSON_SYNTAX")
    assert "…" not in text


def test_causes_for_which_there_is_no_line_are_counted_together() -> None:
    text = "\n".join(drawn(replace(LATE, causes={f"cause {n}": 10 - n for n in range(8)})))
    assert "cause 4" in text
    assert "cause 5" not in text
    assert re.search(r"3 others .* 12 ", text)


def test_elsewhere_it_is_one_line() -> None:
    assert line(LATE) == (
        "3600.0 s  clicks 12,345,678 (246,000 broken) | table 12,000,000 rows | sessions 1,422,000"
        " | dead letters 240,000 | update 312"
    )


def test_a_sparkline_is_as_high_as_its_counts() -> None:
    assert sparkline([0, 4, 8]) == " ▄█"
    assert sparkline([0, 0]) == "  "
    assert sparkline([]) == ""
