"""The click stream of the demo: the same for the same seed, late within bounds, broken as it says."""

from __future__ import annotations

import itertools
import json
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.spark.demo.story import BROKEN_SHARE, LOWEST_RATE, MOST_LATE_S, SPEED, Flaw, Records, Story

START_MS = 1_700_000_000_000


def a_story(seed: int = 7, rate: float = 200) -> Story:
    return Story(seed=seed, rate=rate, start_ms=START_MS)


@given(seed=st.integers(0, 1000), sizes=st.lists(st.integers(0, 40), max_size=8))
@settings(max_examples=20, deadline=None)
def test_it_does_not_matter_in_how_many_pieces_it_is_told(seed: int, sizes: list[int]) -> None:
    story = a_story(seed)
    pieces = [story.clicks(size) for size in sizes]
    whole = a_story(seed).clicks(sum(sizes))
    assert [value for piece in pieces for value in piece.values] == whole.values
    assert [click for piece in pieces for click in piece.clicks] == whole.clicks


def test_another_seed_is_another_story() -> None:
    assert a_story(1).clicks(50).values != a_story(2).clicks(50).values


@pytest.mark.parametrize("rate", [LOWEST_RATE, 200, 20_000])
def test_clicks_come_late_but_never_too_late(rate: float) -> None:
    newest_ms, most_late_ms, late = 0, 0, 0
    clicks = a_story(rate=rate).clicks(5000).clicks
    for click in clicks:
        most_late_ms = max(most_late_ms, newest_ms - click.at_ms)
        late += click.at_ms < newest_ms
        newest_ms = max(newest_ms, click.at_ms)
    assert late > 0
    assert most_late_ms <= MOST_LATE_S * 1000


def test_the_clock_of_the_story_runs_as_fast_as_promised() -> None:
    clicks = a_story(rate=100).clicks(10_000).clicks
    assert (clicks[-1].at_ms - START_MS) / 1000 == pytest.approx(100 * SPEED, rel=0.1)


def test_whole_records_say_what_happened() -> None:
    records = a_story().clicks(500)
    readable = [fields for fields in map(_fields, _whole(records)) if fields is not None]
    assert [fields["id"] for fields in readable] == [click.id for click in records.clicks]
    for fields, click in zip(readable, records.clicks, strict=True):
        assert datetime.fromisoformat(fields["at"]).timestamp() * 1000 == pytest.approx(click.at_ms)
        assert (fields["user"], fields["page"], fields["stay_ms"]) == (click.user, click.page, click.stay_ms)


def test_two_in_a_hundred_are_broken_in_every_way() -> None:
    records = a_story().clicks(20_000)
    broken = sum(records.flaws.values())
    assert broken + len(records.clicks) == len(records) == 20_000
    assert broken / 20_000 == pytest.approx(BROKEN_SHARE, rel=0.2)
    assert set(records.flaws) == set(Flaw)


def test_people_have_one_visit_at_a_time_and_follow_links() -> None:
    visits: dict[str, list[str]] = {}
    for click in sorted(a_story().clicks(3000).clicks, key=lambda click: click.id):
        visits.setdefault(click.user, []).append(click.page)
    pages = [page for visit in visits.values() for page in visit]
    assert all(page.startswith("/") for page in pages)
    assert len(pages) > 3 * len(visits)
    pairs = [pair for visit in visits.values() for pair in itertools.pairwise(visit)]
    before_thanks = [before for before, page in pairs if page == "/thanks"]
    # A click whose record is broken, or that is still on its way, is missing between two others.
    assert before_thanks.count("/checkout") > 0.9 * len(before_thanks) > 0


def test_users_change_and_leave() -> None:
    story = a_story()
    first = story.first_users()
    assert first.keys == list(story.users)
    assert None not in first.values
    changes = story.changed_users(500)
    assert set(changes.keys) <= set(story.users)
    assert 0 < changes.values.count(None) < 100


def _whole(records: Records) -> list[bytes]:
    return [value for value in records.values if value is not None]


def _fields(value: bytes) -> dict[str, Any] | None:
    """None where the record is broken."""
    try:
        fields: dict[str, Any] = json.loads(value)
        datetime.fromisoformat(fields["at"])
    except ValueError:
        return None
    is_valid = fields["user"] is not None and fields["page"].startswith("/") and fields["stay_ms"] >= 0
    return fields if is_valid else None
