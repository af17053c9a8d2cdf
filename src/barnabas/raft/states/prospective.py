"""Prospective: asks whether it would be voted for, before it disturbs anybody with a new epoch (KIP-996)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.raft.messages import Vote
from barnabas.raft.states.electing import Electing
from barnabas.raft.transitions import Role
from barnabas.raft.types import Address

if TYPE_CHECKING:
    from barnabas.raft.machine import RaftMachine


class Prospective(Electing):
    """It may know who led in this epoch, and goes back to following if the others hear of that one."""

    role = Role.PROSPECTIVE
    pre_vote = True

    def __init__(self, machine: RaftMachine, now_ms: int, leader_id: int, leader_address: Address | None) -> None:
        super().__init__(machine, now_ms)
        self.leader_id = leader_id
        self.leader_address = leader_address

    def enter(self, now_ms: int) -> None:
        self.count(now_ms)
        if self.machine.state is self:
            self.ask(now_ms)

    def grants(self, vote: Vote, *, is_up_to_date: bool) -> bool:
        if vote.pre_vote:
            return is_up_to_date
        return is_up_to_date and self.leader_id < 0 and self.machine.voted in (None, vote.candidate)

    def tick(self, now_ms: int) -> None:
        if not self.machine.may_lead or now_ms >= self._deadline_ms:
            self._give_up(now_ms)
        else:
            self.ask(now_ms)

    def count(self, now_ms: int) -> None:
        if self.is_won:
            self.machine.become_candidate(now_ms)
        elif self.is_lost:
            self._give_up(now_ms)

    def _give_up(self, now_ms: int) -> None:
        machine = self.machine
        if self.leader_address is not None and machine.may_lead:
            machine.become_follower(self.leader_id, machine.epoch, self.leader_address, now_ms)
        else:
            machine.become_unattached(machine.epoch, now_ms)
