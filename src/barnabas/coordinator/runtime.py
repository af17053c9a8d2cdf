"""The runtime that all coordinators share: operation → records → append → replay → answer at commit.

It knows nothing of groups. Whoever drives it (asyncio in `broker/coordinators/coordinator_runner.py`, a test by hand)
- calls `run` for each operation, after an append if `must_append_before` says so, and for what is `due` when
  `next_deadline_ms` has come;
- takes `take_replies` after each call, and appends `next_batch` when it sees fit, until there is none;
- says what became of the batch: `appended`, which replays it, or `append_failed`; later `committed` or `not_committed`.

What is in records changes only by replay, after the append. So an append that fails leaves nothing to be undone, and
loading, which replays the same records from the log, comes to the same state. The price is that an operation cannot
see what is not appended yet: if records of its subject wait for their append, that comes first. Kafka's runtime replays
before the append, and goes back to a snapshot if that fails.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import check
from barnabas.coordinator.loading import ReplayTarget, load_batches
from barnabas.coordinator.results import (
    Now,
    Operation,
    ProducerWrite,
    Records,
    Reply,
    Token,
    WriteCallback,
    append_error,
)
from barnabas.coordinator.skipped import SkippedRecords
from barnabas.coordinator.timeline import SnapshotRegistry
from barnabas.coordinator.timer import CoordinatorTimer
from barnabas.wire.compiler import Buffer
from barnabas.wire.schema import Struct


class CoordinatorShard(ReplayTarget, Protocol):
    """One partition of a coordinator's topic: state that is replayed, and soft state that goes with the shard."""

    @property
    def snapshots(self) -> SnapshotRegistry:
        """Of everything that is replayed."""
        ...

    @property
    def timer(self) -> CoordinatorTimer: ...

    @property
    def replies(self) -> list[Reply]:
        """Answers to requests that were parked; the runtime takes them out."""
        ...

    def loaded(self, now: Now) -> Sequence[Operation]:
        """All is replayed: make soft state from it. What is to be done at once is run next."""
        ...

    def unloaded(self, error: ErrorCode) -> None:
        """Answer whatever is parked in soft state."""
        ...


S = TypeVar("S", bound=CoordinatorShard)


class _Awaited(NamedTuple):
    """A reply that holds once the records are committed, and what is said instead if they are not."""

    token: Token
    response: Struct
    if_failed: Callable[[ErrorCode], Struct]


class Write:
    """The records of one operation on their way."""

    __slots__ = (
        "awaited",
        "callback",
        "followers",
        "is_blind",
        "producer",
        "records",
        "required_offset",
        "size_bytes",
        "subject",
    )

    def __init__(
        self,
        subject: str | None,
        records: Records,
        callback: WriteCallback | None,
        *,
        is_blind: bool,
        producer: ProducerWrite | None = None,
    ) -> None:
        #: None for a marker, which may concern all of them.
        self.subject = subject
        #: Of a transaction: then nothing else is in its batch.
        self.producer = producer
        self.is_blind = is_blind
        self.records = records
        self.callback = callback
        #: What the operation itself is told, and then what others are, who only want all that was written before them
        #: to be committed.
        self.awaited: _Awaited | None = None
        self.followers: list[_Awaited] = []
        self.size_bytes = sum([record.data.size_bytes for record in records])
        #: That the high watermark must reach: the end of its batch. Known once it is appended.
        self.required_offset = -1

    @property
    def record_count(self) -> int:
        """How many offsets it takes."""
        return len(self.records) or 1

    @property
    def waiting(self) -> list[_Awaited]:
        """Who waits for it, in the order in which they are told."""
        return self.followers if self.awaited is None else [self.awaited, *self.followers]


class CoordinatorRuntime(Generic[S]):
    """A shard with its writes. `max_write_bytes` is how much the records of one batch may take."""

    def __init__(self, shard: S, max_write_bytes: int) -> None:
        self.shard = shard
        self.max_write_bytes = max_write_bytes
        #: What loading did not understand.
        self.skipped = SkippedRecords()
        #: Where what was loaded ends.
        self.next_offset = 0
        self._replies: list[Reply] = []
        self._unappended: deque[Write] = deque()
        #: Whose records are unappended, and whether all of them come from blind operations.
        self._subjects: dict[str | None, bool] = {}
        self._appending: list[Write] = []
        self._uncommitted: deque[Write] = deque()

    # Loading

    def load(self, data: Buffer) -> int | None:
        """Replay whole batches of the log, which follow those of the call before; where they end, None if there were
        none."""
        next_offset = load_batches(self.shard, data, self.skipped)
        if next_offset is not None:
            self.next_offset = next_offset
        return next_offset

    def finish_loading(self, now: Now) -> Sequence[Operation]:
        """All is loaded. What it returns is run next."""
        self.shard.snapshots.loaded(self.next_offset)
        return self.shard.loaded(now)

    def unload(self, error: ErrorCode) -> list[Reply]:
        """The end of the shard: whoever waits here is told `error`."""
        for write in (*self._uncommitted, *self._appending, *self._unappended):
            self._answer_failed(write, error)
        self.shard.unloaded(error)
        self.shard.timer.clear()
        return self.take_replies()

    # Operations

    def must_append_before(self, operation: Operation) -> bool:
        """Whether records that wait for their append concern this operation."""
        if operation.subject is None or None in self._subjects:
            return bool(self._unappended)
        blind = self._subjects.get(operation.subject)
        return blind is not None and not (blind and operation.is_blind)

    def run(self, operation: Operation, now: Now) -> Sequence[Operation]:
        """Run one operation. What it returns is run next."""
        if self._unappended:
            check(not self.must_append_before(operation), "an operation must see the records of those before it")
        result = operation.run(now)
        if self.shard.replies:
            self._take_parked_replies()
        producer = result.producer
        is_marker = producer is not None and producer.marker is not None
        if result.records or is_marker:
            check(is_marker or operation.subject is not None, "records are of one subject")
            write = Write(
                operation.subject, result.records, result.callback, is_blind=operation.is_blind, producer=producer
            )
            if result.response is not None:
                write.awaited = _awaited(operation, result.response)
            self._stage(write, now)
        elif result.response is not None:
            awaited = _awaited(operation, result.response)
            self._follow(self._last_write() if result.after_writes else None, [awaited])
        return result.then

    def due(self, now: Now) -> Iterator[Operation]:
        """What the timers want done, to be run one by one."""
        return self.shard.timer.due(now.monotonic_ms)

    @property
    def next_deadline_ms(self) -> int | None:
        """When something is `due`, by the monotonic clock. It may be too early, never too late."""
        return self.shard.timer.next_deadline_ms()

    def take_replies(self) -> list[Reply]:
        if self.shard.replies:
            self._take_parked_replies()
        replies, self._replies = self._replies, []
        return replies

    def _take_parked_replies(self) -> None:
        parked = self.shard.replies
        if parked:
            self._replies += parked
            parked.clear()

    def _last_write(self) -> Write | None:
        for writes in (self._unappended, self._appending, self._uncommitted):
            if writes:
                return writes[-1]
        return None

    def _follow(self, write: Write | None, followers: list[_Awaited]) -> None:
        """Answer when the write is committed; now, if there is none."""
        if write is not None:
            write.followers += followers
        else:
            self._replies += [Reply(awaited.token, awaited.response) for awaited in followers]

    # Writing

    @property
    def has_unappended(self) -> bool:
        return bool(self._unappended)

    @property
    def has_uncommitted(self) -> bool:
        """Whether the log may be ahead of what is committed."""
        return bool(self._uncommitted)

    @property
    def waiting_tokens(self) -> list[Token]:
        """Of the requests that wait for a write."""
        writes = (*self._uncommitted, *self._appending, *self._unappended)
        return [awaited.token for write in writes for awaited in write.waiting]

    def _stage(self, write: Write, now: Now) -> None:
        if write.size_bytes > self.max_write_bytes:
            # It fits into no batch.
            self._fail(write, append_error(ErrorCode.MESSAGE_TOO_LARGE), now)
            return
        self._unappended.append(write)
        self._subjects[write.subject] = write.is_blind and self._subjects.get(write.subject, True)

    def _stage_more(self, subject: str | None, records: Records, now: Now) -> None:
        """What follows from an earlier write."""
        if records:
            self._stage(Write(subject, records, None, is_blind=False), now)

    def next_batch(self) -> list[Write]:
        """Writes that are to be appended as one batch; none if there is nothing to write."""
        check(not self._appending, "what became of the last batch is not known yet")
        size_bytes = 0
        while self._unappended:
            write = self._unappended[0]
            size_bytes += write.size_bytes
            if self._appending and (size_bytes > self.max_write_bytes or write.producer is not None):
                break
            self._appending.append(self._unappended.popleft())
            if write.producer is not None:
                break
        self._subjects = {}
        for write in self._unappended:
            self._subjects[write.subject] = write.is_blind and self._subjects.get(write.subject, True)
        return self._appending

    def appended(self, first_offset: int, now: Now, high_watermark: int = 0) -> None:
        """The last batch is in the log from `first_offset` on. If the high watermark is known already, replay need not
        keep apart what is committed; it must still be told by `committed`."""
        batch, self._appending = self._appending, []
        required_offset = first_offset + sum(write.record_count for write in batch)
        for write in batch:
            write.required_offset = required_offset
            self._uncommitted.append(write)
        offset = first_offset
        self.shard.snapshots.commit(high_watermark)
        if batch[0].producer is not None:
            self._replay_in_transaction(batch[0], batch[0].producer, first_offset)
        else:
            replay, begin = self.shard.replay, self.shard.snapshots.begin
            for write in batch:
                for record in write.records:
                    begin(offset)
                    replay(record.key, record.value, offset)
                    offset += 1
        for write in batch:
            if write.callback is not None:
                self._stage_more(write.subject, write.callback.appended(now), now)

    def _replay_in_transaction(self, write: Write, producer: ProducerWrite, offset: int) -> None:
        shard = self.shard
        for record in write.records:
            shard.snapshots.begin(offset)
            shard.replay(record.key, record.value, offset, producer.producer_id)
            offset += 1
        if producer.marker is not None:
            shard.snapshots.begin(offset)
            shard.replay_end_transaction(producer.producer_id, committed=producer.marker.committed)

    def append_failed(self, error: ErrorCode, now: Now) -> None:
        """Nothing of the last batch is in the log; what waits for its append is not tried. `error` is for clients.

        What was refused to a producer says nothing of the others, who go on; and who only waited for it now waits for
        what was written before.
        """
        if self._appending and self._appending[0].producer is not None:
            [refused], self._appending = self._appending, []
            followers, refused.followers = refused.followers, []
            self._fail(refused, error, now)
            self._follow(self._uncommitted[-1] if self._uncommitted else None, followers)
            return
        writes = [*self._appending, *self._unappended]
        self._appending = []
        self._unappended.clear()
        self._subjects.clear()
        for write in writes:
            self._fail(write, error, now)

    def committed(self, high_watermark: int, now: Now) -> None:
        """Everything below is committed."""
        self.shard.snapshots.commit(high_watermark)
        while self._uncommitted and self._uncommitted[0].required_offset <= high_watermark:
            write = self._uncommitted.popleft()
            if write.callback is not None:
                self._stage_more(write.subject, write.callback.committed(now), now)
            self._take_parked_replies()
            self._replies += [Reply(awaited.token, awaited.response) for awaited in write.waiting]

    def not_committed(self, required_offset: int, error: ErrorCode, now: Now) -> None:
        """The high watermark did not reach this offset in time. It still may."""
        for write in self._uncommitted:
            if write.required_offset == required_offset:
                self._fail(write, error, now)

    def _fail(self, write: Write, error: ErrorCode, now: Now) -> None:
        callback, write.callback = write.callback, None
        if callback is not None:
            self._stage_more(write.subject, callback.failed(error, now), now)
        self._answer_failed(write, error)

    def _answer_failed(self, write: Write, error: ErrorCode) -> None:
        self._take_parked_replies()
        self._replies += [Reply(awaited.token, awaited.if_failed(error)) for awaited in write.waiting]
        write.awaited, write.followers = None, []


def _awaited(operation: Operation, response: Struct) -> _Awaited:
    return _Awaited(operation.token, response, operation.if_failed or (lambda _: response))
