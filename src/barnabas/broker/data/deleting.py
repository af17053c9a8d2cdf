"""A request to delete records that waits until they are gone from all live replicas."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.services import Services
from barnabas.net import Connection
from barnabas.replication.leader_state import LeaderState
from barnabas.replication.purgatory import DelayedDeleteRecords
from barnabas.wire.messages.delete_records import DeleteRecordsPartitionResult, DeleteRecordsResponse


class UncertainDeletion(NamedTuple):
    """Records that followers may still have: all below an offset, by the leader that deleted them here."""

    leader: LeaderState
    required_offset: int
    answer: DeleteRecordsPartitionResult


class DeleteRecords:
    """One request that waits for followers. It holds offsets and its answer."""

    __slots__ = ("_connection", "_delayed", "_done", "_response", "_services", "_uncertain")

    def __init__(
        self,
        services: Services,
        connection: Connection,
        response: DeleteRecordsResponse,
        uncertain: list[UncertainDeletion],
    ) -> None:
        self._services = services
        self._connection = connection
        self._response = response
        self._uncertain = uncertain
        self._delayed = DelayedDeleteRecords(self._complete)
        self._done: asyncio.Future[DeleteRecordsResponse] = asyncio.get_running_loop().create_future()

    def answer(self, timeout_ms: int) -> asyncio.Future[DeleteRecordsResponse]:
        """Until the logs of all live replicas begin late enough, or it has failed, or the time is up."""
        for leader, required_offset, _ in self._uncertain:
            self._delayed.add(leader, required_offset)
        purgatory, done = self._services.replica_manager.delete_records_purgatory, self._done
        if purgatory.is_closed:
            self._delayed.expire(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self._delayed.is_over:
            self._complete()
            return done
        self._services.turns.finished(self._connection)
        timer = asyncio.get_running_loop().call_later(max(timeout_ms, 0) / 1000, self._expire)
        go_on = self._connection.park(done.cancel)
        purgatory.add(self)

        def clean_up(_: object) -> None:
            timer.cancel()
            self._delayed.expire()
            go_on()
            purgatory.discard(self)

        done.add_done_callback(clean_up)
        self._connection.release_frame()
        return done

    def _expire(self) -> None:
        self._delayed.expire()
        self._complete()

    def complete_now(self) -> None:
        """The node stops, and another one will lead."""
        self._delayed.expire(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._complete()

    def _complete(self) -> None:
        if self._done.done():
            return
        for leader, _, answer in self._uncertain:
            answer.error_code, answer.low_watermark = self._delayed.outcomes[leader]
        self._done.set_result(self._response)
