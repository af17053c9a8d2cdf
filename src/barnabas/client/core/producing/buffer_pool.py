"""How much memory holds records that are not acknowledged yet: counted here, lying elsewhere.

The memory is that of the batches themselves; the pool only counts it, as Kafka's pool of buffers does. Pieces of one
batch that come back are kept as such, and handed out again first; other sizes come from the rest, for which kept pieces
are given up if need be. Whoever finds too little waits in line: memory that comes free goes to the first in the line,
bit by bit, until they have enough, so that a large piece is not starved by many small ones.

What must hold: while somebody waits, nothing is free. So a newcomer cannot overtake those in the line.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from barnabas.base.errors import check
from barnabas.client.errors import ClientClosedError, RecordTooLargeError

if TYPE_CHECKING:
    from collections.abc import Callable


class MemoryWaiter:
    """A place in the line. It is over when it `is_ready`, or the pool `is_closed`; then whoever watches is called."""

    __slots__ = ("_on_over", "gathered_bytes", "is_closed", "is_ready", "is_spent", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.gathered_bytes = 0
        self.is_ready = False
        self.is_closed = False
        #: Its memory was given back, or became somebody's who will `free` it: there is nothing left in it.
        self.is_spent = False
        self._on_over: Callable[[], object] | None = None

    @property
    def is_over(self) -> bool:
        return self.is_ready or self.is_closed

    def watch(self, on_over: Callable[[], object]) -> None:
        """Have it called when waiting is over, at once if it is. It may only wake somebody up: a lock is held then.

        If two threads do this and end the waiting at the same moment it may be called twice.
        """
        self._on_over = on_over
        if self.is_over:
            self._tell()

    def _tell(self) -> None:
        on_over, self._on_over = self._on_over, None
        if on_over is not None:
            on_over()


class BufferPool:
    """Counts out `total_bytes`; pieces of `batch_bytes` are the usual ones. Not for several threads at once."""

    __slots__ = ("_free_bytes", "_kept_pieces", "_waiters", "batch_bytes", "is_closed", "total_bytes")

    def __init__(self, total_bytes: int, batch_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.batch_bytes = batch_bytes
        self.is_closed = False
        self._free_bytes = total_bytes
        self._kept_pieces = 0
        self._waiters: deque[MemoryWaiter] = deque()

    @property
    def available_bytes(self) -> int:
        """What could be handed out now, kept pieces included."""
        return self._free_bytes + self._kept_pieces * self.batch_bytes

    @property
    def unpooled_bytes(self) -> int:
        """What could be handed out without giving up a kept piece."""
        return self._free_bytes

    @property
    def waiter_count(self) -> int:
        return len(self._waiters)

    def ask(self, waiter: MemoryWaiter) -> bool:
        """Whether a new waiter gets its memory at once; else it stands in line, and what is free is kept for it.

        Whatever is raised here or later, also by Ctrl-C, `give_up` makes up for it: what is counted out is noted in the
        waiter with no call in between, which is where an interruption could come.
        """
        size_bytes = waiter.size_bytes
        self._check(size_bytes)
        if size_bytes == self.batch_bytes and self._kept_pieces:
            self._kept_pieces -= 1
            waiter.is_ready = True
            return True
        if self._waiters or self.available_bytes < size_bytes:
            self._waiters.append(waiter)
            self._serve()
            return False
        self._take(size_bytes)
        waiter.is_ready = True
        return True

    def take_at_once(self, waiter: MemoryWaiter) -> bool:
        """Whether a new waiter got its memory; it does not stand in line for it. The rest is as with `ask`."""
        if self.is_closed or self._waiters or self.available_bytes < waiter.size_bytes:
            return False
        return self.ask(waiter)

    def free(self, size_bytes: int) -> None:
        """Give back what was taken in one piece of this size."""
        if size_bytes == self.batch_bytes:
            self._kept_pieces += 1
        else:
            self._free_bytes += size_bytes
        check(self.available_bytes <= self.total_bytes, f"{size_bytes} bytes too many were given back to the pool")
        self._serve()

    def give_up(self, waiter: MemoryWaiter) -> None:
        """Leave the line, or give back what was got. Does nothing for one that is spent."""
        if waiter.is_spent:
            return
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        # What is counted back is noted with no call in between, as in `ask`.
        if not waiter.is_ready:
            self._free_bytes += waiter.gathered_bytes
            waiter.gathered_bytes = 0
        elif waiter.size_bytes == self.batch_bytes:
            self._kept_pieces += 1
        else:
            self._free_bytes += waiter.size_bytes
        waiter.is_spent = True
        self._serve()

    def close(self) -> None:
        """Hand out nothing any more: who waits is told. What is out can still be given back."""
        self.is_closed = True
        waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            waiter.is_closed = True
            waiter.is_spent = True
            self._free_bytes += waiter.gathered_bytes
            waiter.gathered_bytes = 0
        for waiter in waiters:
            waiter._tell()

    def _check(self, size_bytes: int) -> None:
        if self.is_closed:
            raise ClientClosedError("the producer was closed while send() waited for memory, or before")
        if size_bytes > self.total_bytes:
            raise RecordTooLargeError(
                f"{size_bytes} bytes are more than buffer.memory = {self.total_bytes} will ever hold: "
                "send smaller records, or raise buffer.memory"
            )

    def _take(self, size_bytes: int) -> None:
        while self._free_bytes < size_bytes:
            self._kept_pieces -= 1
            self._free_bytes += self.batch_bytes
        self._free_bytes -= size_bytes

    def _serve(self) -> None:
        """Hand what is free to the first in the line, and on to the next."""
        while self._waiters and (self.available_bytes or self._waiters[0].is_ready):
            waiter = self._waiters[0]
            part_bytes = min(self.available_bytes, waiter.size_bytes - waiter.gathered_bytes)
            self._take(part_bytes)
            waiter.gathered_bytes += part_bytes
            if waiter.gathered_bytes < waiter.size_bytes:
                return
            # Told before it leaves the line: if this is interrupted, the next who comes by tells it again. Who is told
            # may come by here himself.
            waiter.is_ready = True
            waiter._tell()
            if self._waiters and self._waiters[0] is waiter:
                self._waiters.popleft()
