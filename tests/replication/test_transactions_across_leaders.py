"""Who leads next knows of transactions what the log says: open ones, aborted ones, and where readers must stop.

A naive reader of the whole log is asked the same, after each step of random stories with two replicas: writes of
producers, markers, fetches, and elections, clean or not.
"""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.strategies import booleans, integers, sampled_from

from barnabas.records import TransactionMarker, build_marker
from barnabas.records.control import read_marker
from barnabas.storage.log import PartitionLog
from barnabas.storage.validation import prepare_from_client, prepare_from_coordinator
from tests.replication.partitions import NOW_MS, batch, state
from tests.replication.replicas import Replica

PRODUCERS = sampled_from([11, 12, 13])


class Seen(NamedTuple):
    """What a reader of a whole log finds."""

    open: dict[int, int]
    aborted: list[tuple[int, int, int]]
    last_stable_offset: int


def naive(log: PartitionLog) -> Seen:
    opened: dict[int, int] = {}
    aborted = []
    unstable = []
    for each in log.batches(0):
        marker = read_marker(each) if each.is_control else None
        if marker is None:
            if each.is_transactional:
                opened.setdefault(each.producer_id, each.base_offset)
            continue
        first = opened.pop(marker.producer_id, None)
        if first is not None and not marker.committed:
            aborted.append((marker.producer_id, first, each.base_offset))
        if first is not None and each.base_offset >= log.high_watermark:
            unstable.append(first)
    return Seen(opened, aborted, min([*opened.values(), *unstable, log.high_watermark]))


def told(log: PartitionLog) -> Seen:
    opened = {
        each.producer_id: each.current_txn_first_offset
        for each in log.producers.entries()
        if each.current_txn_first_offset >= 0
    }
    aborted = [
        (each.producer_id, each.first_offset, each.last_offset)
        for segment in log.segments
        for each in segment.aborted.entries
    ]
    return Seen(opened, aborted, log.last_stable_offset)


class TwoReplicas(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.replicas = {1: Replica(1, segment_bytes=1024 * 1024), 2: Replica(2, segment_bytes=1024 * 1024)}
        self.epoch = 0
        self.leader = 1
        self.sequences: dict[int, int] = {}
        self._elect(1)

    def _elect(self, leader: int) -> None:
        self.epoch += 1
        self.leader = leader
        for each in self.replicas.values():
            each.partition.update(
                state((1, 2), leader=leader, epoch=self.epoch, partition_epoch=self.epoch, isr=(leader,))
            )
        log = self.replicas[leader].log
        # Of what a new leader has never seen, a producer has to begin anew: so each of its batches is the first.
        self.sequences = {
            each.producer_id: each.last_sequence + 1 for each in log.producers.entries() if each.last_sequence >= 0
        }

    @rule(producer=PRODUCERS, count=integers(1, 3))
    def write(self, producer: int, count: int) -> None:
        leader = self.replicas[self.leader].leading
        sequence = self.sequences.get(producer, 0)
        data = batch([b"x"] * count, producer_id=producer, producer_epoch=0, base_sequence=sequence, transactional=True)
        guard = leader.maybe_start_verification(producer, 0, sequence, supports_epoch_bump=False)
        prepared = prepare_from_client(data, leader.log.settings, NOW_MS)
        leader.append_in_transaction(prepared, guard, acks_all=False, now_ms=NOW_MS, must_be_verified=True)
        self.sequences[producer] = sequence + count

    @rule(producer=PRODUCERS, committed=booleans())
    def end(self, producer: int, committed: bool) -> None:
        leader = self.replicas[self.leader].leading
        data = build_marker(TransactionMarker(producer, 0, 0, committed), NOW_MS)
        prepared = prepare_from_coordinator(data, leader.log.settings)
        leader.append_in_transaction(prepared, None, acks_all=False, now_ms=NOW_MS, must_be_verified=True)

    @rule(max_bytes=sampled_from([1, 100, 200, 100_000]))
    def fetch(self, max_bytes: int) -> None:
        follower = self.replicas[3 - self.leader]
        follower.fetch_from(self.replicas[self.leader], max_bytes)
        leader = self.replicas[self.leader]
        if follower.log.log_end_offset <= leader.log.log_end_offset:
            leader.log.set_high_watermark(min(follower.log.log_end_offset, leader.log.log_end_offset))

    @rule()
    def roll(self) -> None:
        self.replicas[self.leader].log.roll(NOW_MS)

    @rule()
    def elect_the_other(self) -> None:
        """It may lack what the old leader has: that is cut there, markers among it."""
        self._elect(3 - self.leader)

    @precondition(lambda self: self.epoch > 0)
    @invariant()
    def both_know_what_their_logs_say(self) -> None:
        for each in self.replicas.values():
            expected, found = naive(each.log), told(each.log)
            assert (found.open, found.aborted) == (expected.open, expected.aborted)
            if each.log.high_watermark == each.log.log_end_offset:
                assert found.last_stable_offset == expected.last_stable_offset
            else:
                assert found.last_stable_offset <= min([*expected.open.values(), each.log.high_watermark])


TwoReplicas.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestTwoReplicas = TwoReplicas.TestCase


def test_a_marker_that_an_unclean_election_dropped_can_be_written_again() -> None:
    """KAFKA-20716: readers wait at the last stable offset, the producer is told of, and a marker lets them go on."""
    machine = TwoReplicas()
    machine.begin()
    machine.write(11, 1)
    machine.fetch(100_000)
    machine.end(11, True)
    machine.elect_the_other()
    machine.fetch(100_000)
    new = machine.replicas[machine.leader]
    new.log.set_high_watermark(new.log.log_end_offset)
    assert new.log.last_stable_offset == 0
    assert told(new.log).open == {11: 0}
    machine.end(11, False)
    machine.fetch(100_000)
    machine.fetch(100_000)
    assert new.log.last_stable_offset == new.log.log_end_offset
    for each in machine.replicas.values():
        assert told(each.log).aborted == [(11, 0, 1)]
