"""The verdict on a partition's log: whether it holds all that it must. Facts in, one answer out; nothing is read here.

What a log must hold is everything from its start offset up to its recovery point: that was flushed, so no crash takes
it away. Below the recovery point there may be no hole, no batch that is not whole and no end; gaps are none in logs
that are or were compacted, as long as their indexes do not know of more. At or above it whatever is torn is recovery's
to cut. What the answer means is for the caller to say: a sole replica is refused until somebody restores the files or
accepts the loss; one of several may cut itself there and fetch again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.storage.errors import LogError
from barnabas.storage.files import directory_of


class SegmentFacts(NamedTuple):
    """What can be seen of one segment."""

    base_offset: int
    #: Of the data.
    path: str
    #: None if there are indexes and no data, and no deletion or swap that explains it.
    size_bytes: int | None
    #: The offset after the last whole batch; None if nobody looked, since all of it lies above the recovery point.
    end_offset: int | None
    #: Where the last whole batch ends.
    end_position: int = 0
    #: What is wrong with what comes behind it.
    problem: str = ""
    #: The highest offset that the indexes know of and the data does not reach; -1 if there is none.
    indexed_offset: int = -1
    #: Whether the offset index points where no batch begins, so that it must be made anew.
    is_index_wrong: bool = False
    #: Up to where each batch was checked by its CRC.
    checked_bytes: int = 0


class LogFacts(NamedTuple):
    """What can be seen of a log, and what is known of it."""

    directory: str
    #: In order; None if the directory is missing.
    segments: Sequence[SegmentFacts] | None
    #: Everything below was flushed; 0 if that was never noted.
    recovery_point: int
    log_start_offset: int = 0
    #: Whether the log is or was compacted.
    may_have_gaps: bool = False


class Loss(NamedTuple):
    """Offsets that are missing in one file, from `position` on. `lost_bytes` is None where nobody knows."""

    path: str
    position: int
    start_offset: int
    end_offset: int
    lost_bytes: int | None
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.path}, byte {self.position}: offsets {self.start_offset} to {self.end_offset - 1} are not there: "
            f"{self.reason}"
        )


class Damage(NamedTuple):
    """What a log does not hold although it must; at least one loss."""

    directory: str
    recovery_point: int
    losses: tuple[Loss, ...]

    def __str__(self) -> str:
        more = f" (and {len(self.losses) - 1} more)" if len(self.losses) > 1 else ""
        return f"{self.losses[0]}{more}, but all below offset {self.recovery_point} was flushed"


class DamagedLogError(LogError):
    """A log is not opened, and nothing in its directory was changed."""

    def __init__(self, partition: TopicPartition, damage: Damage) -> None:
        self.damage = damage
        super().__init__(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{damage}; restore the files, or stop the node and go on without these records: "
            f"barnabas storage accept-loss --directory {directory_of(damage.directory)} {partition}",
        )


def verdict(facts: LogFacts) -> Damage | None:
    """Whether a log is damaged."""
    losses = tuple(_losses(facts))
    return Damage(facts.directory, facts.recovery_point, losses) if losses else None


def _losses(facts: LogFacts) -> Iterator[Loss]:
    wanted, start = facts.recovery_point, facts.log_start_offset
    if wanted and not facts.segments:
        reason = "the directory is missing" if facts.segments is None else "the directory holds no segment"
        if facts.segments is None or start < wanted:
            yield Loss(facts.directory, 0, min(start, wanted), wanted, None, reason)
        return
    segments = facts.segments or ()
    for segment, following in pairwise([*segments, None]):
        assert segment is not None
        bound = None if following is None else following.base_offset
        if segment.base_offset >= wanted:
            return
        loss = _loss_of(segment, bound, facts)
        if loss is not None and loss.end_offset > start and start < wanted:
            yield loss


def _loss_of(segment: SegmentFacts, bound: int | None, facts: LogFacts) -> Loss | None:
    """What a segment lacks that begins below the recovery point, and after which the next begins at `bound`."""
    path, end_offset, position = segment.path, segment.end_offset, segment.end_position
    must_reach = facts.recovery_point if bound is None else bound
    if segment.size_bytes is None:
        return Loss(path, 0, segment.base_offset, must_reach, None, "the file is missing, but its index is there")
    if end_offset is None:
        return None
    if bound is not None and end_offset > bound:
        reason = f"it holds offsets up to {end_offset - 1}, but the next segment begins at {bound}"
        return Loss(path, 0, segment.base_offset, bound, segment.size_bytes, reason)
    if end_offset >= min(facts.recovery_point, must_reach):
        return None
    if segment.problem:
        return Loss(path, position, end_offset, must_reach, segment.size_bytes - position, segment.problem)
    if segment.indexed_offset >= end_offset:
        reason = f"the file is shorter than its index says, which knows of offset {segment.indexed_offset}"
        return Loss(path, position, end_offset, must_reach, None, reason)
    if bound is None:
        return Loss(path, position, end_offset, must_reach, None, "the log ends here")
    if facts.may_have_gaps:
        return None
    reason = f"the segment ends here, but the next one begins at offset {bound}"
    return Loss(path, position, end_offset, must_reach, None, reason)
