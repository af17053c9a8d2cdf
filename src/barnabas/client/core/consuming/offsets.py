"""Offsets as programs give and get them, and where reading starts when there is none."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from barnabas.base.errors import SettingsError

LATEST_TIMESTAMP: Final = -1
EARLIEST_TIMESTAMP: Final = -2
NO_EPOCH: Final = -1

_DURATION: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d*)?)S)?)?"
)


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """What is committed for a partition: where reading goes on, a note of the program, and the leader epoch of the last
    record read, by which a log that was cut meanwhile is noticed.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None

    def __post_init__(self) -> None:
        if self.offset < 0:
            raise ValueError(f"an offset must be 0 or more, not {self.offset}")


@dataclass(frozen=True, slots=True)
class OffsetAndTimestamp:
    """The record that a search by time has found."""

    offset: int
    timestamp_ms: int
    leader_epoch: int | None = None


class ResetKind(Enum):
    """The word before the colon of auto.offset.reset."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"
    BY_DURATION = "by_duration"


@dataclass(frozen=True, slots=True)
class ResetStrategy:
    """Where reading starts without an offset.

    >>> ResetStrategy.parse("by_duration:PT1H30M").duration_ms
    5400000
    """

    kind: ResetKind
    duration_ms: int = 0

    @classmethod
    def parse(cls, text: str) -> ResetStrategy:
        """Read a value of auto.offset.reset."""
        word, colon, rest = text.partition(":")
        try:
            kind = ResetKind(word)
        except ValueError:
            kind = ResetKind.NONE
            rest = "?"
        if kind is ResetKind.BY_DURATION:
            found = _DURATION.fullmatch(rest)
            if found is not None and any(found.groups()):
                return cls(kind, _duration_ms(found))
        elif not colon and not rest:
            return cls(kind)
        raise SettingsError(
            f"auto.offset.reset = {text!r}: earliest, latest, none, or by_duration:PnDTnHnMn.nS is expected"
        )

    def timestamp_ms(self, now_ms: int) -> int:
        """What a broker is asked for; `now_ms` is the time of day."""
        if self.kind is ResetKind.EARLIEST:
            return EARLIEST_TIMESTAMP
        if self.kind is ResetKind.LATEST:
            return LATEST_TIMESTAMP
        return max(0, now_ms - self.duration_ms)

    def __str__(self) -> str:
        if self.kind is ResetKind.BY_DURATION:
            return f"by_duration:PT{self.duration_ms / 1000:g}S"
        return str(self.kind.value)


def _duration_ms(found: re.Match[str]) -> int:
    days, hours, minutes = (int(found[name] or 0) for name in ("days", "hours", "minutes"))
    return ((days * 24 + hours) * 60 + minutes) * 60_000 + round(float(found["seconds"] or 0) * 1000)


EARLIEST: Final = ResetStrategy(ResetKind.EARLIEST)
LATEST: Final = ResetStrategy(ResetKind.LATEST)
NO_RESET: Final = ResetStrategy(ResetKind.NONE)
