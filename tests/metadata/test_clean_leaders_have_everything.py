"""Whoever leads by a clean election has all that was acknowledged, however brokers died and came back (KIP-966).

The controller is the real one. Logs are lists of numbers: a leader's write goes to everybody in sync, and is
acknowledged if they are enough; who crashes loses some of its newest records.
"""

from __future__ import annotations

from random import Random

import pytest

from barnabas.metadata import elections
from barnabas.metadata.image import NO_LEADER, PartitionImage
from barnabas.metadata.partition_changes import RECOVERED
from tests.metadata.clusters import Cluster, new_topic
from tests.metadata.test_alter_partition import propose

STEPS = 60
SEEDS = range(250)


class AcknowledgedLostError(AssertionError):
    pass


class World:
    """Some brokers with one partition on all of them."""

    def __init__(self, seed: int, *, elr: bool) -> None:
        self.chance = chance = Random(seed)
        self.brokers = range(1, chance.randint(2, 4) + 1)
        self.min_isr = chance.randint(1, len(self.brokers))
        self.cluster = Cluster(len(self.brokers), elr=elr)
        configs: dict[str, str | None] = {"min.insync.replicas": str(self.min_isr)}
        self.cluster.create(new_topic("t", assignment={0: list(self.brokers)}, configs=configs))
        self.logs: dict[int, list[int]] = {each: [] for each in self.brokers}
        self.acknowledged: list[int] = []
        self.lives = dict.fromkeys(self.brokers, 1)
        #: Who is away, and whether it stopped cleanly.
        self.away: dict[int, bool] = {}
        self.written = self.unclean = 0

    @property
    def partition(self) -> PartitionImage:
        return self.cluster.partition("t")

    @property
    def leader(self) -> int | None:
        leader = self.partition.leader
        return None if leader == NO_LEADER or leader in self.away else leader

    def step(self) -> None:
        self.chance.choice((self.write, self.write, self.shrink, self.catch_up, self.catch_up, self.kill, self.stop,
                            self.come_back, self.come_back))()  # fmt: skip
        self.check()

    def check(self) -> None:
        leader = self.leader
        if leader is None:
            return
        if self.partition.leader_recovery_state == RECOVERED:
            missing = set(self.acknowledged).difference(self.logs[leader])
            if missing:
                raise AcknowledgedLostError(f"{leader} leads without {sorted(missing)}: {self.partition}")
            return
        # It is known that records may be gone; the leader goes on with what it has.
        self.unclean += 1
        self.acknowledged = [each for each in self.acknowledged if each in self.logs[leader]]
        propose(self.cluster, list(self.partition.isr), by=leader)

    # What leaders do

    def write(self) -> None:
        leader, isr = self.leader, self.partition.isr
        if leader is None:
            return
        self.written += 1
        self.logs[leader].append(self.written)
        if self.away.keys() & set(isr):
            return  # it waits for one that will not come
        for each in isr:
            self.logs[each] = list(self.logs[leader])
        if len(isr) >= min(self.min_isr, len(self.brokers)):
            # The high watermark covers what was written before, too.
            self.acknowledged = sorted({*self.acknowledged, *self.logs[leader]})

    def shrink(self) -> None:
        leader, isr = self.leader, self.partition.isr
        if leader is not None and len(isr) > 1:
            gone = self.chance.choice([each for each in isr if each != leader])
            propose(self.cluster, [each for each in isr if each != gone], by=leader)

    def catch_up(self) -> None:
        leader, isr = self.leader, self.partition.isr
        behind = [each for each in self.brokers if each not in isr and each not in self.away]
        if leader is None or not behind:
            return
        comes = self.chance.choice(behind)
        self.logs[comes] = list(self.logs[leader])
        propose(self.cluster, [*isr, comes], by=leader)

    # What happens to brokers

    def kill(self) -> None:
        alive = [each for each in self.brokers if each not in self.away]
        if not alive:
            return
        dead = self.chance.choice(alive)
        self.away[dead] = False
        log = self.logs[dead]
        del log[max(0, len(log) - self.chance.choice((0, 1, 3))) :]
        if self.chance.random() < 0.6:
            self.cluster.silence(*self.away)

    def stop(self) -> None:
        self.cluster.silence(*self.away)
        alive = [each for each in self.brokers if each not in self.away]
        if not alive:
            return
        stops = self.chance.choice(alive)
        while not self.cluster.beat(stops, stop=True).should_shut_down:
            for each in alive:
                if each != stops:
                    self.cluster.beat(each)
        self.away[stops] = True

    def come_back(self) -> None:
        if not self.away:
            return
        back = self.chance.choice(list(self.away))
        # Its session is over, but perhaps nobody has looked.
        self.cluster.now_ms += self.cluster.controller.options.broker_session_timeout_ms
        for each in self.brokers:
            if each not in self.away:
                self.cluster.beat(each)
        was_clean = self.away.pop(back)
        self.lives[back] += 1
        self.cluster.restart(back, life=self.lives[back], is_clean=was_clean)


def play(seed: int, *, elr: bool) -> World:
    world = World(seed, elr=elr)
    for _ in range(STEPS):
        world.step()
    return world


def play_all(*, elr: bool) -> list[World]:
    return [play(seed, elr=elr) for seed in SEEDS]


def test_with_eligible_leader_replicas_nothing_is_lost_by_a_clean_election() -> None:
    worlds = play_all(elr=True)
    # The test is worth something only if much was acknowledged, and leaders were lost.
    assert sum(len(each.acknowledged) for each in worlds) > 5 * len(worlds)
    assert sum(each.partition.leader_epoch for each in worlds) > 5 * len(worlds)
    assert sum(each.unclean for each in worlds) > 20


def test_without_them_a_power_loss_of_the_last_one_in_sync_can_cost_records() -> None:
    with pytest.raises(AcknowledgedLostError):
        play_all(elr=False)


def test_a_controller_that_trusts_a_broker_after_a_crash_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    trusting = elections.changes_when_restarted

    def always_clean(*arguments: object, was_clean: bool) -> object:
        return trusting(*arguments, was_clean=True)  # type: ignore[arg-type]

    monkeypatch.setattr("barnabas.metadata.brokers.changes_when_restarted", always_clean)
    with pytest.raises(AcknowledgedLostError):
        play_all(elr=True)
