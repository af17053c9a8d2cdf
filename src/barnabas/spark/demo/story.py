"""People who click their way through a shop: the same clicks for the same seed.

The story has a clock of its own, which runs faster than ours, so that windows of minutes close within seconds. Nothing
here knows the time, opens a file or sends anything.

- Several people are on the pages at once. Each goes from page to page as links lead, stays a while, leaves in the end.
- Some clicks arrive late (`LATE_SHARE`), by at most `MOST_LATE_S` of story time behind others.
- Some records are broken (`BROKEN_SHARE`), in one of the ways of `Flaw`.
- The users are records of a compacted topic: they change their plan, and some leave for good, which is a tombstone.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from random import Random
from typing import Final

#: Seconds of the story in a second of ours.
SPEED: Final = 120
LATE_SHARE: Final = 0.03
BROKEN_SHARE: Final = 0.02
#: The example project waits five minutes for clicks that come late, so none comes too late.
MOST_LATE_S: Final = 240

#: With fewer clicks in a second of ours, the pauses between two of them would come near `MOST_LATE_S`.
LOWEST_RATE: Final = 10

_MOST_STEPS: Final = 4
_MEAN_STAY_S: Final = 25
_USERS_PER_VISIT: Final = 20
_FEWEST_USERS: Final = 200
_LEAVING_SHARE: Final = 0.1
_PRODUCTS: Final = 20

_LINKS: Final[Mapping[str, tuple[tuple[str, int], ...]]] = {
    "/": (("/search", 5), ("/product", 3), ("/offers", 3), ("", 2)),
    "/offers": (("/product", 6), ("/", 1), ("", 2)),
    "/search": (("/product", 7), ("/search", 2), ("", 2)),
    "/product": (("/product", 3), ("/cart", 2), ("/search", 2), ("/", 1), ("", 2)),
    "/cart": (("/checkout", 4), ("/product", 2), ("", 2)),
    "/checkout": (("/thanks", 6), ("/cart", 1), ("", 1)),
    "/thanks": (("", 4), ("/", 1)),
}
_NAMES: Final = (
    "Frieda",
    "Olga",
    "Amalia",
    "Pepi",
    "Gisa",
    "Hans",
    "Artur",
    "Jeremias",
    "Momus",
    "Gerstäcker",
    "Klamm",
)
_PLANS: Final = ("free", "free", "free", "plus", "team")
_COUNTRIES: Final = ("CZ", "AT", "DE", "FR", "PL", "US", "BR", "JP")


class Flaw(StrEnum):
    """What is wrong with a record. The first three cannot be read at all; the others break a rule of the pipeline."""

    CUT_SHORT = "cut short"
    NOT_TEXT = "not text"
    BAD_TIME = "no time in `at`"
    NO_USER = "no user"
    NOT_A_PAGE = "not a page"
    IMPOSSIBLE_STAY = "a stay below zero"


@dataclass(frozen=True, slots=True)
class Click:
    """What happened, before anything goes wrong with its record."""

    id: int
    user: str
    at_ms: int
    page: str
    stay_ms: int


@dataclass(slots=True)
class Records:
    """Records to be sent, column by column. `clicks` are those that are whole; `flaws` counts the others."""

    keys: list[str] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    clicks: list[Click] = field(default_factory=list)
    flaws: dict[Flaw, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(slots=True)
class _Visit:
    user: str
    page: str


class Story:
    """Clicks and users, one after another, for ever.

    `clicks(10)` and then `clicks(5)` are the same as `clicks(15)`, so whoever knows the seed and how many there were
    knows them all.
    """

    def __init__(self, *, seed: int, rate: float, start_ms: int) -> None:
        """`rate` is clicks in a second of ours; the story begins at `start_ms`."""
        self._clicking, self._spoiling, self._changing = (Random(f"{seed}/{part}") for part in range(3))
        self._now_s = 0.0
        self._start_ms = start_ms
        self._step_s = SPEED / rate
        visits = max(4, round(rate / SPEED * _MEAN_STAY_S))
        self.users = tuple(f"u{number:04}" for number in range(max(_FEWEST_USERS, visits * _USERS_PER_VISIT)))
        self._here: set[str] = set()
        self._visits = [self._arrival() for _ in range(visits)]
        self._late: list[tuple[float, int, Click]] = []
        self._next_id = 0

    def clicks(self, count: int) -> Records:
        """The next records of the topic of clicks."""
        records = Records()
        for _ in range(count):
            click = self._next_to_arrive()
            flaw = None
            if self._spoiling.random() < BROKEN_SHARE:
                flaw = self._spoiling.choice(list(Flaw))
            records.keys.append(click.user)
            if flaw is None:
                records.values.append(_json(_fields(click)))
                records.clicks.append(click)
            else:
                records.values.append(_SPOILED[flaw](click))
                records.flaws[flaw] = records.flaws.get(flaw, 0) + 1
        return records

    def first_users(self) -> Records:
        """Everybody, once: what the compacted topic of users begins with."""
        return self._user_records([(user, False) for user in self.users])

    def changed_users(self, count: int) -> Records:
        """People who changed something, or left, one time in ten."""
        chosen = [self._changing.choice(self.users) for _ in range(count)]
        return self._user_records([(user, self._changing.random() < _LEAVING_SHARE) for user in chosen])

    def _user_records(self, users: Sequence[tuple[str, bool]]) -> Records:
        records = Records()
        for user, is_leaving in users:
            choose = self._changing.choice
            fields = {"name": choose(_NAMES), "plan": choose(_PLANS), "country": choose(_COUNTRIES)}
            records.keys.append(user)
            records.values.append(None if is_leaving else _json(fields))
        return records

    def _next_to_arrive(self) -> Click:
        while True:
            if self._late and self._late[0][0] <= self._now_s:
                return heapq.heappop(self._late)[2]
            click = self._next_to_happen()
            if self._clicking.random() >= LATE_SHARE:
                return click
            # Its own time stays what it is: that is what makes it late.
            arrival_s = self._now_s + self._clicking.uniform(1, MOST_LATE_S - _MOST_STEPS * self._step_s)
            heapq.heappush(self._late, (arrival_s, click.id, click))

    def _next_to_happen(self) -> Click:
        self._now_s += min(self._clicking.expovariate(1 / self._step_s), _MOST_STEPS * self._step_s)
        place = self._clicking.randrange(len(self._visits))
        visit = self._visits[place]
        click = Click(
            id=self._next_id,
            user=visit.user,
            at_ms=self._start_ms + int(self._now_s * 1000),
            page=self._numbered(visit.page),
            stay_ms=int(self._clicking.expovariate(1 / (_MEAN_STAY_S * 1000))),
        )
        self._next_id += 1
        visit.page = self._follow(visit.page)
        if not visit.page:
            self._here.discard(visit.user)
            self._visits[place] = self._arrival()
        return click

    def _arrival(self) -> _Visit:
        while (user := self._clicking.choice(self.users)) in self._here:
            pass
        self._here.add(user)
        return _Visit(user, self._clicking.choice(("/", "/", "/offers", "/search", "/product")))

    def _follow(self, page: str) -> str:
        pages, weights = zip(*_LINKS[page], strict=True)
        following: str = self._clicking.choices(pages, weights)[0]
        return following

    def _numbered(self, page: str) -> str:
        if page != "/product":
            return page
        # A few things are what most people came for.
        return f"/product/{int(self._clicking.paretovariate(0.8)) % _PRODUCTS + 1}"


def time_text(at_ms: int) -> str:
    """A time as it stands in records."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _fields(click: Click) -> dict[str, object]:
    at = time_text(click.at_ms)
    return {"id": click.id, "user": click.user, "at": at, "page": click.page, "stay_ms": click.stay_ms}


def _json(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


_SPOILED: Final[Mapping[Flaw, Callable[[Click], bytes]]] = {
    Flaw.CUT_SHORT: lambda click: _json(_fields(click))[:-20],
    Flaw.NOT_TEXT: lambda click: b"\x89\xfe\x00" + _json(_fields(click))[:12],
    Flaw.BAD_TIME: lambda click: _json({**_fields(click), "at": "yesterday"}),
    Flaw.NO_USER: lambda click: _json({**_fields(click), "user": None}),
    Flaw.NOT_A_PAGE: lambda click: _json({**_fields(click), "page": "about:blank"}),
    Flaw.IMPOSSIBLE_STAY: lambda click: _json({**_fields(click), "stay_ms": -1}),
}
