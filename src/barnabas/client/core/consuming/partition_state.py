"""What a consumer knows of one partition that it reads."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple, Protocol

from barnabas.base.ids import Uuid
from barnabas.client.core.consuming.offsets import NO_EPOCH, ResetStrategy

#: What records are taken to need before any were seen.
_USUAL_RECORD_BYTES: Final = 1024.0
#: The last batches of a range may be larger than those before; a second fetch for the rest costs more than some bytes.
_SPARE: Final = 1.125
_LEAST_FETCH_BYTES: Final = 65_536


class Position(NamedTuple):
    """An offset to read next, and the leader epoch of the record before it (-1 if that is not known)."""

    offset: int
    epoch: int = NO_EPOCH


class FetchState(Enum):
    """How far a partition is on its way to being read."""

    INITIALIZING = auto()  # nobody has looked for a committed offset yet
    AWAIT_RESET = auto()  # the offset to begin with is asked for
    AWAIT_VALIDATION = auto()  # whether the log still holds what was read is asked for
    FETCHING = auto()


class HandedChunk(Protocol):
    """Records that are with the program; implemented in the kernel."""

    @property
    def next_offset(self) -> int:
        """Behind the last record that was handed out."""

    @property
    def next_epoch(self) -> int: ...

    @property
    def handed_offset(self) -> int:
        """Behind the last record that the program has come back from."""

    @property
    def handed_epoch(self) -> int: ...

    def hand_over(self, handed_offset: int, handed_epoch: int) -> None:
        """The program gets it, and is done only up to this offset."""

    def confirm(self) -> None:
        """The program has come back: it is done with all that was handed out."""

    def halt(self) -> None:
        """Give out nothing more."""


class PartitionState:
    """One assigned partition.

    Two positions matter. `position` is what the program gets next; `fetch` is what brokers are asked for next, ahead of
    it by what is buffered. While the program has a chunk, the chunk knows the position. `version` changes whenever
    what was fetched before is not wanted any more.
    """

    __slots__ = (
        "_consumed",
        "_position",
        "bytes_per_offset",
        "chunk",
        "error",
        "failure",
        "fetch",
        "fetch_state",
        "high_watermark",
        "is_paused",
        "is_pending_revocation",
        "last_stable_offset",
        "leader_epoch",
        "leader_id",
        "log_start_offset",
        "preferred_replica",
        "preferred_until_ms",
        "queued_bytes",
        "reset_strategy",
        "retry_at_ms",
        "retry_count",
        "topic_id",
        "until_offset",
        "version",
    )

    def __init__(self) -> None:
        self.fetch_state = FetchState.INITIALIZING
        self._position: Position | None = None
        self._consumed: Position | None = None
        self.fetch = Position(0)
        self.chunk: HandedChunk | None = None
        self.version = 0
        #: What was fetched and waits to be taken.
        self.queued_bytes = 0
        self.is_paused = False
        #: A rebalance takes it away: it stays assigned until the listeners have run, and is not read.
        self.is_pending_revocation = False
        self.reset_strategy: ResetStrategy | None = None
        #: The leader for which the position was last validated.
        self.leader_id = -1
        self.leader_epoch = NO_EPOCH
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start_offset: int | None = None
        #: Nothing is fetched of a topic of the same name that has another id; None if any will do.
        self.topic_id: Uuid | None = None
        #: Nothing is fetched from there on: who reads needs no more.
        self.until_offset: int | None = None
        #: Of the last answer, from which follows how much the rest may take. At first a guess.
        self.bytes_per_offset = _USUAL_RECORD_BYTES
        self.preferred_replica = -1
        self.preferred_until_ms = 0
        self.retry_at_ms = 0
        self.retry_count = 0
        #: Why it cannot be read until the program seeks.
        self.failure: Exception | None = None
        #: What the next poll has to raise, once; forgotten if it goes better meanwhile.
        self.error: Exception | None = None

    @property
    def position(self) -> Position | None:
        chunk = self.chunk
        return self._position if chunk is None else Position(chunk.next_offset, chunk.next_epoch)

    @property
    def consumed(self) -> Position | None:
        """Behind the last record that the program is done with."""
        chunk = self.chunk
        return self._consumed if chunk is None else Position(chunk.handed_offset, chunk.handed_epoch)

    @property
    def has_position(self) -> bool:
        return self.fetch_state in (FetchState.AWAIT_VALIDATION, FetchState.FETCHING)

    @property
    def is_fetchable(self) -> bool:
        return (
            self.fetch_state is FetchState.FETCHING
            and not self.is_paused
            and not self.is_pending_revocation
            and self.failure is None
        )

    def move_to(self, position: Position) -> None:
        """Read from another place; what was fetched before is not wanted any more."""
        self.drop_fetched()
        self._position = self._consumed = self.fetch = position
        self.fetch_state = FetchState.FETCHING
        self.reset_strategy = None
        self.failure = self.error = None
        self.retry_at_ms = self.retry_count = 0

    def drop_fetched(self) -> None:
        """Fetch again from the position on."""
        self.version += 1
        self.retire()
        if self._position is not None:
            self.fetch = self._position

    def begin_reset(self, strategy: ResetStrategy) -> None:
        self.drop_fetched()
        self._position = self._consumed = None
        self.fetch_state = FetchState.AWAIT_RESET
        self.reset_strategy = strategy
        self.failure = self.error = None
        self.preferred_replica = -1
        self.retry_at_ms = self.retry_count = 0

    def hand_out(self, chunk: HandedChunk) -> None:
        self.retire()
        if self._consumed is not None:
            # Of a chunk before it the program may still have records.
            chunk.hand_over(*self._consumed)
        self.chunk = chunk

    def take_back(self, position: Position) -> None:
        """What was handed out from there on did not get to the program: it is fetched again."""
        self.retire()
        self._position = self._consumed = position
        self.drop_fetched()

    def retire(self) -> None:
        """The chunk is used up, or not wanted any more."""
        chunk = self.chunk
        if chunk is not None:
            chunk.halt()
            self._position = Position(chunk.next_offset, chunk.next_epoch)
            self._consumed = Position(chunk.handed_offset, chunk.handed_epoch)
            self.chunk = None

    def advance(self, position: Position) -> None:
        """Move over what holds no record for the program, or was handed out as columns."""
        self.retire()
        self._position = position

    def confirm(self) -> None:
        """The program has come back, and is done with all that it got."""
        if self.chunk is not None:
            self.chunk.confirm()
        self._consumed = self.position

    def done_up_to(self, mark: Position) -> None:
        """The program says that it is done so far. What it was not given yet it cannot be done with."""
        position, consumed = self.position, self.consumed
        if position is None:
            return
        if mark.offset >= position.offset:
            mark = position
        if consumed is not None and mark.offset <= consumed.offset:
            return
        if self.chunk is None:
            self._consumed = mark
        else:
            self.chunk.hand_over(*mark)

    def read_until(self, offset: int, topic_id: Uuid | None = None) -> None:
        """Fetch nothing from this offset on; with a topic id, and nothing while the name is another topic's."""
        self.until_offset, self.topic_id = offset, topic_id

    @property
    def is_fetched_to_the_end(self) -> bool:
        """Whether nothing more of it is wanted."""
        return self.until_offset is not None and self.fetch.offset >= self.until_offset

    def fetch_bytes(self, most_bytes: int) -> int:
        """How much the next fetch may bring: not much more than what is left up to the end."""
        if self.until_offset is None:
            return most_bytes
        left_bytes = (self.until_offset - self.fetch.offset) * self.bytes_per_offset
        return min(most_bytes, max(int(left_bytes * _SPARE), _LEAST_FETCH_BYTES))

    def backs_off(self, now_ms: int) -> bool:
        return now_ms < self.retry_at_ms
