"""A leader among brokers and a controller that are made up: time passes and proposals are decided when a test says."""

from __future__ import annotations

from types import MappingProxyType

from barnabas.base.ids import Uuid
from barnabas.metadata.image import BrokerImage
from barnabas.replication.isr import AlteredPartition, PendingPartitionChange
from barnabas.replication.leader_state import LeaderState

NODE = 1
#: Broker 2 has the epoch 102, and so on.
FIRST_EPOCH = 100


def live_broker(
    broker_id: int, epoch: int | None = None, *, fenced: bool = False, stopping: bool = False
) -> BrokerImage:
    return BrokerImage(
        broker_id=broker_id,
        epoch=FIRST_EPOCH + broker_id if epoch is None else epoch,
        incarnation_id=Uuid(bytes(16)),
        endpoints=(),
        features=MappingProxyType({}),
        rack=None,
        is_fenced=fenced,
        in_controlled_shutdown=stopping,
    )


class ScriptedPorts:
    """The `LeaderPorts` of node 1."""

    def __init__(self, brokers: tuple[int, ...] = (1, 2, 3, 4), max_lag_ms: int = 30_000) -> None:
        self.broker_epoch = FIRST_EPOCH + NODE
        self.replica_lag_time_max_ms = max_lag_ms
        self.now_ms = 0
        self.brokers = {each: live_broker(each) for each in brokers}
        self.submitted: list[tuple[LeaderState, PendingPartitionChange]] = []

    def monotonic_ms(self) -> int:
        return self.now_ms

    def broker(self, broker_id: int) -> BrokerImage | None:
        return self.brokers.get(broker_id)

    def submit(self, leader: LeaderState, change: PendingPartitionChange) -> None:
        self.submitted.append((leader, change))


def accepted(change: PendingPartitionChange, by: int = 1) -> AlteredPartition:
    """What a controller answers that does as it was asked."""
    proposal = change.proposal
    return AlteredPartition(
        tuple(each for each, _ in proposal.isr),
        proposal.leader_recovery_state,
        proposal.leader_epoch,
        proposal.partition_epoch + by,
    )
