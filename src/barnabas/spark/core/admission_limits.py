"""Where a read begins and ends, as the options say it; which offsets that means, the cluster knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from barnabas.base.ids import TopicPartition

#: Stand-ins for offsets in `Offsets`, as in the protocol.
LATEST: Final = -1
EARLIEST: Final = -2

OnNoMatch = Literal["error", "latest"]


@dataclass(frozen=True, slots=True)
class Earliest:
    """The oldest record that is still there."""


@dataclass(frozen=True, slots=True)
class LatestOffsets:
    """What is written next."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """An offset for every partition; `LATEST` and `EARLIEST` are allowed among them."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Timestamps:
    """For every partition the first record that is not older. `on_no_match`: what to do where all are older."""

    timestamps_ms: Mapping[TopicPartition, int]
    on_no_match: OnNoMatch


@dataclass(frozen=True, slots=True)
class Timestamp:
    """The same with one timestamp for all partitions."""

    timestamp_ms: int
    on_no_match: OnNoMatch


Limit = Earliest | LatestOffsets | Offsets | Timestamps | Timestamp


def may_skip_when_asked_again(limit: Limit) -> bool:
    """Whether asking later could answer with a later place although the records between are still there."""
    if isinstance(limit, Offsets):
        return LATEST in limit.offsets.values()
    return not isinstance(limit, Earliest)
