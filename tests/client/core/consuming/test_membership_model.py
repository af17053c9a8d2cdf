"""Members that come, go, fall silent and lose answers, with the broker's own coordinator between them."""

from __future__ import annotations

import random

import pytest

from barnabas.client.core.consuming.membership_steps import MemberState
from tests.client.core.consuming.membership_world import Player, World

TOPICS = ("a", "b", "c")
STRATEGIES = {
    "cooperative": ("cooperative-sticky",),
    "sticky": ("sticky",),
    "range": ("range",),
    "default": ("range", "cooperative-sticky"),
}


class Chaos:
    """Random events from a seed, then quiet."""

    def __init__(self, seed: int, assignors: tuple[str, ...]) -> None:
        self.chance = random.Random(seed)
        self.assignors = assignors
        self.world = World({topic: self.chance.randint(1, 6) for topic in TOPICS})
        self.names = iter("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
        self.silent: set[str] = set()

    def run(self, events: int) -> None:
        self.arrive()
        self.arrive()
        for _ in range(events):
            self.event()
        self.silent.clear()
        self.world.run(120_000, 1_000)
        self.world.check_quiet()

    @property
    def alive(self) -> list[Player]:
        return [each for each in self.world.players if each.is_alive]

    def event(self) -> None:
        chance, world = self.chance, self.world
        roll = chance.random()
        if roll < 0.45:
            for player in self.alive:
                if player.name not in self.silent and chance.random() < 0.8:
                    player.poll()
                if chance.random() < 0.9:
                    player.heartbeat()
        elif roll < 0.70:
            while world.outbox and chance.random() < 0.85:
                world.deliver_next()
        elif roll < 0.82:
            world.advance(chance.choice([1, 100, 1_000, 3_000, 11_000]))
        elif roll < 0.85:
            self.arrive()
        elif self.alive and roll < 0.88:
            player = chance.choice(self.alive)
            if chance.random() < 0.5:
                player.leave()
            else:
                player.is_alive = False  # it vanishes
        elif self.alive and roll < 0.93:
            world.lose_connection(chance.choice(self.alive))
        elif self.alive and roll < 0.95:
            chance.choice(self.alive).topics = self.some_topics()
        elif roll < 0.96:
            topic = chance.choice(TOPICS)
            world.set_partitions(topic, world.topics[topic] + 1)
        elif roll < 0.98:
            self.silent ^= {chance.choice("ABCDEFGH")}
        elif world.outbox and roll < 0.99:
            world.lose_next()
        else:
            world.reload()

    def arrive(self) -> None:
        if len(self.alive) >= 5:
            return
        instance = self.chance.choice([None, None, "one", "two"])
        if instance is not None and any(each.membership.policy.instance_id == instance for each in self.alive):
            instance = None
        name = next(self.names, None)
        if name is not None:
            self.world.join(name, *self.some_topics(), assignors=self.assignors, instance_id=instance)

    def some_topics(self) -> tuple[str, ...]:
        return tuple(sorted(self.chance.sample(TOPICS, self.chance.randint(1, 3))))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_partition_has_two_owners_and_none_is_left_over(strategy: str) -> None:
    rebalances = 0
    for seed in range(60):
        chaos = Chaos(seed, STRATEGIES[strategy])
        try:
            chaos.run(200)
        except AssertionError as failure:
            failure.add_note(f"seed {seed} of {strategy}")
            raise
        rebalances += len(chaos.world.taken)
    assert rebalances > 500


def test_nothing_is_given_up_twice_while_a_member_waits() -> None:
    world = World({"a": 4})
    first, second = world.join("A", "a"), world.join("B", "a")
    world.run(20_000)
    world.check_quiet()
    third = world.join("C", "a")
    world.run(20_000)
    world.check_quiet()
    gone = [line for player in (first, second) for line in player.program.story if line.startswith("revoked")]
    assert len(gone) == 1
    assert all(player.membership.state is MemberState.STABLE for player in (first, second, third))
