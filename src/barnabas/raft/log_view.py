"""What the machine knows of its own log: offsets and epochs, no records.

The machine decides by it at once, while the effects that it asks for (`Append`, `Truncate` …) reach the files in the
same order a little later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from barnabas.base.errors import InvariantError, check
from barnabas.raft.types import OffsetAndEpoch, SnapshotId


@dataclass(frozen=True, slots=True)
class Divergence:
    """The fetcher has another history than we: ours of that epoch or the one before it ends at this offset."""

    end: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class SnapshotNeeded:
    """What the fetcher needs is not in the log any more, but in this snapshot."""

    snapshot_id: SnapshotId


class LogView:
    """Offsets and epochs of a log. `synced_offset` is how far it is safe from a crash of the machine."""

    def __init__(
        self,
        start_offset: int,
        end_offset: int,
        epochs: Iterable[tuple[int, int]],
        snapshots: Sequence[SnapshotId],
    ) -> None:
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.synced_offset = end_offset
        # A stop may have left older ones behind, whose log is gone.
        self.snapshots = [each for each in snapshots if each.end_offset >= start_offset]
        #: Epochs with their first offsets, as far as the log reaches back.
        self._epochs = list(epochs)

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        return self.snapshots[-1] if self.snapshots else None

    @property
    def _epoch_before_start(self) -> int:
        return self.snapshots[0].epoch if self.snapshots and self.snapshots[0].end_offset <= self.start_offset else 0

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, wherever it lies; 0 if there is none."""
        if self._epochs:
            return self._epochs[-1][0]
        return self.snapshots[-1].epoch if self.snapshots else 0

    @property
    def end(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self.end_offset, self.last_epoch)

    @property
    def synced_end(self) -> OffsetAndEpoch:
        """Where what is safe ends. A snapshot always is."""
        offset = max(self.synced_offset, self.start_offset)
        return self.end if offset >= self.end_offset else OffsetAndEpoch(offset, self.epoch_of(offset - 1))

    def epoch_of(self, offset: int) -> int:
        """The epoch of the record at an offset, or of what came before the log."""
        for epoch, first_offset in reversed(self._epochs):
            if first_offset <= offset:
                return epoch
        return self._epoch_before_start

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """Where the records of `epoch` end, or those of the last epoch before it that has any."""
        end_offset = self.end_offset
        for known, first_offset in reversed(self._epochs):
            if known <= epoch:
                return OffsetAndEpoch(end_offset, known)
            end_offset = first_offset
        return OffsetAndEpoch(end_offset, self._epoch_before_start)

    def validate(self, offset: int, epoch: int) -> Divergence | SnapshotNeeded | None:
        """Whether a replica whose log ends at `offset`, with a last record of `epoch`, has our history; None if so.

        As Kafka: whoever has nothing has a part of every history that begins at 0; whoever is not even in the epoch of
        our oldest snapshot loads the newest, though the log may reach further back.
        """
        if self._epochs and epoch == self._epochs[-1][0] and self._epochs[-1][1] < offset <= self.end_offset:
            return None  # as nearly always: its last record is of our last epoch
        if offset == self.start_offset == 0:
            return None
        if self.snapshots:
            earliest = self.snapshots[0].epoch
            is_at_start = offset == self.start_offset and epoch != earliest
            if offset < self.start_offset or is_at_start or epoch < earliest:
                return SnapshotNeeded(self.snapshots[-1])
        end = self.end_offset_for_epoch(epoch)
        if end.epoch != epoch or end.offset < offset:
            return Divergence(end)
        return None

    def truncation_offset(self, diverging: OffsetAndEpoch) -> int:
        """Up to where our log and the leader's are the same, by what the leader says of its own."""
        own = self.end_offset_for_epoch(diverging.epoch)
        return min(own.offset, diverging.offset) if own.epoch == diverging.epoch else own.offset

    # How it changes

    def append(self, base_offset: int, last_offset: int, epoch: int) -> None:
        if base_offset != self.end_offset:
            raise InvariantError(f"a batch at {base_offset} does not follow the end {self.end_offset}")
        if not self._epochs or self._epochs[-1][0] != epoch:
            check(epoch >= self.last_epoch, f"a batch of epoch {epoch} comes after one of epoch {self.last_epoch}")
            self._epochs.append((epoch, base_offset))
        self.end_offset = last_offset + 1

    def truncate(self, offset: int) -> None:
        self._epochs = [entry for entry in self._epochs if entry[1] < offset]
        self.end_offset = offset
        self.synced_offset = min(self.synced_offset, offset)

    def start_anew(self, snapshot_id: SnapshotId) -> None:
        """The whole log was replaced by a snapshot."""
        self._epochs.clear()
        self.snapshots = [snapshot_id]
        self.start_offset = self.end_offset = self.synced_offset = snapshot_id.end_offset

    def add_snapshot(self, snapshot_id: SnapshotId) -> None:
        if snapshot_id not in self.snapshots and snapshot_id.end_offset >= self.start_offset:
            self.snapshots = sorted([*self.snapshots, snapshot_id])

    def advance_start(self, offset: int) -> None:
        """The log before `offset` is gone, and so are the snapshots before it."""
        self.start_offset = max(self.start_offset, offset)
        self.snapshots = [each for each in self.snapshots if each.end_offset >= self.start_offset]
        ended = [entry for entry in self._epochs if entry[1] <= self.start_offset]
        if ended:
            # The epoch that goes on at the start begins there now.
            epoch = ended[-1][0]
            rest = [entry for entry in self._epochs if entry[1] > self.start_offset]
            goes_on = self.start_offset < (rest[0][1] if rest else self.end_offset)
            self._epochs = [(epoch, self.start_offset), *rest] if goes_on else rest
