"""What nobody can notice, because Kafka's files do not say it: each with its reason, and in `docs/gaps.md` too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.damage.judging import Verdict


@dataclass(frozen=True, slots=True)
class Undetectable:
    """A sort of damage that may pass in silence. `name` is what `docs/gaps.md` calls it."""

    name: str
    reason: str
    covers: Callable[[Verdict], bool]


UNDETECTABLE: Final = [
    Undetectable(
        "another cluster id in `meta.properties`",
        "the file has no checksum, and the id is nowhere else",
        lambda verdict: verdict.mutation.path.endswith("/meta.properties") and "cluster id" in verdict.why,
    ),
    Undetectable(
        "a changed or missing `log-start-offset-checkpoint`",
        "it has no checksum, and alone knows up to where records were deleted within a segment; they may be there "
        "again, or others not be shown",
        lambda verdict: any(path.endswith("/log-start-offset-checkpoint") for path in verdict.mutation.paths),
    ),
    Undetectable(
        "whole batches missing at the end of a log after a kill, from the recovery point on",
        "nothing says how far a log went that was not flushed: so a power loss leaves it",
        lambda verdict: verdict.is_unflushed_tail,
    ),
    Undetectable(
        "a time index with wrong entries that could be right",
        "entries have no checksum; a lookup by time may then lead to a later offset, reading by offset does not use it",
        lambda verdict: verdict.mutation.path.endswith(".timeindex") and verdict.why.startswith("('time'"),
    ),
    Undetectable(
        "a timestamp changed in a batch, for lookups by time",
        "they go by headers and check no CRC, as Kafka's do; whoever reads the batch is told",
        lambda verdict: (
            verdict.mutation.kind == "flip"
            and verdict.mutation.path.endswith(".log")
            and verdict.why.startswith("('time'")
        ),
    ),
    Undetectable(
        "a producer snapshot in the place of another",
        "it does not say of which partition or offset it is; a batch that is sent again may be written again",
        lambda verdict: (
            verdict.mutation.kind == "swap"
            and verdict.mutation.path.endswith(".snapshot")
            and "a retry was written again" in verdict.why
        ),
    ),
]


def why_undetectable(verdict: Verdict) -> Undetectable | None:
    """The entry that covers a verdict; None if it should have been noticed."""
    return next((each for each in UNDETECTABLE if each.covers(verdict)), None)
