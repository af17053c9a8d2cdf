"""What the machine asks for, and in which order: what a replica says of an epoch stands behind the note of it."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.raft.batches import build_batches
from barnabas.raft.effects import (
    Answer,
    Append,
    AppendControl,
    AppendFetched,
    Commit,
    Effect,
    SaveElection,
    Send,
    SyncLog,
)
from barnabas.raft.machine import RaftMachine
from barnabas.raft.messages import FetchLog, FetchResult, Vote, VoteResult
from barnabas.raft.options import QuorumOptions
from barnabas.raft.ports import FoundReplica
from barnabas.raft.types import ElectionState, OffsetAndEpoch
from barnabas.raft.voters import VoterSet
from tests.raft.story import Story, retell
from tests.raft.story_parts import Replica, address_of, key_of
from tests.raft.test_stories import DOCUMENT, STORIES, retell_document


class OrderedStory(Story):
    """Notes the epoch that is on each disk, and looks at everything that leaves."""

    looked = 0

    def do_effect(self, replica: Replica, effect: Effect) -> None:
        saved = replica.disk.election
        if isinstance(effect, Answer) and effect.result.leader.epoch >= 0:
            assert saved is not None
            assert effect.result.leader.epoch <= saved.epoch
            self.looked += 1
        elif isinstance(effect, Send):
            assert saved is not None
            assert effect.request.epoch <= saved.epoch
            self.looked += 1
        elif isinstance(effect, Append | AppendControl):
            assert saved is not None
            assert effect.epoch == saved.epoch
            assert saved.leader_id == replica.key.node_id
        super().do_effect(replica, effect)


def test_nobody_speaks_of_an_epoch_before_it_is_on_disk() -> None:
    looked = 0
    for path in STORIES:
        story = OrderedStory()
        retell(path.read_text(encoding="utf-8"), story)
        looked += story.looked
    _, stories = retell_document(DOCUMENT.read_text(encoding="utf-8"), OrderedStory)
    assert looked > 1000
    assert stories


def machine_of(
    node_id: int, *, is_never_voter: bool = False, is_safe_when_written: bool = False, voters: Sequence[int] = (1, 2, 3)
) -> RaftMachine:
    machine = RaftMachine(
        key_of(node_id),
        FoundReplica(None, 0, 0, [], [], [], is_safe_when_written=is_safe_when_written),
        cluster_id=None,
        static_voters=VoterSet.of({each: address_of(each) for each in voters}),
        listeners={"CONTROLLER": address_of(node_id)},
        options=QuorumOptions(),
        randomness=Random(1),
        is_never_voter=is_never_voter,
    )
    machine.start(0)
    machine.take_effects()
    return machine


def test_a_vote_is_saved_before_it_is_given() -> None:
    machine = machine_of(1)
    machine.receive(Vote(None, 1, key_of(2), key_of(1), OffsetAndEpoch(0, 0)), "asked", 0)
    effects = machine.take_effects()
    places = [place for place, each in enumerate(effects) if isinstance(each, SaveElection)]
    saved, last = effects[places[-1]], effects[-1]
    assert isinstance(saved, SaveElection)
    assert saved.state == ElectionState(1, voted=key_of(2))
    assert isinstance(last, Answer)
    assert isinstance(last.result, VoteResult)
    assert last.result.granted


def test_a_pre_vote_saves_nothing() -> None:
    machine = machine_of(1)
    machine.receive(Vote(None, 0, key_of(2), key_of(1), OffsetAndEpoch(0, 0), pre_vote=True), "asked", 0)
    assert [type(each) for each in machine.take_effects()] == [Answer]


def test_a_leader_that_hears_of_a_higher_epoch_saves_it_before_it_turns_fetchers_away() -> None:
    machine = machine_of(1)
    machine.become_prospective(0)
    machine.become_candidate(0)
    machine.become_leader(0, [])
    machine.receive(FetchLog(None, 1, key_of(2), 1, 1, 0, 500, 1000), "parked", 0)
    machine.take_effects()
    machine.receive(Vote(None, 7, key_of(3), key_of(1), OffsetAndEpoch(0, 0)), "asked", 1)
    effects = machine.take_effects()
    assert isinstance(effects[0], SaveElection)
    assert [each.reply_to for each in effects if isinstance(each, Answer)] == ["parked", "asked"]


@pytest.mark.parametrize(
    ("node_id", "is_never_voter", "waits"), [(1, False, True), (4, False, True), (4, True, False), (1, True, True)]
)
def test_only_an_observer_that_never_votes_may_claim_what_it_has_not_synced(
    node_id: int, is_never_voter: bool, waits: bool
) -> None:
    """Any other may be counted by the leader before it knows."""
    machine = machine_of(node_id, is_never_voter=is_never_voter)
    machine.become_follower(2, 1, address_of(2), 0)
    (first,) = [each for each in machine.take_effects() if isinstance(each, Send)]
    (batch,) = build_batches([b"value"], base_offset=0, epoch=1, timestamp_ms=0)
    machine.receive_result(first.request, FetchResult(ErrorCode.NONE, machine.leader, records=batch), 0)
    effects = machine.take_effects()
    assert any(isinstance(each, SyncLog) for each in effects) is waits
    assert fetched_offsets(effects) == ([] if waits else [1])
    machine.synced(1, 0)
    assert fetched_offsets(machine.take_effects()) == ([1] if waits else [])


def fetched_offsets(effects: Sequence[Effect]) -> list[int]:
    return [each.request.offset for each in effects if isinstance(each, Send) and isinstance(each.request, FetchLog)]


def test_where_nothing_is_synced_a_follower_asks_for_more_as_soon_as_it_wrote_and_tells_its_owner_afterwards() -> None:
    machine = machine_of(1, is_safe_when_written=True)
    machine.become_follower(2, 1, address_of(2), 0)
    (first,) = [each for each in machine.take_effects() if isinstance(each, Send)]
    (batch,) = build_batches([b"value"], base_offset=0, epoch=1, timestamp_ms=0)
    result = FetchResult(ErrorCode.NONE, machine.leader, high_watermark=1, records=batch)
    machine.receive_result(first.request, result, 0)
    effects = machine.take_effects()
    # In this order: the fetch claims what was written before it, and the leader waits for it to commit.
    assert [type(each) for each in effects] == [AppendFetched, Send, Commit]
    assert fetched_offsets(effects) == [1]


def leader_without_syncs(voters: Sequence[int]) -> RaftMachine:
    """It has committed the record with which its epoch begins."""
    machine = machine_of(1, is_safe_when_written=True, voters=voters)
    if len(voters) > 1:
        machine.become_prospective(0)
        machine.become_candidate(0)
        machine.become_leader(0, [])
        machine.receive(FetchLog(None, 1, key_of(2), 1, 1, 0, 500, 1000), "first", 0)
    machine.synced(1, 0)
    assert machine.high_watermark == 1
    machine.take_effects()
    return machine


def test_where_nothing_is_synced_a_leader_commits_what_one_of_two_others_has_fetched() -> None:
    machine = leader_without_syncs([1, 2, 3])
    machine.append([b"value"], 1)
    assert [type(each) for each in machine.take_effects()] == [Append]
    assert machine.high_watermark == 1
    machine.receive(FetchLog(None, 1, key_of(2), 2, 1, 1, 500, 1000), "second", 0)
    assert [each for each in machine.take_effects() if isinstance(each, Commit)] == [Commit(2)]


def test_where_nothing_is_synced_a_sole_voter_commits_when_it_was_told_that_all_is_written() -> None:
    """Else what its disk did not take would be committed already, and could not be taken back."""
    machine = leader_without_syncs([1])
    machine.append([b"value"], 1)
    assert [type(each) for each in machine.take_effects()] == [Append, SyncLog]
    assert machine.take_back(1, 2)
    assert (machine.high_watermark, machine.log.end_offset) == (1, 1)
    machine.append([b"value"], 1)
    machine.synced(2, 0)
    assert machine.high_watermark == 2


@pytest.mark.parametrize("voters", [[1, 2, 3], [1, 2]])
def test_where_nothing_is_synced_a_leader_takes_back_what_its_disk_did_not_take(voters: list[int]) -> None:
    machine = leader_without_syncs(voters)
    machine.append([b"value"], 1)
    assert machine.take_back(1, 2)
    assert (machine.log.synced_offset, machine.log.end_offset, machine.high_watermark) == (1, 1, 1)
    machine.append([b"another"], 1)
    machine.receive(FetchLog(None, 1, key_of(2), 2, 1, 1, 500, 1000), "second", 0)
    assert machine.high_watermark == 2
