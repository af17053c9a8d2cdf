"""Voters, majorities and the high watermark, against counting; what a log says of its voters, against a list."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from barnabas.base.errors import InvariantError, RemoteProtocolError
from barnabas.base.ids import Uuid
from barnabas.raft.batches import ControlRecord
from barnabas.raft.machine import RaftMachine
from barnabas.raft.messages import FetchLog
from barnabas.raft.options import QuorumOptions
from barnabas.raft.ports import FoundReplica
from barnabas.raft.types import Address, ElectionState, ReplicaKey
from barnabas.raft.voters import OffsetHistory, QuorumHistory, Voter, VoterSet
from barnabas.records.control import ControlType
from barnabas.wire.stored.control_records import KRaftVersionFeature, KRaftVersionRecord, QuorumVoter, VotersRecord
from tests.raft.story_parts import address_of, key_of


def voters_of(*ids: int) -> VoterSet:
    return VoterSet(Voter(key_of(each), {"CONTROLLER": address_of(each)}) for each in ids)


# Majorities


@pytest.mark.parametrize("size", range(1, 8))
def test_a_majority_is_the_fewest_voters_that_always_meet(size: int) -> None:
    ids = range(1, size + 1)

    def always_meet(count: int) -> bool:
        return all(set(one) & set(other) for one in combinations(ids, count) for other in combinations(ids, count))

    assert voters_of(*ids).majority == min(count for count in range(1, size + 1) if always_meet(count))


@pytest.mark.parametrize("size", range(1, 7))
def test_majorities_of_sets_that_differ_by_one_voter_meet(size: int) -> None:
    smaller, larger = voters_of(*range(1, size + 1)), voters_of(*range(1, size + 2))
    for one in combinations(smaller.ids, smaller.majority):
        assert all(set(one) & set(other) for other in combinations(larger.ids, larger.majority))


# The high watermark


class Quorum:
    """A leader in epoch 2 with a log that has three records of epoch 1, and what others tell it."""

    def __init__(self, size: int) -> None:
        voters = VoterSet.of({each: address_of(each) for each in range(1, size + 1)})
        found = FoundReplica(ElectionState(1), 0, 3, [(1, 0)], [], [])
        self.machine = RaftMachine(
            key_of(1),
            found,
            cluster_id=None,
            static_voters=voters,
            listeners={"CONTROLLER": address_of(1)},
            options=QuorumOptions(),
            randomness=Random(1),
        )
        self.machine.start(0)
        if size > 1:
            self.machine.become_prospective(0)
            self.machine.become_candidate(0)
            self.machine.become_leader(0, [])
        self.size = size
        #: How far each voter is, as the naive count knows it.
        self.ends = dict.fromkeys(range(1, size + 1), -1) | {1: 3}
        self.high_watermark = self.machine.high_watermark

    def fetch(self, node_id: int, offset: int) -> None:
        log = self.machine.log
        offset = min(offset, log.end_offset)
        last_epoch = log.epoch_of(offset - 1) if offset else 0
        self.machine.receive(FetchLog(None, 2, key_of(node_id), offset, last_epoch, 0, 0, 1000), object(), 0)
        if node_id in self.ends:
            self.ends[node_id] = offset

    def sync(self, offset: int) -> None:
        offset = min(offset, self.machine.log.end_offset)
        self.machine.synced(offset, 0)
        self.ends[1] = offset

    def append(self, count: int) -> None:
        state = self.machine.state
        getattr(state, "append")([b"x"] * count)  # noqa: B009 - also before the leader takes records

    def count(self) -> int:
        """The largest offset that more than half of the voters have reached, and more than the first of this epoch."""
        reached = [
            offset
            for offset in range(self.machine.log.end_offset + 1)
            if 2 * sum(end >= offset for end in self.ends.values()) > self.size
        ]
        offset = max(reached, default=0)
        if offset > 3:
            self.high_watermark = max(self.high_watermark, offset)
        return self.high_watermark


steps = st.one_of(
    st.tuples(st.just("fetch"), st.integers(2, 9), st.integers(0, 12)),
    st.tuples(st.just("sync"), st.integers(0, 12)),
    st.tuples(st.just("append"), st.integers(1, 3)),
)


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 7), st.lists(steps, max_size=40))
def test_the_high_watermark_is_what_a_majority_has_synced(size: int, story: list[tuple[str, ...]]) -> None:
    """Replicas above `size` are observers: what they fetch counts nowhere."""
    quorum = Quorum(size)
    for name, *arguments in story:
        getattr(quorum, name)(*arguments)
        assert quorum.machine.high_watermark == quorum.count()


# Sets


def test_directories_count_where_the_set_knows_them() -> None:
    static, dynamic = VoterSet.of({1: address_of(1)}), voters_of(1)
    another_disk = ReplicaKey(1, Uuid(bytes(15) + b"\x07"))
    assert static.is_voter(key_of(1))
    assert static.is_voter(another_disk)
    assert dynamic.is_voter(key_of(1))
    assert not dynamic.is_voter(another_disk)
    assert not dynamic.is_voter(key_of(2))


def test_a_voter_is_there_once() -> None:
    with pytest.raises(InvariantError, match="voter 1 is there twice"):
        VoterSet([*voters_of(1), *voters_of(1)])


def test_a_set_survives_its_record() -> None:
    voters = VoterSet([Voter(key_of(7), {"CONTROLLER": Address("h", 1), "SECURE": Address("h", 2)}, 0, 1)])
    message = voters.to_record().message
    assert isinstance(message, VotersRecord)
    assert VoterSet.from_record(message) == voters


def test_a_voter_without_an_address_is_refused() -> None:
    versions = KRaftVersionFeature(min_supported_version=0, max_supported_version=1)
    voter = QuorumVoter(voter_id=1, voter_directory_id=Uuid.ZERO, endpoints=[], k_raft_version_feature=versions)
    record = VotersRecord(version=0, voters=[voter])
    with pytest.raises(RemoteProtocolError, match="no address of voter 1"):
        VoterSet.from_record(record)


# What a log says of its voters


class HistoryComparison(RuleBasedStateMachine):
    """A history, and a list of all that was added and not cut off."""

    def __init__(self) -> None:
        super().__init__()
        self.history: OffsetHistory[int] = OffsetHistory(0)
        self.added: list[tuple[int, int]] = []
        self.start = 0

    @property
    def end(self) -> int:
        return max([self.start, *(offset + 1 for offset, _ in self.added)])

    def naive_before(self, end_offset: int) -> int:
        return next((value for offset, value in reversed(self.added) if offset < end_offset), 0)

    @rule(gap=st.integers(0, 3), value=st.integers(1, 100))
    def add(self, gap: int, value: int) -> None:
        offset = self.end + gap
        self.history.add(offset, value)
        self.added.append((offset, value))

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        end_offset = data.draw(st.integers(self.start, self.end + 1))
        self.history.truncate(end_offset)
        self.added = [each for each in self.added if each[0] < end_offset]

    @rule(data=st.data())
    def forget_before(self, data: st.DataObject) -> None:
        self.start = data.draw(st.integers(self.start, self.end))
        self.history.forget_before(self.start)

    @invariant()
    def both_say_the_same(self) -> None:
        assert self.history.newest == (self.added[-1][1] if self.added else 0)
        assert self.history.newest_offset == (self.added[-1][0] if self.added else -1)
        for end_offset in range(self.start, self.end + 2):
            assert self.history.before(end_offset) == self.naive_before(end_offset)


TestHistory = HistoryComparison.TestCase
TestHistory.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)


def kraft_version(version: int) -> ControlRecord:
    return ControlRecord(ControlType.KRAFT_VERSION, KRaftVersionRecord(version=0, k_raft_version=version))


#: A log of a quorum that was made dynamic at some offset, and then changed its voters.
changes = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 5)), max_size=8)


@settings(max_examples=200, deadline=None)
@given(changes, st.data())
def test_the_voters_of_a_log_follow_from_its_records(sizes: list[tuple[int, int]], data: st.DataObject) -> None:
    static = VoterSet.of({1: address_of(1)})
    records: list[tuple[int, ControlRecord]] = []
    offset = 0
    for gap, size in sizes:
        offset += gap
        if not records:
            records.append((offset, kraft_version(1)))
            offset += 1
        records.append((offset, voters_of(*range(1, size + 1)).to_record()))

    def replayed(until: int) -> QuorumHistory:
        history = QuorumHistory(static)
        for at, record in records:
            if at < until:
                history.replay(at, record)
        return history

    end = offset + 1
    cut = data.draw(st.integers(0, end))
    history, shorter = replayed(end), replayed(cut)
    # What a snapshot up to there says is what a log that ends there says.
    assert history.voter_sets.before(cut) == shorter.voter_sets.newest
    assert history.records_before(cut) == shorter.records_before(cut)
    # A truncation brings back what was before.
    history.truncate(cut)
    assert history.voter_sets.newest == shorter.voter_sets.newest
    assert history.kraft_versions.newest == shorter.kraft_versions.newest
    # Who begins with the snapshot goes on to the same end.
    anew = QuorumHistory(static)
    anew.restart(cut - 1, shorter.records_before(cut))
    anew.truncate(max(cut, 0))
    for at, record in records:
        if at >= cut:
            anew.replay(at, record)
    assert anew.voter_sets.newest == replayed(end).voter_sets.newest
    assert anew.kraft_versions.newest == replayed(end).kraft_versions.newest
