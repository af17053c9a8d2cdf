"""A leader among followers that crash, a controller that decides, and a network that delays, repeats and loses.

Everything around the real leader is a plain model that knows the truth: what each follower really has, who really is in
sync. The rules let anything happen in any order; the invariants say what must hold whatever happened:

- whoever really is in sync has all that the leader calls committed;
- whoever really is in sync counts for the leader;
- the high watermark is what its definition says, by a second reading of it that walks offset by offset;
- when the last caught up is what the list of all fetches says.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from barnabas.base.error_codes import ErrorCode
from barnabas.metadata.image import BrokerImage
from barnabas.replication.isr import AlteredPartition, AlterPartition, CommittedPartitionState, PendingPartitionChange
from barnabas.replication.leader_state import LeaderState
from barnabas.replication.purgatory import DelayedProduce
from barnabas.replication.remote_replica import NEVER_MS
from barnabas.replication.roles import Isolation
from barnabas.storage.errors import LogError
from tests.replication.leader_bench import ScriptedPorts, accepted, live_broker
from tests.replication.partitions import append, partition, state

FOLLOWERS = (2, 3)
REPLICAS = (1, 2, 3)
MAX_LAG_MS = 1000
STARTS = ((1, 2, 3), (1, 2), (1,))
followers = st.sampled_from(FOLLOWERS)
any_number = st.integers(0, 9)


class Sent(NamedTuple):
    """A fetch on its way."""

    replica: int
    offset: int
    broker_epoch: int


class Noted(NamedTuple):
    """A fetch that the leader has taken."""

    now_ms: int
    offset: int
    leader_end: int


class Asked(NamedTuple):
    leader: LeaderState
    change: PendingPartitionChange


class Answer(NamedTuple):
    asked: Asked
    outcome: AlteredPartition | ErrorCode


class LeaderModel:
    """Node 1 leads for one epoch; 2 and 3 follow. Numbers that choose among what is on its way may be any."""

    def __init__(self, min_isr: int, isr: tuple[int, ...]) -> None:
        self.ports = ScriptedPorts(REPLICAS, MAX_LAG_MS)
        self.min_isr = min_isr
        # The truth.
        self.isr = set(isr)
        self.version = 0
        self.brokers = dict(self.ports.brokers)
        self.ends = dict.fromkeys(FOLLOWERS, 0)
        # What is on its way.
        self.fetches: list[Sent] = []
        self.records: list[tuple[dict[int, BrokerImage], tuple[int, ...], int]] = []
        self.asked: list[Asked] = []
        self.answers: list[Answer] = []
        # What the leader was told, in full.
        self.noted: dict[int, list[Noted]] = {each: [] for each in FOLLOWERS}
        self.started_in_sync = set(isr)
        self.high_watermark = 0
        self.acknowledged = 0
        self.partition = partition(state(REPLICAS, isr=isr), self.ports, min_insync_replicas=min_isr)
        self.leader = self.partition.leading()

    # Writers

    def produce(self, count: int, acks_all: bool) -> None:
        if acks_all and len(self.leader.isr) < self.min_isr:
            with pytest.raises(LogError):
                append(self.partition, acks_all=True)
            return
        appended = append(self.partition, *[b"x"] * count, acks_all=acks_all)
        end = appended.last_offset + 1
        if acks_all:
            delayed = DelayedProduce(lambda: self._acknowledged(delayed, end))
            delayed.add(self.leader, end)
            if delayed.is_over:
                self._acknowledged(delayed, end)

    def _acknowledged(self, delayed: DelayedProduce, end: int) -> None:
        (outcome,) = delayed.outcomes.values()
        if outcome is ErrorCode.NONE:
            self.acknowledged = max(self.acknowledged, end)
            for each in self.isr - {1}:
                assert self.ends[each] >= end, f"{each} is in sync and has not what was acknowledged"

    # Followers

    def send_fetch(self, replica: int) -> None:
        self.fetches.append(Sent(replica, self.ends[replica], self.brokers[replica].epoch))

    def take_fetch(self, number: int, is_answered: bool, is_repeated: bool) -> None:
        if not self.fetches:
            return
        number %= len(self.fetches)
        sent = self.fetches[number] if is_repeated else self.fetches.pop(number)
        end = self.leader.log.log_end_offset
        try:
            self.leader.read(
                sent.offset, 1 << 20, Isolation.LOG_END, replica=sent.replica, broker_epoch=sent.broker_epoch
            )
        except LogError:
            known = self.leader.followers[sent.replica].broker_epoch or 0
            newest = max(known, self.ports.brokers[sent.replica].epoch)
            assert sent.broker_epoch < newest, "a fetch was refused that is of the newest broker"
            return
        self.noted[sent.replica].append(Noted(self.ports.now_ms, sent.offset, end))
        if is_answered and self.brokers[sent.replica].epoch == sent.broker_epoch:
            self.ends[sent.replica] = max(self.ends[sent.replica], end)

    def crash(self, replica: int, lost: int) -> None:
        """It loses what was not on its disk, and registers again: the controller knows, and does not trust it."""
        self.ends[replica] = max(0, self.ends[replica] - lost)
        self.brokers[replica] = live_broker(replica, self.brokers[replica].epoch + 10, fenced=True)
        self._write(self.isr - {replica})

    def register(self, replica: int, fenced: bool, stopping: bool) -> None:
        self.brokers[replica] = live_broker(replica, self.brokers[replica].epoch, fenced=fenced, stopping=stopping)
        self._write(self.isr - {replica} if fenced or stopping else self.isr)

    # The controller

    def _write(self, isr: set[int]) -> None:
        if isr != self.isr:
            self.version += 1
            self.isr = set(isr)
        self.records.append((dict(self.brokers), tuple(sorted(self.isr)), self.version))

    def decide(self, number: int, is_lost: bool) -> None:
        """If the answer is lost, the leader sends the same again. An answer to an earlier sending never arrives."""
        if not self.asked:
            return
        number %= len(self.asked)
        asked = self.asked[number] if is_lost else self.asked.pop(number)
        proposal = asked.change.proposal
        if proposal.partition_epoch != self.version:
            outcome: AlteredPartition | ErrorCode = ErrorCode.INVALID_UPDATE_VERSION
        elif not all(self._is_eligible(each, epoch) for each, epoch in proposal.isr):
            outcome = ErrorCode.INELIGIBLE_REPLICA
        else:
            outcome = accepted(asked.change)
            self._write({each for each, _ in proposal.isr})
        if not is_lost:
            self.answers.append(Answer(asked, outcome))

    def _is_eligible(self, broker_id: int, epoch: int) -> bool:
        broker = self.brokers[broker_id]
        return not broker.is_fenced and not broker.in_controlled_shutdown and epoch in (-1, broker.epoch)

    def take_answer(self, number: int) -> None:
        if not self.answers:
            return
        (leader, change), outcome = self.answers.pop(number % len(self.answers))
        if isinstance(outcome, AlteredPartition):
            leader.altered(change, outcome)
        else:
            leader.refused(change, outcome)

    def take_record(self) -> None:
        if not self.records:
            return
        brokers, isr, version = self.records.pop(0)
        self.partition.update(state(REPLICAS, isr=isr, partition_epoch=version))
        self.ports.brokers = brokers
        self.leader.brokers_changed()

    # Time

    def wait(self, ms: int) -> None:
        self.ports.now_ms += ms

    def expire(self, after_ms: int) -> None:
        self.ports.now_ms += after_ms
        behind = {each for each in self.leader.isr if each != 1 and not self._is_caught_up(each)}
        was_committed = isinstance(self.leader.isr_state, CommittedPartitionState)
        self.leader.maybe_shrink_isr()
        if was_committed:
            proposed: AlterPartition | None = None
            if not isinstance(self.leader.isr_state, CommittedPartitionState):
                proposed = self.leader.isr_state.proposal
            left = None if proposed is None else {each for each, _ in proposed.isr}
            assert left == (set(self.leader.isr) - behind if behind else None)

    # The second reading

    def _last_caught_up_ms(self, replica: int) -> int:
        """The latest fetch that found nothing more, or after which the next one came for all that there had been."""
        moments = [0 if replica in self.started_in_sync else NEVER_MS]
        noted = self.noted[replica]
        for number, fetch in enumerate(noted):
            earlier = noted[:number]
            if fetch.offset >= fetch.leader_end:
                moments.append(fetch.now_ms)
            elif earlier and fetch.offset >= max(each.leader_end for each in earlier):
                moments.append(earlier[-1].now_ms)
        return max(moments)

    def _is_caught_up(self, replica: int) -> bool:
        noted = self.noted[replica]
        has_all = bool(noted) and noted[-1].offset == self.leader.log.log_end_offset
        return has_all or self.ports.now_ms - self._last_caught_up_ms(replica) <= MAX_LAG_MS

    def _counts(self, replica: int) -> bool:
        if replica in self.leader.maximal_isr:
            return True
        broker = self.ports.brokers[replica]
        may_join = not broker.is_fenced and not broker.in_controlled_shutdown
        is_same = self.leader.followers[replica].broker_epoch == broker.epoch
        return may_join and is_same and self._is_caught_up(replica)

    def _is_committed(self, offset: int) -> bool:
        known = {each: self.noted[each][-1].offset if self.noted[each] else -1 for each in FOLLOWERS}
        return offset < self.leader.log.log_end_offset and all(
            known[each] > offset for each in FOLLOWERS if self._counts(each)
        )

    def check(self) -> None:
        self._collect()
        leader, found = self.leader, self.leader.log.high_watermark
        assert found >= self.high_watermark, "the high watermark has fallen"
        expected = self.high_watermark
        if len(leader.isr) >= self.min_isr:
            while self._is_committed(expected):
                expected += 1
        if found < expected:
            # Nobody waits any more for a follower that was about to join: the next thing that happens shows it.
            found = self._shown()
        assert found == expected
        self.high_watermark = found
        assert self.isr <= set(leader.maximal_isr), "somebody is in sync whom the leader does not wait for"
        for each in self.isr - {1}:
            assert self.ends[each] >= found, f"{each} is in sync and has not what is committed"
        for each in FOLLOWERS:
            assert leader.followers[each].last_caught_up_ms == self._last_caught_up_ms(each)

    def _shown(self) -> int:
        self.leader.advance_high_watermark()
        return self.leader.log.high_watermark

    def _collect(self) -> None:
        under_way = {each.change for each in self.asked}
        for leader, change in self.ports.submitted:
            assert change not in under_way
            self.asked.append(Asked(leader, change))
        self.ports.submitted.clear()


class LeaderMachine(RuleBasedStateMachine):
    """Hypothesis chooses what happens."""

    model: LeaderModel | None = None

    @initialize(min_isr=st.integers(1, 2), isr=st.sampled_from(STARTS))
    def begin(self, min_isr: int, isr: tuple[int, ...]) -> None:
        self.model = LeaderModel(min_isr, isr)

    @property
    def begun(self) -> LeaderModel:
        assert self.model is not None
        return self.model

    @rule(count=st.integers(1, 3), acks_all=st.booleans())
    def produce(self, count: int, acks_all: bool) -> None:
        self.begun.produce(count, acks_all)

    @rule(replica=followers)
    def send_fetch(self, replica: int) -> None:
        self.begun.send_fetch(replica)

    @rule(number=any_number, is_answered=st.booleans(), is_repeated=st.booleans())
    def take_fetch(self, number: int, is_answered: bool, is_repeated: bool) -> None:
        self.begun.take_fetch(number, is_answered, is_repeated)

    @rule(replica=followers, lost=st.integers(0, 3))
    def crash(self, replica: int, lost: int) -> None:
        self.begun.crash(replica, lost)

    @rule(replica=followers, fenced=st.booleans(), stopping=st.booleans())
    def register(self, replica: int, fenced: bool, stopping: bool) -> None:
        self.begun.register(replica, fenced, stopping)

    @rule(number=any_number, is_lost=st.booleans())
    def decide(self, number: int, is_lost: bool) -> None:
        self.begun.decide(number, is_lost)

    @rule(number=any_number)
    def take_answer(self, number: int) -> None:
        self.begun.take_answer(number)

    @rule()
    def take_record(self) -> None:
        self.begun.take_record()

    @rule(ms=st.integers(1, 700))
    def wait(self, ms: int) -> None:
        self.begun.wait(ms)

    @rule(after_ms=st.sampled_from([0, MAX_LAG_MS + 1]))
    def expire(self, after_ms: int) -> None:
        self.begun.expire(after_ms)

    @invariant()
    def holds(self) -> None:
        if self.model is not None:
            self.model.check()


def walk(seed: int, steps: int) -> None:
    """Chance chooses, and what is usual more often: it gets into deeper trouble in less time than hypothesis does."""
    random = Random(seed)
    model = LeaderModel(random.choice((1, 2)), random.choice(STARTS))

    def chance(of: float) -> bool:
        return random.random() < of

    def follower() -> int:
        return random.choice(FOLLOWERS)

    def follow() -> None:
        model.send_fetch(follower())
        model.take_fetch(-1, chance(0.9), chance(0.1))

    actions: list[tuple[int, Callable[[], None]]] = [
        (6, lambda: model.produce(random.randint(1, 3), chance(0.5))),
        (12, follow),
        (2, lambda: model.send_fetch(follower())),
        (2, lambda: model.take_fetch(random.randrange(9), chance(0.5), chance(0.3))),
        (1, lambda: model.crash(follower(), random.randint(0, 3))),
        (3, lambda: model.register(follower(), chance(0.15), chance(0.1))),
        (5, lambda: model.decide(random.randrange(9), chance(0.3))),
        (3, lambda: model.take_answer(random.randrange(9))),
        (4, model.take_record),
        (1, lambda: model.wait(random.randint(1, 700))),
        (2, lambda: model.expire(random.choice((0, MAX_LAG_MS + 1)))),
    ]
    weights = [weight for weight, _ in actions]
    for _ in range(steps):
        random.choices(actions, weights)[0][1]()
        model.check()
