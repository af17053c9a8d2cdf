"""Voters that listen twice, as while they move from PLAINTEXT to TLS: a replica keeps to the listener that it uses."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from barnabas.base.ids import Uuid
from barnabas.raft.effects import Send
from barnabas.raft.machine import RaftMachine
from barnabas.raft.messages import BeginQuorumEpoch, FetchLog
from barnabas.raft.options import QuorumOptions
from barnabas.raft.ports import FoundReplica
from barnabas.raft.types import Address, LeaderAndEpoch, ReplicaKey
from barnabas.raft.voters import Voter, VoterSet

CLUSTER = "c"
OLD, NEW = "CONTROLLER", "CONTROLLER_SASL"


def listeners(node_id: int, *names: str) -> dict[str, Address]:
    ports = {OLD: 9000, NEW: 9500}
    return {name: Address("127.0.0.1", ports[name] + node_id) for name in names}


def machine_of(node_id: int, uses: str, voters: VoterSet, own: Mapping[str, Address]) -> RaftMachine:
    found = FoundReplica(None, 0, 0, (), (), ())
    machine = RaftMachine(
        ReplicaKey(node_id),
        found,
        cluster_id=CLUSTER,
        static_voters=voters,
        listeners=own,
        options=QuorumOptions(),
        randomness=Random(1),
        listener_name=uses,
    )
    machine.start(0)
    return machine


def static(uses: str) -> VoterSet:
    """As settings name voters: by one listener."""
    return VoterSet(Voter(ReplicaKey(each), listeners(each, uses)) for each in (1, 2, 3))


def asked(machine: RaftMachine) -> set[Address]:
    """Whom it asks for records."""
    return {each.to for each in machine.take_effects() if isinstance(each, Send) and isinstance(each.request, FetchLog)}


def test_a_follower_fetches_where_it_is_used_to_whatever_its_leader_names_first() -> None:
    for uses in (OLD, NEW):
        machine = machine_of(3, uses, static(uses), listeners(3, OLD, NEW))
        machine.take_effects()
        machine.receive(BeginQuorumEpoch(CLUSTER, 5, 1, ReplicaKey(3), listeners(1, NEW, OLD)), "begin", 0)
        assert asked(machine) == set(listeners(1, uses).values())


def test_a_leader_that_names_only_another_listener_is_found_by_the_settings() -> None:
    machine = machine_of(3, OLD, static(OLD), listeners(3, OLD))
    machine.take_effects()
    machine.receive(BeginQuorumEpoch(CLUSTER, 5, 1, ReplicaKey(3), listeners(1, NEW)), "begin", 0)
    assert asked(machine) == set(listeners(1, OLD).values())


def test_whoever_uses_the_other_listener_is_told_that_of_the_leader() -> None:
    own = machine_of(3, NEW, static(NEW), listeners(3, NEW, OLD))
    assert own.leader_address_at(OLD, LeaderAndEpoch(3, 5)) == listeners(3, OLD)[OLD]
    # Settings name the voters by one listener: nothing wrong is told of another.
    assert own.leader_address_at(OLD, LeaderAndEpoch(1, 5)) is None
    in_log = VoterSet(
        Voter(ReplicaKey(each, Uuid(bytes([each] * 16))), listeners(each, OLD, NEW)) for each in (1, 2, 3)
    )
    machine = machine_of(3, NEW, in_log, listeners(3, NEW, OLD))
    assert machine.leader_address_at(OLD, LeaderAndEpoch(1, 5)) == listeners(1, OLD)[OLD]
