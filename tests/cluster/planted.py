"""Bugs planted on purpose in controllers and brokers, which the scenario "quorum" must find.

python -m tests.cluster.planted                        # a table of all, with the seeds that each took
python -m tests.cluster.planted answers_before_commit  # one of them, with the story of the seed that found it
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

from barnabas.broker.controller.quorum_controller import QuorumController
from barnabas.metadata import brokers
from barnabas.metadata.authorizer import AuthorizableRequestContext
from barnabas.metadata.controller import Controller
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.replay import ImageBuilder
from barnabas.metadata.snapshot import image_records
from barnabas.wire.message import Request, Response
from barnabas.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.wire.stored.cluster_metadata import PartitionRecord, RegisterBrokerRecord, TopicRecord
from tests.cluster.planting import PlantedBugs

PLANTED: Final = PlantedBugs("quorum", max_seeds=200)
planted = PLANTED.planted


@planted("a controller answers before the change is committed")
@contextmanager
def answers_before_commit() -> Iterator[None]:
    async def at_once(self: QuorumController, committed: asyncio.Future[None], timeout_ms: int | None) -> None:
        committed.add_done_callback(lambda done: done.cancelled() or done.exception())

    with patch.object(QuorumController, "_until_committed", at_once):
        yield


@planted("who waits when the lead is lost is told that it was done")
@contextmanager
def success_after_the_lead_was_lost() -> Iterator[None]:
    def end_waiting(self: QuorumController, reason: str) -> None:
        for _, waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        self._waiting.clear()

    with patch.object(QuorumController, "_end_waiting", end_waiting):
        yield


@planted("a broker is unfenced before it has caught up")
@contextmanager
def unfences_too_early() -> Iterator[None]:
    register = brokers.register_broker

    def believe(*asked: Any) -> Any:
        result = register(*asked)
        for record in result.records:
            if isinstance(record, RegisterBrokerRecord):
                record.fenced = False
        return result

    with patch.object(brokers, "register_broker", believe):
        yield


@planted("a standby acts upon requests as if it were active, and answers without the log")
@contextmanager
def standby_answers() -> Iterator[None]:
    submit = QuorumController.submit

    async def answer(
        self: QuorumController, request: Request, version: int, caller: AuthorizableRequestContext
    ) -> Response:
        if self._is_active or isinstance(request, BrokerHeartbeatRequest):
            return await submit(self, request, version, caller)
        response: Response = self._apis.handle(request, version, caller, 0).response
        return response

    with patch.object(QuorumController, "submit", answer):
        yield


@planted("a topic that exists is created again")
@contextmanager
def creates_again() -> Iterator[None]:
    create = Controller.create_topics

    def forgetful(self: Controller, request: Any, **rest: Any) -> Any:
        image, name = self.image, request.topics[0].name
        if name not in image.topics:
            return create(self, request, **rest)
        request.topics[0].name = f"{name}.again"
        outcome = create(self, request, **rest)
        request.topics[0].name = name
        changed: list[Any] = [*outcome.records, *outcome.response.topics]
        for each in changed:
            if getattr(each, "name", None) == f"{name}.again":
                each.name = name
        return outcome

    with patch.object(Controller, "create_topics", forgetful):
        yield


@planted("a broker that comes back later is told that it is unfenced, but nobody else is")
@contextmanager
def fenced_brokers_stay_so() -> Iterator[None]:
    def nothing(image: ClusterImage, options: Any, broker: Any) -> list[Any]:
        return [] if broker.epoch > 40 else unfence(image, options, broker)

    unfence = brokers.unfence_records
    with patch.object(brokers, "unfence_records", nothing):
        yield


@planted("a controller that leads again still believes in topics that it created and never committed")
@contextmanager
def never_rolls_back() -> Iterator[None]:
    load = Controller.load

    def believe(self: Controller, image: ClusterImage) -> None:
        ghosts = {each.topic_id for name, each in self.image.topics.items() if name not in image.topics}
        builder = ImageBuilder(image)
        for record in image_records(self.image):
            if isinstance(record, TopicRecord | PartitionRecord) and record.topic_id in ghosts:
                builder.replay(record)
        load(self, builder.build(image.offset, image.epoch))

    def keep(self: Controller) -> None:
        self._sessions = brokers.BrokerSessions()

    with patch.object(Controller, "load", believe), patch.object(Controller, "roll_back", keep):
        yield


if __name__ == "__main__":
    sys.exit(PLANTED.main(sys.argv[1:]))
