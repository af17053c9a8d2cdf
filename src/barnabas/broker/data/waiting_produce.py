"""A produce request whose batches are appended, until they are committed, or its time is up.

It keeps offsets and its answer: its records, and with them the frame, are let go of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.services import Services
from barnabas.net import Connection
from barnabas.replication.leader_state import LeaderState
from barnabas.replication.purgatory import DelayedProduce

A = TypeVar("A")


class WaitingProduce(Generic[A]):
    """`finish` makes the answer, of what became of each partition."""

    __slots__ = ("_connection", "_delayed", "_done", "_finish", "_services")

    def __init__(
        self, services: Services, connection: Connection, finish: Callable[[dict[LeaderState, ErrorCode]], A]
    ) -> None:
        self._services = services
        self._connection = connection
        self._finish = finish
        self._delayed = DelayedProduce(self._complete)
        self._done: asyncio.Future[A]

    def start(self, uncommitted: Iterable[tuple[LeaderState, int]], timeout_ms: int) -> A | asyncio.Future[A]:
        """The answer if it is clear at once. `uncommitted`: all below an offset, by the leader that appended it."""
        for leader, required_offset in uncommitted:
            self._delayed.add(leader, required_offset)
        if not self._delayed.is_over:
            if not self._services.replica_manager.produce_purgatory.is_closed:
                return self._park(timeout_ms)
            self._delayed.expire(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self._finish(self._delayed.outcomes)

    def _park(self, timeout_ms: int) -> asyncio.Future[A]:
        """Until all is committed, or has failed, or the time is up. From here on nobody holds the frame."""
        loop = asyncio.get_running_loop()
        purgatory, connection = self._services.replica_manager.produce_purgatory, self._connection
        # It is for others now to go on: whoever has as many partitions must not wait for that.
        self._services.turns.finished(connection)
        done = self._done = loop.create_future()
        timer = loop.call_later(max(timeout_ms, 0) / 1000, self._expire)
        forget_client = connection.on_close(done.cancel)
        purgatory.add(self)

        def clean_up(_: object) -> None:
            timer.cancel()
            self._delayed.expire()
            forget_client()
            purgatory.discard(self)

        done.add_done_callback(clean_up)
        connection.release_frame()
        return done

    def _expire(self) -> None:
        self._services.replica_manager.produce_purgatory.expired_count += 1
        self._delayed.expire()
        self._complete()

    def complete_now(self) -> None:
        """The node stops. Another one will lead, and knows what of it was committed."""
        self._delayed.expire(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._complete()

    def _complete(self) -> None:
        if not self._done.done():
            self._done.set_result(self._finish(self._delayed.outcomes))
