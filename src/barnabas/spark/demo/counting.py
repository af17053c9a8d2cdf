"""What must have come of the clicks, as anybody would compute it who has all of them at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barnabas.spark.demo.story import Click, time_text

#: Of the example project: how late a click may come, and how long a pause ends a session.
_LATENESS_MS: Final = 300_000
_PAUSE_MS: Final = 300_000


def sessions_of(clicks: Iterable[Click]) -> dict[tuple[str, str], int]:
    """By user and beginning: how many clicks. Those that are over when the watermark has seen all clicks."""
    by_user: dict[str, list[list[int]]] = {}
    for click in sorted(clicks, key=lambda click: click.at_ms):
        visits = by_user.setdefault(click.user, [])
        if visits and click.at_ms <= visits[-1][-1] + _PAUSE_MS:
            visits[-1].append(click.at_ms)
        else:
            visits.append([click.at_ms])
    watermark_ms = max((visit[-1] for visits in by_user.values() for visit in visits), default=0) - _LATENESS_MS
    return {
        (user, time_text(visit[0])): len(visit)
        for user, visits in by_user.items()
        for visit in visits
        if visit[-1] + _PAUSE_MS <= watermark_ms
    }
