"""The screen of `barnabas top` as text, in two sizes and on clusters that tell more and less. The documentation shows
these files; `BARNABAS_RECORD=1` writes both anew."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cli.top.model import GroupRow, Model, TopicRow
from barnabas.cli.top.view import Choice, Section, cell_width, duration_text, fit, screen, shares
from tests.cli.top.example import model

SCREENS = Path(__file__).with_name("screens")
DOCUMENT = Path(__file__).parents[3] / "docs" / "operating.md"
SIZES = {"80x24": (80, 24), "200x50": (200, 50)}
RECORDS = bool(os.environ.get("BARNABAS_RECORD"))


def drawn(shown: Model, width: int, height: int | None, choice: Choice | None = None) -> list[str]:
    lines = screen(shown, width, height, choice or Choice(has_keys=True)).lines
    assert height is None or len(lines) == height
    assert not [line for line in lines if cell_width(line) > width]
    return [line.rstrip() for line in lines]


def compared(name: str, lines: list[str]) -> None:
    text = "\n".join(lines) + "\n"
    path = SCREENS / f"{name}.txt"
    if RECORDS:
        path.write_text(text)
    assert path.read_text() == text


@pytest.mark.parametrize("size", SIZES)
def test_of_our_nodes(size: str) -> None:
    compared(f"ours-{size}", drawn(model(), *SIZES[size]))


@pytest.mark.parametrize("size", SIZES)
def test_of_any_kafka(size: str) -> None:
    compared(f"any-{size}", drawn(model(with_nodes=False, is_troubled=False), *SIZES[size]))


@pytest.mark.parametrize("name", ["ours-80x24", "ours-200x50", "any-80x24"])
def test_the_documentation_shows_them(name: str) -> None:
    text = DOCUMENT.read_text()
    begin, end = f"<!-- screen {name} -->\n\n```text\n", "```\n"
    assert begin in text
    block = re.compile(re.escape(begin) + "(.*?)" + re.escape(end), re.DOTALL)
    screen_text = (SCREENS / f"{name}.txt").read_text()
    if RECORDS:
        DOCUMENT.write_text(block.sub(lambda _: begin + screen_text + end, text))
    found = block.search(DOCUMENT.read_text())
    assert found is not None
    assert found[1] == screen_text


def test_one_part_alone_has_all_the_room() -> None:
    lines = drawn(model(), 80, 24, Choice(only=Section.TOPICS, by_name=True))
    rows = [line.split()[0] for line in lines[3:8]]
    assert rows == ["__consumer_offsets", "clicks", "orders", "payments", "views"]
    assert not [line for line in lines if line.startswith(("BROKERS", "GROUPS"))]
    by_value = drawn(model(), 80, 24, Choice(only=Section.TOPICS))
    assert [line.split()[0] for line in by_value[3:6]] == ["views", "clicks", "orders"]


def test_what_does_not_fit_is_counted() -> None:
    topics = tuple(TopicRow(f"topic-{number:04}", 1, float(number)) for number in range(1000))
    lines = drawn(Model(0, topics=topics), 80, 24, Choice(only=Section.TOPICS))
    rows = [line for line in lines if line.startswith("topic-")]
    assert rows[0].startswith("topic-0999")
    assert lines[2].startswith(f"TOPICS {len(rows)}/1,000 ")
    whole = drawn(Model(0, topics=topics), 80, None, Choice(only=Section.TOPICS))
    assert sum(line.startswith("topic-") for line in whole) == 1000


def test_names_of_others_are_shown_not_obeyed() -> None:
    names = ["\x1b[2J\x07evil", "two\nlines", "表" * 60, "e\u0301" * 5]
    groups = tuple(GroupRow(name, "Stable", 1, 5, 1.0) for name in names)
    for width in (20, 40, 80, 200):
        lines = drawn(Model(0, groups=groups), width, 24)
        assert "\x1b" not in "".join(lines)
        assert not [line for line in lines if "\n" in line]


@given(st.integers(1, 220), st.one_of(st.none(), st.integers(1, 80)), st.booleans())
def test_it_fits_into_every_size(width: int, height: int | None, with_nodes: bool) -> None:
    drawn(EXAMPLES[with_nodes], width, height)


EXAMPLES = {each: model(with_nodes=each) for each in (False, True)}


@given(st.lists(st.integers(0, 50), min_size=1, max_size=6), st.integers(0, 60))
def test_room_is_shared_fairly(counts: list[int], room: int) -> None:
    given_lines = shares(counts, room)
    assert all(each is not None for each in given_lines)
    lines = [each or 0 for each in given_lines]
    wanted = [max(1, count) + 1 for count in counts]
    assert sum(lines) == min(room, sum(wanted))
    # Who gets less than it wants gets no less than anybody else, but for one line of the rest.
    assert not [
        (one, other)
        for one in range(len(lines))
        for other in range(len(lines))
        if lines[one] < wanted[one] and lines[other] > lines[one] + 1
    ]


def test_durations() -> None:
    told = [duration_text(each) for each in (0, 0.04, 9.96, 10, 99, 100, 3599, 3600, 86399, 86400 * 3)]
    assert told == ["0", "0.0", "10.0", "10", "99", "1m40", "59m59", "1h00", "23h59", "3d"]


def test_cutting() -> None:
    assert [fit("abcdef", each) for each in (0, 1, 3, 6)] == ["", "…", "ab…", "abcdef"]
    assert fit("表表表", 4) == "表…"
