"""Candidate: has begun an epoch, voted for itself, and asks for the votes of others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.raft.states.electing import Electing
from barnabas.raft.transitions import Role

if TYPE_CHECKING:
    from barnabas.raft.machine import RaftMachine


class Candidate(Electing):
    """After a defeat it waits by chance, so that two who share the votes do not meet again, and asks anew."""

    role = Role.CANDIDATE
    pre_vote = False

    def __init__(self, machine: RaftMachine, now_ms: int) -> None:
        super().__init__(machine, now_ms)
        self._is_defeated = False

    def enter(self, now_ms: int) -> None:
        self.count(now_ms)
        if self.machine.state is self:
            self.ask(now_ms)

    def prolong(self, by_ms: int) -> None:
        """Others need as long to save their votes as we did for ours."""
        super().prolong(2 * by_ms)

    def tick(self, now_ms: int) -> None:
        if not self.machine.may_lead:
            self.machine.become_unattached(self.machine.epoch, now_ms)
        elif now_ms >= self._deadline_ms:
            self.machine.become_prospective(now_ms)
        else:
            self.ask(now_ms)

    def count(self, now_ms: int) -> None:
        if self.is_won:
            self.machine.become_leader(now_ms, self.granting())
        elif self.is_lost and not self._is_defeated:
            self._is_defeated = True
            self._deadline_ms = min(self._deadline_ms, now_ms + self.machine.random_election_backoff_ms())
