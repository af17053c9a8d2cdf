"""Which sessions must be there, by clicks that one can count by hand."""

from __future__ import annotations

from barnabas.spark.demo.counting import sessions_of
from barnabas.spark.demo.story import Click

_MINUTE_MS = 60_000


def _click(user: str, minute: float) -> Click:
    return Click(id=0, user=user, at_ms=int(minute * _MINUTE_MS), page="/", stay_ms=0)


def test_sessions_end_with_a_pause_and_count_once_nothing_can_come_any_more() -> None:
    clicks = [_click("a", 3), _click("a", 0), _click("a", 8), _click("b", 1), _click("a", 13.5), _click("c", 18)]
    # a: 0 to 8, and one at 13.5, which may go on until 18.5. Everything up to 18 - 5 has come.
    assert sessions_of(clicks) == {
        ("a", "1970-01-01T00:00:00.000Z"): 3,
        ("b", "1970-01-01T00:01:00.000Z"): 1,
    }
    assert sessions_of(clicks[:-1]) == {("b", "1970-01-01T00:01:00.000Z"): 1}
    assert sessions_of([]) == {}
