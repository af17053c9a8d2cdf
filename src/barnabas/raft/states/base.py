"""What all states have in common, and how peers are asked until they answer."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING, ClassVar

from barnabas.raft.messages import (
    BeginQuorumEpoch,
    EndQuorumEpoch,
    EpochResult,
    FetchLog,
    FetchResult,
    FetchSnapshot,
    FetchSnapshotResult,
    RaftRequest,
    UpdateVoter,
    Vote,
    VoteResult,
)
from barnabas.raft.transitions import Role
from barnabas.raft.types import NO_LEADER_ID, Address

if TYPE_CHECKING:
    from barnabas.raft.machine import RaftMachine


class RaftState:
    """A state lasts until the next transition; then another object takes its place.

    Each is told of the time and of answers to what it asked. What it does not expect, such as an answer to a question
    of the state before it, it passes over.
    """

    role: ClassVar[Role]

    def __init__(self, machine: RaftMachine) -> None:
        self.machine = machine
        #: Who leads in this epoch, as far as is known.
        self.leader_id = NO_LEADER_ID
        self.leader_address: Address | None = None

    def enter(self, now_ms: int) -> None:
        """Begin. The transition is made and noted already."""

    def leave(self) -> None:
        """End: whoever waits for this state is told."""

    @property
    def deadline_ms(self) -> float:
        """When `tick` has something to do."""
        return inf

    def tick(self, now_ms: int) -> None: ...

    def prolong(self, by_ms: int) -> None:
        """Wait longer before giving others up: we could not speak for so long."""

    def on_synced(self, now_ms: int) -> None:
        """More of the log is safe."""

    def grants(self, vote: Vote, *, is_up_to_date: bool) -> bool:
        """Whether to vote as asked; the epoch is ours, and `is_up_to_date` says how the asker's log compares."""
        return is_up_to_date and vote.pre_vote

    def on_vote_result(self, vote: Vote, result: VoteResult, now_ms: int) -> None: ...

    def on_epoch_result(self, request: BeginQuorumEpoch | EndQuorumEpoch, result: EpochResult, now_ms: int) -> None: ...

    def on_update_result(self, request: UpdateVoter, result: EpochResult, now_ms: int) -> None: ...

    def on_fetch_result(self, fetch: FetchLog, result: FetchResult, now_ms: int) -> None: ...

    def on_fetch_snapshot_result(self, fetch: FetchSnapshot, result: FetchSnapshotResult, now_ms: int) -> None: ...

    def on_no_result(self, request: RaftRequest, now_ms: int) -> None:
        """There will be no answer."""

    def on_refused(self, address: Address, now_ms: int) -> None:
        """The process that listened there is gone."""


class Inquiry:
    """A question to some peers: each is asked until it has answered, and again after a while if it does not."""

    def __init__(self, peers: Iterable[int], now_ms: int) -> None:
        # When each may be asked; never, while it is being asked.
        self._due: dict[int, float] = dict.fromkeys(sorted(peers), now_ms)

    @property
    def due_ms(self) -> float:
        return min(self._due.values(), default=inf)

    @property
    def is_over(self) -> bool:
        return not self._due

    def take_due(self, now_ms: int) -> list[int]:
        """Who is to be asked now; they count as asked."""
        due = [peer for peer, due_ms in self._due.items() if due_ms <= now_ms]
        for peer in due:
            self._due[peer] = inf
        return due

    def answered(self, peer: int) -> None:
        self._due.pop(peer, None)

    def ask_again(self, peer: int, at_ms: float) -> None:
        if peer in self._due:
            self._due[peer] = at_ms
