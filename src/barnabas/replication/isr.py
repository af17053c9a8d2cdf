"""Who is in sync, as values: what the controller has committed, and what a leader has proposed and awaits.

While a proposal is under way nobody knows which of the two holds. So the leader waits for whoever may be in sync by
either: the maximal ISR.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

#: The states of a leader's recovery after an unclean election.
RECOVERED: Final = 0
RECOVERING: Final = 1


class AlterPartition(NamedTuple):
    """What a leader proposes: who is to be in sync, each with its broker epoch (-1 if that is not known)."""

    isr: tuple[tuple[int, int], ...]
    leader_recovery_state: int
    leader_epoch: int
    partition_epoch: int


class AlteredPartition(NamedTuple):
    """What the controller has made of a proposal."""

    isr: tuple[int, ...]
    leader_recovery_state: int
    leader_epoch: int
    partition_epoch: int


@dataclass(frozen=True, slots=True)
class CommittedPartitionState:
    """What the controller has committed."""

    isr: tuple[int, ...]
    #: What the leader will say of its recovery, which is over once it leads.
    leader_recovery_state: int = RECOVERED

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        return self.isr


@dataclass(frozen=True, slots=True, eq=False)
class PendingExpandIsr:
    """A follower is to be in sync. It counts at once: to wait for one more can only be too careful."""

    new_in_sync_replica: int
    proposal: AlterPartition
    last_committed: CommittedPartitionState

    @property
    def isr(self) -> tuple[int, ...]:
        return self.last_committed.isr

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        return (*self.last_committed.isr, self.new_in_sync_replica)


@dataclass(frozen=True, slots=True, eq=False)
class PendingShrinkIsr:
    """Followers are to leave. They count until it is committed: else one of them might be elected without the rest."""

    out_of_sync_replicas: tuple[int, ...]
    proposal: AlterPartition
    last_committed: CommittedPartitionState

    @property
    def isr(self) -> tuple[int, ...]:
        return self.last_committed.isr

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        return self.last_committed.isr


PendingPartitionChange = PendingExpandIsr | PendingShrinkIsr
IsrState = CommittedPartitionState | PendingPartitionChange
