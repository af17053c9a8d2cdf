"""An operator of a simulated quorum, who puts its voters into the log and then adds and removes some, now and then."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Final

from barnabas.base.errors import BrokerError
from barnabas.raft.machine import RaftMachine
from barnabas.raft.types import Address
from barnabas.raft.voter_changes import add_voter, put_voters_into_log, remove_voter
from barnabas.raft.voters import DEFAULT_LISTENER, STATIC_VOTERS, Voter
from barnabas.testing.sim.raft_depths import PORT
from barnabas.testing.sim.raft_replica import SimulatedReplica

__all__ = ["VoterChanges"]

#: Fewer are not left: with one voter nothing that happens to it can be outvoted.
_FEWEST: Final = 2


class VoterChanges:
    """Asks whoever leads for one change at a time; what it refuses is tried again, or something else."""

    def __init__(self, replicas: Sequence[SimulatedReplica], random: Random) -> None:
        self._replicas: Mapping[int, SimulatedReplica] = {each.node_id: each for each in replicas}
        self._random = random
        self.count = 0

    def ask(self, leader: SimulatedReplica) -> None:
        """Runs in the process of the leader, or of who thinks that it is."""
        driver = leader.driver
        if driver is None or driver.failure is not None:
            return
        try:
            asked = driver.change_voters(self._draw(driver.machine))
        except BrokerError:
            return
        if isinstance(asked, Future):
            asked.add_done_callback(self._ended)

    def _ended(self, asked: Future[None]) -> None:
        if not asked.cancelled() and asked.exception() is None:
            self.count += 1

    def _draw(self, machine: RaftMachine) -> Callable[[RaftMachine, object, int], None]:
        if machine.kraft_version == STATIC_VOTERS:
            keys = [self._replicas[each].key for each in machine.voters.ids]
            return lambda machine, token, now_ms: put_voters_into_log(machine, token, keys, now_ms)
        voters = machine.voters.ids
        others = [each for each in sorted(self._replicas) if each not in voters]
        if len(voters) > _FEWEST and (not others or self._random.random() < 0.5):
            return partial(_remove, self._replicas[self._random.choice(voters)])
        return partial(_add, self._replicas[self._random.choice(others or voters)])


def _remove(replica: SimulatedReplica, machine: RaftMachine, token: object, now_ms: int) -> None:
    remove_voter(machine, token, replica.key, now_ms)


def _add(replica: SimulatedReplica, machine: RaftMachine, token: object, now_ms: int) -> None:
    voter = Voter(replica.key, {DEFAULT_LISTENER: Address(replica.host, PORT)})
    add_voter(machine, token, voter, now_ms)
