"""A leader that resigned leads no more in that epoch, whatever others say who have not heard of it."""

from __future__ import annotations

from random import Random

from barnabas.base.error_codes import ErrorCode
from barnabas.raft.effects import Send
from barnabas.raft.machine import RaftMachine
from barnabas.raft.messages import BeginQuorumEpoch, EndQuorumEpoch, FetchLog, FetchResult
from barnabas.raft.options import QuorumOptions
from barnabas.raft.ports import FoundReplica
from barnabas.raft.transitions import Role
from barnabas.raft.types import Address, LeaderAndEpoch, ReplicaKey
from barnabas.raft.voters import DEFAULT_LISTENER, VoterSet

ADDRESSES = {each: Address("127.0.0.1", 9000 + each) for each in (1, 2, 3)}
CLUSTER = "c"


def follower_of_one() -> RaftMachine:
    """Replica 3, which follows 1 in epoch 5."""
    machine = RaftMachine(
        ReplicaKey(3),
        FoundReplica(None, 0, 0, (), (), ()),
        cluster_id=CLUSTER,
        static_voters=VoterSet.of(ADDRESSES),
        listeners={DEFAULT_LISTENER: ADDRESSES[3]},
        options=QuorumOptions(),
        randomness=Random(1),
    )
    machine.start(0)
    begin = BeginQuorumEpoch(CLUSTER, 5, 1, ReplicaKey(3), {DEFAULT_LISTENER: ADDRESSES[1]})
    machine.receive(begin, "begin", 0)
    assert machine.state.role is Role.FOLLOWER
    return machine


def stale() -> FetchResult:
    """What replica 2 says, which still follows 1."""
    return FetchResult(ErrorCode.NOT_LEADER_OR_FOLLOWER, LeaderAndEpoch(1, 5), ADDRESSES[1])


def a_fetch() -> FetchLog:
    return FetchLog(CLUSTER, 5, ReplicaKey(3), 0, 0, 0, 0, 1)


def test_its_successor_keeps_to_its_turn() -> None:
    machine = follower_of_one()
    machine.receive(EndQuorumEpoch(CLUSTER, 5, 1, (ReplicaKey(2), ReplicaKey(3))), "end", 10)
    turn_ms = machine.deadline_ms
    machine.receive_result(a_fetch(), stale(), 11)
    assert machine.state.role is Role.UNATTACHED
    assert machine.deadline_ms <= turn_ms < 10 + QuorumOptions().election_timeout_ms
    machine.receive(BeginQuorumEpoch(CLUSTER, 6, 2, ReplicaKey(3), {DEFAULT_LISTENER: ADDRESSES[2]}), "begin", 12)
    assert machine.leader == LeaderAndEpoch(2, 6)


def test_its_word_comes_after_its_refusal() -> None:
    machine = follower_of_one()
    asked = [each.request for each in machine.take_effects() if isinstance(each, Send)][-1]
    machine.receive_result(asked, FetchResult(ErrorCode.NOT_LEADER_OR_FOLLOWER, LeaderAndEpoch(-1, 5)), 10)
    machine.receive_result(a_fetch(), stale(), 11)
    assert machine.leader == LeaderAndEpoch(-1, 5)
    machine.receive(EndQuorumEpoch(CLUSTER, 5, 1, (ReplicaKey(3), ReplicaKey(2))), "end", 12)
    machine.tick(12)
    assert machine.state.role is Role.PROSPECTIVE
