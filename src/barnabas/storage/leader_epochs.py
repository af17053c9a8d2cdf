"""Which leader epoch wrote which part of a log: what a follower compares to find where its log left the leader's."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

from barnabas.base.errors import check
from barnabas.storage.checkpoints import read_epochs, write_epochs
from barnabas.storage.files import FileSystem, join

LEADER_EPOCH_FILE: Final = "leader-epoch-checkpoint"
NO_EPOCH: Final = -1
NO_OFFSET: Final = -1
_BEYOND_EVERY_OFFSET: Final = 2**63


class EpochEntry(NamedTuple):
    """An epoch and the offset of its first record."""

    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """An epoch and the offset after its last record; both -1 where nothing is known."""

    epoch: int
    end_offset: int


NO_EPOCH_END: Final = EpochEnd(NO_EPOCH, NO_OFFSET)


class LeaderEpochs:
    """The epochs of one log with their first offsets; both only rise from entry to entry.

    `dirty` says that the file lags behind. A new epoch must be saved before the recovery point passes its first record,
    since below that recovery does not look; so flushes save it. After truncation saving may wait, because loading
    truncates again.
    """

    __slots__ = ("_epochs", "_latest_start", "_saved_version", "_starts", "latest_epoch", "saved_entries", "version")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        #: Rises with every change.
        self.version = 0
        self._note_latest()
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)
        self._saved_version = self.version
        #: What the file says.
        self.saved_entries = self.entries

    @property
    def dirty(self) -> bool:
        return self._saved_version < self.version

    def saved(self, version: int, entries: list[EpochEntry]) -> None:
        """The file holds what was there at `version`; may be told from any thread."""
        if version >= self._saved_version:
            self._saved_version, self.saved_entries = version, entries

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that `epoch` has a record at `start_offset`; true if that was news. What contradicts it is forgotten."""
        if epoch == self.latest_epoch and start_offset >= self._latest_start:
            return False
        check(epoch >= 0 and start_offset >= 0, f"leader epoch {epoch} cannot start at offset {start_offset} of a log")
        epochs, starts = self._epochs, self._starts
        while epochs and (epochs[-1] >= epoch or starts[-1] >= start_offset):
            epochs.pop()
            starts.pop()
        epochs.append(epoch)
        starts.append(start_offset)
        self._changed()
        return True

    @property
    def entries(self) -> list[EpochEntry]:
        return [EpochEntry(epoch, start) for epoch, start in zip(self._epochs, self._starts, strict=True)]

    @property
    def earliest(self) -> EpochEntry | None:
        return EpochEntry(self._epochs[0], self._starts[0]) if self._epochs else None

    @property
    def latest(self) -> EpochEntry | None:
        return EpochEntry(self._epochs[-1], self._starts[-1]) if self._epochs else None

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """The largest known epoch that is not above `epoch`, and where it ends: at the next one, or with the log.

        An epoch from before the first known one is answered as asked, ending where our data begins: its records are
        gone, and whoever asks should go on from there. Of an epoch above all known ones nothing can be said.
        """
        if epoch < 0 or epoch > self.latest_epoch:
            return NO_EPOCH_END
        if epoch == self.latest_epoch:
            return EpochEnd(epoch, log_end_offset)
        after = bisect_right(self._epochs, epoch)
        return EpochEnd(self._epochs[after - 1] if after else epoch, self._starts[after])

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch that wrote the record at `offset`, if one that old is known."""
        after = bisect_right(self._starts, offset)
        return self._epochs[after - 1] if after else None

    def truncate_from_end(self, end_offset: int) -> bool:
        """Forget the epochs that have no record below `end_offset`; true if there were any."""
        if end_offset < 0 or not self._starts or self._latest_start < end_offset:
            return False
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()
        self._changed()
        return True

    def truncate_from_start(self, start_offset: int) -> bool:
        """Forget the epochs that have no record from `start_offset` on, and let the one at that offset begin there."""
        after = bisect_right(self._starts, start_offset)
        if not after or (after == 1 and self._starts[0] == start_offset):
            return False
        del self._starts[: after - 1]
        del self._epochs[: after - 1]
        self._starts[0] = start_offset
        self._changed()
        return True

    def clear(self) -> bool:
        """Forget everything; true if there was anything."""
        if not self._epochs:
            return False
        self._epochs.clear()
        self._starts.clear()
        self._changed()
        return True

    def _changed(self) -> None:
        self.version += 1
        self._note_latest()

    def _note_latest(self) -> None:
        self.latest_epoch = self._epochs[-1] if self._epochs else NO_EPOCH
        self._latest_start = self._starts[-1] if self._starts else _BEYOND_EVERY_OFFSET

    def __repr__(self) -> str:
        return f"<leader epochs {', '.join(f'{epoch} from {start}' for epoch, start in self.entries) or 'unknown'}>"


def load_leader_epochs(files: FileSystem, directory: str) -> LeaderEpochs:
    """What the file in a partition's directory says; nothing if there is none. Entries out of order are dropped."""
    path = join(directory, LEADER_EPOCH_FILE)
    if not files.exists(path):
        return LeaderEpochs()
    return LeaderEpochs(read_epochs(files, path))


def save_leader_epochs(files: FileSystem, directory: str, epochs: LeaderEpochs) -> None:
    """Bring the file up to date, if it is not."""
    if epochs.dirty:
        entries = epochs.entries
        write_leader_epochs(files, directory, entries)
        epochs.saved(epochs.version, entries)


def write_leader_epochs(files: FileSystem, directory: str, entries: Iterable[EpochEntry]) -> None:
    """Replace the file."""
    write_epochs(files, join(directory, LEADER_EPOCH_FILE), entries)
