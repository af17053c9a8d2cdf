"""The bound on what the requests of all connections take, held by not reading.

A frame is charged as it arrives, in steps of at most a mebibyte ahead of its bytes, and until it is done with. Frames
of three sizes have shares of their own, so that large ones cannot keep small ones waiting:

- *small*, up to 64 KiB: all that is kept of them counts, also the beginnings of larger frames whose turn has not come.
- *ordinary*, up to 1 MiB, the largest that producers send by default: charged whole, in one step.
- *large*: charged step by step, so that an announcement costs nothing.

Whoever finds no room waits in line, and its socket is not read. Frames of up to 4 KiB never wait, so that heartbeats
live: while the small share is used up, no more than that is read of a connection at a time.

Why nobody waits for ever: whoever has its first step of a small or ordinary frame has all that it needs. Of large
frames many may be half received and together hold all of their share. So memory for one frame of the largest size is
kept apart, the *reserve*: the first in line moves into it with all that it holds, and needs nobody's leave to go on.
It leaves the reserve when its request is done with, or as soon as the share has room for it. In that line, who holds
something comes before who begins: else what is set free would go to ever more beginnings.

And whoever is too slow while others wait for its share, be it in the reserve or not, is cut (see `pace`), and so is
who waits for something with a large request in hand. All who are read are measured at the same time; who is not read
because it waits itself is not measured, but each of those that are cut makes room for others who then are. So a crowd
that has filled the memory with half-sent frames, and stops, is gone within a number of windows that grows as the
logarithm of the crowd.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from barnabas.base.errors import check
from barnabas.net.limits import MIB, ORDINARY_FRAME_BYTES, SMALL_FRAME_BYTES, TINY_FRAME_BYTES
from barnabas.net.pace import Pace, Standing

if TYPE_CHECKING:
    from barnabas.net.connection import Connection

_SMALL_PART: Final = 8
_ORDINARY_PART: Final = 4
_LEAST_SMALL_BYTES: Final = MIB


class Share:
    """A part of the memory: how much of it is held, and who waits for more, each line in the order of asking."""

    __slots__ = ("beginning", "going_on", "held_bytes", "limit_bytes", "tight_bytes")

    def __init__(self) -> None:
        self.limit_bytes = 0
        #: Once more is held, one read of full size might be too much.
        self.tight_bytes = 0
        self.held_bytes = 0
        #: Who waits with something of a frame that it holds memory for, and before those with nothing is served.
        self.going_on: dict[Connection, int] = {}
        self.beginning: dict[Connection, int] = {}

    @property
    def waiters(self) -> dict[Connection, int]:
        """The line that is served now."""
        return self.going_on or self.beginning


class RequestMemory:
    """Who holds how much, and who waits.

    Guarantees: no more is held than the limit, as long as that is at least 8/5 of the largest frame and 8 MiB; below
    that, no more than the shares, or one frame of each size if that is more. On top of it comes what is never refused:
    4 KiB of a request in process and as much of those behind it, per connection. Each share serves its lines in order.
    """

    __slots__ = (
        "_connections",
        "_favoured",
        "_favoured_bytes",
        "_loop",
        "_timer",
        "large",
        "ordinary",
        "pace",
        "small",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connections: Mapping[int, Connection],
        limit_bytes: int,
        largest_frame_bytes: int,
        window_s: float,
    ) -> None:
        self.small = Share()
        self.ordinary = Share()
        self.large = Share()
        self.pace = Pace(window_s)
        self._loop = loop
        self._connections = connections
        #: Who is in the reserve, and with how much.
        self._favoured: Connection | None = None
        self._favoured_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self.set_limit(limit_bytes, largest_frame_bytes)

    def set_limit(self, limit_bytes: int, largest_frame_bytes: int) -> None:
        self.small.limit_bytes = max(limit_bytes // _SMALL_PART, _LEAST_SMALL_BYTES)
        self.small.tight_bytes = self.small.limit_bytes - SMALL_FRAME_BYTES
        self.ordinary.limit_bytes = limit_bytes // _ORDINARY_PART
        left_bytes = limit_bytes - self.small.limit_bytes - self.ordinary.limit_bytes
        self.large.limit_bytes = max(0, left_bytes - largest_frame_bytes)
        for share in (self.small, self.ordinary, self.large):
            self.grant_waiting(share)

    @property
    def reserved_bytes(self) -> int:
        """What frames above 64 KiB hold."""
        return self.ordinary.held_bytes + self.large.held_bytes + self._favoured_bytes

    @property
    def held_bytes(self) -> int:
        return self.small.held_bytes + self.reserved_bytes

    @property
    def waiter_count(self) -> int:
        return sum(len(each.beginning) + len(each.going_on) for each in (self.small, self.ordinary, self.large))

    def share_of(self, frame_bytes: int) -> Share:
        if frame_bytes <= SMALL_FRAME_BYTES:
            return self.small
        return self.ordinary if frame_bytes <= ORDINARY_FRAME_BYTES else self.large

    def ask(self, connection: Connection, share: Share, more_bytes: int) -> bool:
        """Take memory for what arrives next. If there is none, `connection.memory_granted` is called once there is.

        Who waits must not ask again.
        """
        check(connection not in share.beginning and connection not in share.going_on, "who waits does not read")
        if connection is self._favoured:
            self._favoured_bytes += more_bytes
            return True
        if not share.waiters and self._fits(share, more_bytes):
            share.held_bytes += more_bytes
            return True
        (share.going_on if connection.held_of(share) else share.beginning)[connection] = more_bytes
        if self._favour_first(share):
            return True
        self.pace.forget(connection)
        if self._timer is None:
            self._timer = self._loop.call_later(self.pace.check_interval_s, self._cut_off_the_slow)
        return False

    def give_back(self, connection: Connection, share: Share, size_bytes: int) -> None:
        """Return what a connection held of a share."""
        if connection is self._favoured and share is self.large:
            self._favoured_bytes -= size_bytes
            if not self._favoured_bytes:
                self._favoured = None
        else:
            share.held_bytes -= size_bytes
        self.grant_waiting(share)

    def stop_waiting(self, connection: Connection) -> None:
        for share in (self.small, self.ordinary, self.large):
            for line in (share.going_on, share.beginning):
                if line.pop(connection, None) is not None:
                    self.grant_waiting(share)

    def grant_waiting(self, share: Share) -> None:
        if share is self.large and self._favoured is not None:
            self._empty_reserve()
        while waiters := share.waiters:
            connection, more_bytes = next(iter(waiters.items()))
            if self._fits(share, more_bytes):
                del waiters[connection]
                share.held_bytes += more_bytes
            elif not self._favour_first(share):
                return
            connection.memory_granted(more_bytes)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fits(self, share: Share, more_bytes: int) -> bool:
        if share.held_bytes + more_bytes <= share.limit_bytes:
            return True
        # A frame that is larger than its whole share gets it when it is alone; large ones have the reserve instead.
        return not share.held_bytes and share is not self.large

    def _favour_first(self, share: Share) -> bool:
        """Let the first in line into the reserve, if that is free, with what it holds and what it waits for."""
        if share is not self.large or self._favoured is not None:
            return False
        waiters = share.waiters
        connection, more_bytes = next(iter(waiters.items()))
        del waiters[connection]
        held_bytes = connection.held_of(share)
        share.held_bytes -= held_bytes
        self._favoured, self._favoured_bytes = connection, held_bytes + more_bytes
        return True

    def _empty_reserve(self) -> None:
        """Let who is in the reserve hold its memory as others do, if that has become possible."""
        large = self.large
        if large.held_bytes + self._favoured_bytes <= large.limit_bytes:
            large.held_bytes += self._favoured_bytes
            self._favoured, self._favoured_bytes = None, 0

    # While somebody waits

    def _cut_off_the_slow(self) -> None:
        self._timer = None
        for connection, reason in self.pace.too_slow(self._measured(), self._loop.time()):
            connection.abort(reason)
        if self.waiter_count:
            self._timer = self._loop.call_later(self.pace.check_interval_s, self._cut_off_the_slow)
        else:
            self.pace.forget_all()

    def _measured(self) -> Iterator[tuple[Connection, Standing]]:
        """Those who hold what others wait for, where it is for the peer to do something."""
        short = [share for share in (self.small, self.ordinary, self.large) if share.waiters]
        for connection in self._connections.values():
            if connection.memory is self and any(connection.held_of(share) > TINY_FRAME_BYTES for share in short):
                standing = connection.standing()
                if standing is not None:
                    yield connection, standing
