"""The way from a broker to the controller.

The controller decides at once and changes its state in memory; the answer is given when its records are committed and
this node has applied them, so whoever hears that a topic exists can use it here. With more nodes the decision is made
elsewhere and only this file knows.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.runtime import Clock
from barnabas.broker.quorum_of_one import QuorumOfOne
from barnabas.broker.turns import chunks
from barnabas.metadata.controller import Controller, Outcome
from barnabas.metadata.options import ControllerOptions
from barnabas.storage.errors import LogDirectoryError
from barnabas.wire.messages.create_topics import CreateTopicsResponse

_log = logging.getLogger("barnabas.broker")

T = TypeVar("T")

#: Kafka's timeout covers the way to the decision, not the commit: with 1 ms it still creates topics.
_LEAST_COMMIT_WAIT_MS: Final = 1000
#: How many topics the controller decides on without a break.
_TOPICS_AT_ONCE: Final = 64


def _create_missing(names: Sequence[str], controller: Controller) -> Outcome[CreateTopicsResponse]:
    return controller.create_missing_topics(names)


class ControllerGateway:
    """Hands operations to the controller and waits for what they bring about."""

    def __init__(self, controller: Controller, quorum: QuorumOfOne, clock: Clock) -> None:
        self._controller = controller
        self._quorum = quorum
        self._clock = clock
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._being_created: set[str] = set()
        self._tasks: set[asyncio.Task[object]] = set()
        #: Why nothing is decided here any more.
        self._refusal: str | None = None

    async def activate(self) -> None:
        """The quorum is led from here: let the controller write what a new leader must."""
        quorum = self._quorum
        now_ms = self._clock.monotonic_ms()
        await self.submit(
            lambda controller: controller.activate(quorum.epoch, quorum.log.next_offset, now_ms, quorum.first_records)
        )

    def broker_is_gone(self, broker_id: int) -> None:
        self._controller.broker_is_gone(broker_id)

    def set_options(self, options: ControllerOptions) -> None:
        self._controller.options = options

    async def submit(self, operation: Callable[[Controller], Outcome[T]], *, timeout_ms: int | None = None) -> T:
        """Let the controller decide; the answer comes once the decision holds on this node.

        Without any time nothing is decided. After `timeout_ms`, or a second if that is longer, who asked is told that
        it takes too long; what was decided may still come to hold.
        """
        if self._refusal is not None:
            raise BrokerError(ErrorCode.NOT_CONTROLLER, self._refusal)
        if timeout_ms is not None and timeout_ms <= 0:
            raise BrokerError(ErrorCode.REQUEST_TIMED_OUT, f"nothing was done within {timeout_ms} ms")
        outcome = operation(self._controller)
        if outcome.records:
            try:
                last_offset = self._quorum.append(outcome.records)
            except LogDirectoryError as failure:
                raise BrokerError(ErrorCode.NOT_CONTROLLER, f"the metadata log has failed: {failure}") from failure
            first_offset = last_offset - len(outcome.records) + 1
            for offset, record in enumerate(outcome.records, first_offset):
                self._controller.replay(record, offset)
            self._controller.mark()
            applied: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((last_offset, applied))
            wait_ms = None if timeout_ms is None else max(timeout_ms, _LEAST_COMMIT_WAIT_MS)
            try:
                async with asyncio.timeout(None if wait_ms is None else wait_ms / 1000):
                    await applied
            except TimeoutError:
                late = f"the change was not in force after {wait_ms} ms; it may still come into force"
                raise BrokerError(ErrorCode.REQUEST_TIMED_OUT, late) from None
        return outcome.response

    def applied(self, offset: int) -> None:
        """This node has applied everything up to `offset`, which was committed before."""
        self._controller.commit(offset)
        while self._waiting and self._waiting[0][0] <= offset:
            _, waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)

    async def allocate_producer_ids(self) -> tuple[int, int]:
        """A block of ids that no producer has had: the first, and how many."""
        return await self.submit(lambda controller: controller.allocate_producer_ids())

    def create_missing_topics(self, names: Sequence[str]) -> None:
        """Begin to create topics that clients asked for; who is first starts it, and all of them ask again."""
        wanted = [name for name in names if name not in self._being_created]
        if wanted and self._refusal is None:
            self._being_created.update(wanted)
            task = asyncio.get_running_loop().create_task(self._create(wanted))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _create(self, names: Sequence[str]) -> None:
        try:
            for part in chunks(list(names), _TOPICS_AT_ONCE):
                response = await self.submit(partial(_create_missing, part))
                for topic in response.topics:
                    if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                        _log.warning("the topic %s was not created: %s", topic.name, topic.error_message)
        except BrokerError as failure:
            _log.warning("topics were not created: %s", failure)
        except Exception:
            _log.exception("the topics %s were not created", ", ".join(names))
        finally:
            self._being_created.difference_update(names)

    def close(self, reason: str = "the node is stopping") -> None:
        """Nothing more is decided here; who waits hears that it may not have happened."""
        if self._refusal is None:
            self._refusal = reason
        for _, waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(BrokerError(ErrorCode.NOT_CONTROLLER, self._refusal))
        self._waiting.clear()
