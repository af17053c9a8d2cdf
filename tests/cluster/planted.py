"""Bugs planted on purpose in controllers and brokers, which the scenario "quorum" must find.

python -m tests.cluster.planted                        # a table of all, with the seeds that each took
python -m tests.cluster.planted answers_before_commit  # one of them, with the story of the seed that found it
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from barnabas.broker.controller.quorum_controller import QuorumController
from barnabas.metadata import brokers
from barnabas.metadata.authorizer import AuthorizableRequestContext
from barnabas.metadata.controller import Controller
from barnabas.metadata.image import ClusterImage
from barnabas.testing.sim.quorum_scenario import QuorumScenario
from barnabas.testing.sim.scenarios import ScenarioOptions, SeedReport, shortest_failing
from barnabas.wire.message import Request, Response
from barnabas.wire.messages.broker_heartbeat import BrokerHeartbeatRequest

MAX_SEEDS: Final = 200

Plant = Callable[[], AbstractContextManager[Any]]


class PlantedBug(NamedTuple):
    """A bug, and what it is in words."""

    plant: Plant
    text: str


BUGS: Final[dict[str, PlantedBug]] = {}


def planted(text: str) -> Callable[[Plant], Plant]:
    def register(plant: Plant) -> Plant:
        BUGS[plant.__name__] = PlantedBug(plant, text)
        return plant

    return register


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
    heartbeat = brokers.heartbeat

    def believe(image: ClusterImage, options: Any, sessions: Any, request: BrokerHeartbeatRequest, *rest: Any) -> Any:
        request.current_metadata_offset = 2**62
        return heartbeat(image, options, sessions, request, *rest)

    with patch.object(brokers, "heartbeat", believe):
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


# Finding them


def find(name: str, seeds: Sequence[int] = range(1, MAX_SEEDS + 1)) -> SeedReport | None:
    """The report of the first seed that notices the bug."""
    scenario = QuorumScenario(ScenarioOptions(3, "whole"))
    with BUGS[name].plant():
        reports = (scenario.run(seed) for seed in seeds)
        return next((report for report in reports if not report.is_clean), None)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str]) -> int:
    missed = 0
    for name in arguments or BUGS:
        report = find(name)
        if report is None:
            missed += 1
            say(f"{name:36} NOT FOUND in {MAX_SEEDS} seeds: {BUGS[name].text}")
            continue
        say(f"{name:36} seed {report.seed:3}: {report.broken}")
        if arguments:
            with BUGS[name].plant():
                shortest = shortest_failing(QuorumScenario(ScenarioOptions(3, "whole")), report)
            say("\n".join([shortest.problem, *shortest.plan, *shortest.story]))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
