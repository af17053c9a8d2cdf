"""What was fetched and not yet used up, in the order in which it came."""

from __future__ import annotations

from collections import deque

from barnabas.base.ids import TopicPartition
from barnabas.client._kernel.receiving import Chunk
from barnabas.client.core.consuming.partition_state import PartitionState, Position
from barnabas.client.core.consuming.subscription import Subscription


class _Fetched:
    __slots__ = ("chunk", "is_queued", "partition", "state", "version")

    def __init__(self, partition: TopicPartition, state: PartitionState, chunk: Chunk) -> None:
        self.partition = partition
        self.state = state
        self.chunk = chunk
        self.version = state.version
        self.is_queued = True


class FetchBuffer:
    """Chunks that wait for the program. The bytes of one that was handed out do not count any more: it is the program
    that decides how long it keeps them.

    Guarantees: nothing is handed out that was fetched before a seek, a reset or a change of assignment; of a paused
    partition nothing is handed out and nothing dropped; the chunks of a partition follow on each other without a gap,
    or are fetched again.
    """

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._queue: deque[_Fetched] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, partition: TopicPartition, state: PartitionState, chunk: Chunk) -> None:
        self._queue.append(_Fetched(partition, state, chunk))
        state.queued_bytes += chunk.size_bytes

    def next_chunk(self) -> Chunk | None:
        """The first chunk that has something for the program and may be given to it. It stays here until it has no
        more. Raises what keeps its next record from being read.
        """
        kept: list[_Fetched] = []
        try:
            while self._queue:
                fetched = self._queue[0]
                if not self._is_current(fetched):
                    self._drop_first()
                    continue
                if not self._follows_on(fetched):
                    fetched.state.drop_fetched()
                    continue
                if not fetched.state.is_fetchable:
                    kept.append(self._queue.popleft())
                    continue
                chunk = fetched.chunk
                chunk.resume()
                if chunk.has_more():
                    self._hand_out(fetched)
                    return chunk
                self._used_up(fetched)
            return None
        finally:
            self._queue.extendleft(reversed(kept))

    def prune(self) -> None:
        """Forget what nobody wants any more, so that its partitions can be fetched anew."""
        stale = [fetched for fetched in self._queue if not self._is_current(fetched)]
        if stale:
            for fetched in stale:
                self._uncount(fetched)
            self._queue = deque(fetched for fetched in self._queue if self._is_current(fetched))

    def clear(self) -> None:
        while self._queue:
            self._drop_first()

    def has_data(self) -> bool:
        """Whether `next_chunk` may find something."""
        return any(
            self._is_current(fetched) and fetched.state.is_fetchable and not fetched.chunk.is_exhausted
            for fetched in self._queue
        )

    def _is_current(self, fetched: _Fetched) -> bool:
        state = fetched.state
        return state.version == fetched.version and self._subscription.get(fetched.partition) is state

    @staticmethod
    def _follows_on(fetched: _Fetched) -> bool:
        """A chunk that ended early, as one that could not be read on, leaves a gap."""
        state = fetched.state
        return (
            state.chunk is fetched.chunk or state.position is None or state.position.offset == fetched.chunk.next_offset
        )

    def _hand_out(self, fetched: _Fetched) -> None:
        if fetched.state.chunk is not fetched.chunk:
            self._subscription.handed_out(fetched.partition, fetched.chunk)
        self._uncount(fetched)

    def _used_up(self, fetched: _Fetched) -> None:
        self._drop_first()
        chunk = fetched.chunk
        if fetched.state.chunk is not chunk:
            # Nothing in it was for the program.
            self._subscription.advance(fetched.partition, Position(chunk.next_offset, chunk.next_epoch))
        else:
            fetched.state.retire()
        state = fetched.state
        if not state.queued_bytes and state.position is not None and state.position.offset != state.fetch.offset:
            state.drop_fetched()

    def _drop_first(self) -> None:
        self._uncount(self._queue.popleft())

    def _uncount(self, fetched: _Fetched) -> None:
        if fetched.is_queued:
            fetched.is_queued = False
            fetched.state.queued_bytes -= fetched.chunk.size_bytes
