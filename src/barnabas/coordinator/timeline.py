"""State that is replayed from records, at two moments: as far as the log goes, and as far as it is committed.

Operations read the first, so that each sees what those before it wrote; requests that only read see the second, so that
nobody acts on what may vanish with this leader. Kafka's classes of these names can also go back to an earlier offset.
Ours need not: a record is replayed after it was appended, and a shard whose records were cut off is loaded anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from typing import Any, Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_END_OF_TIME: Final = 2**63 - 1
_DELETED: Final = object()


class SnapshotRegistry:
    """Which changes are not committed yet, in the order of their records. One for all timelines of a shard."""

    __slots__ = ("_changes", "_committed_offset", "_offset", "is_committed")

    def __init__(self) -> None:
        self._changes: deque[tuple[int, TimelineDict[Any, Any], Any]] = deque()
        self._offset = 0
        #: While a log is loaded all that is read counts as committed.
        self._committed_offset = _END_OF_TIME
        #: Whether the record that is being replayed is committed.
        self.is_committed = True

    def begin(self, offset: int) -> None:
        """The record at `offset` is replayed next."""
        self._offset = offset
        self.is_committed = offset < self._committed_offset

    def loaded(self, next_offset: int) -> None:
        """What comes from here on is not committed until somebody says so."""
        self._committed_offset = next_offset

    def note(self, timeline: TimelineDict[Any, Any], key: Hashable) -> None:
        self._changes.append((self._offset, timeline, key))

    def commit(self, high_watermark: int) -> None:
        """Everything below is committed."""
        changes = self._changes
        while changes and changes[0][0] < high_watermark:
            _, timeline, key = changes.popleft()
            timeline.commit_oldest(key)
        self._committed_offset = max(self._committed_offset, high_watermark)


class TimelineDict(Generic[K, V]):
    """A dict with a committed and a latest content."""

    __slots__ = ("_length", "_registry", "_uncommitted", "committed")

    def __init__(self, registry: SnapshotRegistry) -> None:
        self._registry = registry
        #: As far as the log is committed. Only to be read.
        self.committed: dict[K, V] = {}
        #: The values that come after the committed one, the oldest first.
        self._uncommitted: dict[K, list[Any]] = {}
        self._length = 0

    def __len__(self) -> int:
        """Of the latest content."""
        return self._length

    def __contains__(self, key: K) -> bool:
        return self.get(key) is not None

    def get(self, key: K) -> V | None:
        """The latest value."""
        if self._uncommitted and key in self._uncommitted:
            value = self._uncommitted[key][-1]
            return None if value is _DELETED else value
        return self.committed.get(key)

    def latest(self) -> Mapping[K, V]:
        """The latest content; a view of it if all is committed, else a copy."""
        if not self._uncommitted:
            return self.committed
        merged = dict(self.committed)
        for key, values in self._uncommitted.items():
            if values[-1] is _DELETED:
                merged.pop(key, None)
            else:
                merged[key] = values[-1]
        return merged

    def set(self, key: K, value: V) -> None:
        if self.get(key) is None:
            self._length += 1
        if self._registry.is_committed:
            self.committed[key] = value
            return
        self._uncommitted.setdefault(key, []).append(value)
        self._registry.note(self, key)

    def delete(self, key: K) -> V | None:
        """What was deleted, if anything was there."""
        value = self.get(key)
        if value is None:
            return None
        self._length -= 1
        if self._registry.is_committed:
            del self.committed[key]
        else:
            self._uncommitted.setdefault(key, []).append(_DELETED)
            self._registry.note(self, key)
        return value

    def commit_oldest(self, key: K) -> None:
        """For the registry: the oldest change of this key is committed."""
        values = self._uncommitted[key]
        value = values.pop(0)
        if not values:
            del self._uncommitted[key]
        if value is _DELETED:
            self.committed.pop(key, None)
        else:
            self.committed[key] = value
