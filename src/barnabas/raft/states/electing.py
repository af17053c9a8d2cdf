"""What prospectives and candidates do: ask all voters, and count."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from barnabas.base.error_codes import ErrorCode
from barnabas.raft.messages import RaftRequest, Vote, VoteResult
from barnabas.raft.states.base import Inquiry, RaftState
from barnabas.raft.types import ReplicaKey

if TYPE_CHECKING:
    from barnabas.raft.machine import RaftMachine


class Electing(RaftState, ABC):
    """An election with or without consequences. One's own vote, if one has any, counts from the beginning."""

    pre_vote: bool

    def __init__(self, machine: RaftMachine, now_ms: int) -> None:
        super().__init__(machine)
        self.voters = machine.voters
        self._deadline_ms = now_ms + machine.random_election_timeout_ms()
        own = machine.key.node_id
        self.granted = {own} if machine.is_voter else set()
        self.rejected: set[int] = set()
        self._inquiry = Inquiry((each for each in self.voters.ids if each != own), now_ms)

    @property
    def is_won(self) -> bool:
        return len(self.granted) >= self.voters.majority

    @property
    def is_lost(self) -> bool:
        return len(self.voters) - len(self.rejected) < self.voters.majority

    @property
    def deadline_ms(self) -> float:
        return min(self._deadline_ms, self._inquiry.due_ms)

    def prolong(self, by_ms: int) -> None:
        self._deadline_ms += by_ms

    def ask(self, now_ms: int) -> None:
        machine = self.machine
        for node_id in self._inquiry.take_due(now_ms):
            voter = self.voters.get(node_id)
            if voter is not None:
                request = Vote(
                    machine.cluster_id, machine.epoch, machine.key, voter.key, machine.log.end, pre_vote=self.pre_vote
                )
                machine.send(machine.address_of(voter), request)

    def on_vote_result(self, vote: Vote, result: VoteResult, now_ms: int) -> None:
        if vote.pre_vote != self.pre_vote or vote.epoch != self.machine.epoch or vote.voter is None:
            return
        node_id = vote.voter.node_id
        if result.error is not ErrorCode.NONE and not result.granted:
            self.machine.complain(vote, result.error)
        self._inquiry.answered(node_id)
        if node_id not in self.granted:
            (self.granted if result.granted else self.rejected).add(node_id)
            self.count(now_ms)

    def on_no_result(self, request: RaftRequest, now_ms: int) -> None:
        if isinstance(request, Vote) and request.voter is not None and request.epoch == self.machine.epoch:
            self._inquiry.ask_again(request.voter.node_id, now_ms + self.machine.options.retry_backoff_ms)

    @abstractmethod
    def count(self, now_ms: int) -> None:
        """Look whether the election is won or lost."""

    def granting(self) -> list[ReplicaKey]:
        """Who voted for us, for the LeaderChange record."""
        return [each.key for each in self.voters if each.key.node_id in self.granted]
