"""The compiled glance at the partitions of a fetch that goes on with a session, beside the rules alone.

The same answers come at the same moments, and the leader knows the same of its followers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from barnabas.broker.data.fetching import FEW_PARTITIONS, Fetch
from barnabas.replication._kernel.following import ConsumerGlance, FollowerGlance, Glance
from barnabas.replication.fetch_sessions import WantedPartition
from barnabas.replication.leader_state import LeaderState
from barnabas.wire.messages.fetch import FetchResponse
from tests.broker.connections import over_the_wire
from tests.broker.data_plane import DataPlane, batch, broker
from tests.broker.test_follower_fetches import Follower

TOPIC = "r"
CONSUMER = -1
STEPS = 100


class Story:
    """A leader and those who go on with their sessions, from a seed; `told` is all that can be seen."""

    def __init__(self, seed: int, partitions: int, numbers: tuple[int, ...]) -> None:
        self.random = Random(seed)
        self.plane = DataPlane()
        self.numbers = numbers
        self.replicas = (1, *(each for each in numbers if each != CONSUMER))
        topic = self.plane.create_topic(TOPIC, partitions, replicas=self.replicas)
        self.partitions = partitions
        self.readers = {number: Follower(self.plane, topic, number) for number in numbers}
        self.offsets = {number: dict.fromkeys(range(partitions), 0) for number in numbers}
        self.starts = dict.fromkeys(numbers, 0)
        self.parked: dict[int, asyncio.Future[Any]] = {}
        self.moved: dict[int, dict[int, int]] = {number: dict(self.offsets[number]) for number in numbers}
        self.epoch = 0
        self.told: list[Any] = []

    def play(self) -> list[Any]:
        for _ in range(STEPS):
            self.random.choices(
                [self.write, self.ask, self.wait, self.restart, self.lead_again, self.shrink, self.delete],
                [4, 12, 6, 0.2, 0.2, 0.5, 0.5],
            )[0]()
            self.plane.pass_ms(1)  # what is done in steps is done
            self.settle()
            self.told.append((self.plane.loop.time(), self.known()))
        return self.told

    def write(self) -> None:
        for number in self.random.sample(range(self.partitions), self.random.choice([1, 1, 2])):
            self.plane.produce({(TOPIC, number): batch([b"a"] * self.random.randint(1, 3))}, acks=1)

    def ask(self) -> None:
        """Who has its answer asks on; sometimes from elsewhere, or with another log start."""
        number = self.random.choice(self.numbers)
        if number in self.parked:
            return
        if self.random.random() < 0.05:
            self.starts[number] += 1
            self.moved[number] = dict(self.offsets[number])
        answer = self.readers[number].begin(
            self.moved[number],
            start=self.starts[number],
            max_wait_ms=self.random.choice([0, 50, 500]),
            current_leader_epoch=self.epoch - (self.random.random() < 0.03),
            last_fetched_epoch=-1 if self.random.random() < (0.97 if number == CONSUMER else 0.7) else self.epoch,
        )
        self.moved[number] = {}
        if isinstance(answer, asyncio.Future):
            self.parked[number] = answer
        else:
            self.take(number, answer)

    def wait(self) -> None:
        self.plane.pass_ms(self.random.choice([0, 1, 15, 60, 600]))

    def restart(self) -> None:
        """A follower is registered anew; what asks with the older epoch is refused."""
        number = self.random.choice(self.numbers)
        if number == CONSUMER:
            return
        epoch = self.random.choice([1, 2, 3])
        brokers = self.plane.image.brokers.set(number, replace(broker(number), epoch=epoch))
        self.plane.apply(replace(self.plane.image, brokers=brokers), brokers_changed=(number,))
        if self.random.random() < 0.8:
            self.readers[number].state.replica_epoch = epoch
            self.moved[number] = dict(self.offsets[number])

    def lead_again(self) -> None:
        """All partitions have another epoch, of which the readers hear at once."""
        self.epoch += 1
        for number in range(self.partitions):
            self.plane.change_partition(TOPIC, number, leader_epoch=self.epoch)
        for each in self.numbers:
            self.moved[each] = dict(self.offsets[each])

    def shrink(self) -> None:
        number = self.random.randrange(self.partitions)
        self.plane.change_partition(TOPIC, number, isr=self.replicas[: self.random.randint(1, 3)])

    def delete(self) -> None:
        number = self.random.randrange(self.partitions)
        role = self.plane.partition(TOPIC, number).role
        assert isinstance(role, LeaderState)
        if role.log.high_watermark > role.log.log_start_offset:
            role.log.advance_log_start(role.log.high_watermark)
            role.log_start_advanced()

    def settle(self) -> None:
        for number, waiting in list(self.parked.items()):
            while waiting.done() and isinstance(waiting.result(), asyncio.Future):
                self.parked[number] = waiting = waiting.result()  # it was looked for in steps, and then it waits
            if waiting.done():
                del self.parked[number]
                self.take(number, over_the_wire(waiting.result(), 17))

    def take(self, number: int, response: FetchResponse) -> None:
        self.told.append((number, response.encode(17)))
        follower = self.readers[number]
        if response.error_code:
            follower.session_id = follower.epoch = 0
            self.moved[number] = dict(self.offsets[number])
            return
        follower.session_id, follower.epoch = response.session_id, follower.epoch + 1
        for topic in response.responses:
            for each in topic.partitions:
                role = self.plane.partition(TOPIC, each.partition_index).role
                if each.records and isinstance(role, LeaderState):
                    end_offset = role.log.high_watermark if number == CONSUMER else role.log.log_end_offset
                    self.offsets[number][each.partition_index] = end_offset
                    self.moved[number][each.partition_index] = end_offset
                elif each.error_code:
                    self.moved[number][each.partition_index] = self.offsets[number][each.partition_index]

    def known(self) -> list[Any]:
        found: list[Any] = []
        for index in range(self.partitions):
            role = self.plane.partition(TOPIC, index).role
            assert isinstance(role, LeaderState)
            found.append((role.log.high_watermark, role.isr, role.delayed_count))
            found += [
                (
                    each.log_end_offset,
                    each.log_start_offset,
                    each.broker_epoch,
                    each.last_fetch_ms,
                    each.last_caught_up_ms,
                    each.last_fetch_leader_log_end_offset,
                )
                for each in role.followers.values()
            ]
        return found


def by_the_rules(fetch: Fetch, look: Any, some: Iterable[WantedPartition]) -> Iterable[WantedPartition]:
    return some


@pytest.mark.parametrize(
    ("partitions", "numbers"),
    [
        (2, (2, 3, CONSUMER)),
        (5, (2, 3, CONSUMER)),
        # Who looks in steps is overtaken by others, or not, by how many steps that takes.
        (FEW_PARTITIONS + 2, (2, 3)),
        (FEW_PARTITIONS + 2, (CONSUMER,)),
    ],
)
@pytest.mark.parametrize("seed", range(8))
def test_with_it_and_without_it_the_same_happens(
    seed: int, partitions: int, numbers: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    passed_over: dict[type[Glance], int] = {FollowerGlance: 0, ConsumerGlance: 0}

    def count_over(kind: type[Glance]) -> type[Glance]:
        class Counting(kind):  # type: ignore[misc, valid-type]
            def over(self, positions: Any, *rest: Any) -> Any:
                asked = list(positions)
                left = super().over(asked, *rest)
                passed_over[kind] += len(asked) - len(left)
                return left

        return Counting

    for kind in list(passed_over):
        monkeypatch.setattr(f"barnabas.broker.data.fetching.{kind.__name__}", count_over(kind))
    with_it = Story(seed, partitions, numbers).play()
    monkeypatch.setattr(Fetch, "_pass_over", by_the_rules)
    without_it = Story(seed, partitions, numbers).play()
    for number, (one, other) in enumerate(zip(with_it, without_it, strict=True)):
        assert one == other, f"event {number}"
    assert passed_over[FollowerGlance] or 2 not in numbers, "nothing was passed over: the test compares nothing"
    assert passed_over[ConsumerGlance] or CONSUMER not in numbers, "nothing was passed over"
