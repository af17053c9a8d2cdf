"""Resigned: led in this epoch and does not any more. It tells the voters, so that they need not wait for a timeout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.raft.messages import BeginQuorumEpoch, EndQuorumEpoch, EpochResult, RaftRequest
from barnabas.raft.states.base import Inquiry, RaftState
from barnabas.raft.transitions import Role
from barnabas.raft.types import ReplicaKey

if TYPE_CHECKING:
    from barnabas.raft.machine import RaftMachine


class Resigned(RaftState):
    """It has voted in this epoch, for itself, and waits for the next one. `successors` should lead, the best first."""

    role = Role.RESIGNED

    def __init__(self, machine: RaftMachine, now_ms: int, successors: tuple[ReplicaKey, ...]) -> None:
        super().__init__(machine)
        self._successors = successors
        self._deadline_ms = now_ms + machine.random_election_timeout_ms()
        self._inquiry = Inquiry((each for each in machine.voters.ids if each != machine.key.node_id), now_ms)

    @property
    def is_told(self) -> bool:
        """Whether every voter knows."""
        return self._inquiry.is_over

    @property
    def deadline_ms(self) -> float:
        return self._inquiry.due_ms if self.machine.is_stopping else min(self._deadline_ms, self._inquiry.due_ms)

    def prolong(self, by_ms: int) -> None:
        self._deadline_ms += by_ms

    def enter(self, now_ms: int) -> None:
        self._tell(now_ms)

    def tick(self, now_ms: int) -> None:
        if now_ms >= self._deadline_ms and not self.machine.is_stopping:
            self.machine.become_unattached(self.machine.epoch, now_ms)
        else:
            self._tell(now_ms)

    def _tell(self, now_ms: int) -> None:
        machine = self.machine
        for node_id in self._inquiry.take_due(now_ms):
            voter = machine.voters.get(node_id)
            if voter is not None:
                request = EndQuorumEpoch(
                    machine.cluster_id, machine.epoch, machine.key.node_id, self._successors, voter.key
                )
                machine.send(machine.address_of(voter), request)

    def on_epoch_result(self, request: BeginQuorumEpoch | EndQuorumEpoch, result: EpochResult, now_ms: int) -> None:
        if request.voter is not None:
            self._inquiry.answered(request.voter.node_id)

    def on_no_result(self, request: RaftRequest, now_ms: int) -> None:
        if isinstance(request, EndQuorumEpoch) and request.voter is not None:
            self._inquiry.ask_again(request.voter.node_id, now_ms + self.machine.options.retry_backoff_ms)
