"""What leading a partition needs of the node around it: time, the cluster's brokers, and a way to the controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from barnabas.metadata.image import BrokerImage

if TYPE_CHECKING:
    from barnabas.replication.isr import PendingPartitionChange
    from barnabas.replication.leader_state import LeaderState


class LeaderPorts(Protocol):
    """Handed to every partition. What it tells of brokers is as of the image that the node has applied."""

    @property
    def broker_epoch(self) -> int:
        """This broker's own epoch."""
        ...

    @property
    def replica_lag_time_max_ms(self) -> int: ...

    def monotonic_ms(self) -> int: ...

    def broker(self, broker_id: int) -> BrokerImage | None: ...

    def submit(self, leader: LeaderState, change: PendingPartitionChange) -> None:
        """Propose a change to the controller. The leader is told of the outcome by `altered` or `refused`, later."""
        ...


class NobodyElse:
    """Ports of a partition whose node knows no other: nobody can join those in sync, and nobody is asked."""

    broker_epoch = -1
    replica_lag_time_max_ms = 30_000

    def monotonic_ms(self) -> int:
        return 0

    def broker(self, broker_id: int) -> BrokerImage | None:
        return None

    def submit(self, leader: LeaderState, change: PendingPartitionChange) -> None:
        """Nobody is there to decide."""
