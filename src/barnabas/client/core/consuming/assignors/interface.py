"""What an assignor is: it shares the partitions of a group out among its members.

The leader of a group runs it. All members must know it by the same name, and what they have to say to it travels with
their subscriptions. A program may bring its own: a subclass of `Assignor`, named in partition.assignment.strategy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Final, Protocol

from barnabas.base.ids import TopicPartition

NO_GENERATION: Final = -1


class RebalanceProtocol(IntEnum):
    """What members do with their partitions while the group rebalances; a higher one is preferred."""

    #: Everything is given up before joining.
    EAGER = 0
    #: Everything is kept, and only what goes to somebody else is given up afterwards.
    COOPERATIVE = 1


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """What a member wants and has. `owned` is empty for an eager member: it gave everything up before it joined."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    #: In which generation it got what it owns; -1 if never, or if the member is too old to say.
    generation: int = NO_GENERATION
    rack: str | None = None
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one member gets."""

    partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None


class NodeOnRack(Protocol):
    @property
    def rack(self) -> str | None: ...


class ReplicatedPartition(Protocol):
    @property
    def partition(self) -> int: ...
    @property
    def replicas(self) -> Sequence[int]: ...


class TopicsView(Protocol):
    """The part of a `ClusterView` that assignors look at."""

    @property
    def nodes(self) -> Mapping[int, NodeOnRack]: ...
    def partition_count(self, topic: str) -> int | None: ...
    def partitions(self, topic: str) -> Sequence[ReplicatedPartition]: ...


class Assignor(ABC):
    """A way of sharing partitions out. One object serves one consumer, and may remember what it was assigned."""

    #: What the members of a group call it.
    name: ClassVar[str]
    #: Those that it can be used with.
    protocols: ClassVar[tuple[RebalanceProtocol, ...]] = (RebalanceProtocol.EAGER,)

    def subscription_user_data(self, topics: Sequence[str]) -> bytes | None:
        """What the leader's assignor should know of this member."""
        return None

    @abstractmethod
    def assign(self, view: TopicsView, subscriptions: Mapping[str, MemberSubscription]) -> Mapping[str, Assignment]:
        """By member id, what each gets. Topics that `view` does not know are left out."""

    def on_assignment(self, assignment: Assignment, generation: int) -> None:  # noqa: B027 - most need not know
        """This member got its share."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What there is to share out: subscribed topics that exist, in order, and the racks that hold their replicas."""

    counts: dict[str, int]
    #: By topic and partition; empty if no member says where it is, so that nobody has to look.
    racks: dict[str, list[frozenset[str]]]

    @classmethod
    def of(cls, view: TopicsView, subscriptions: Mapping[str, MemberSubscription]) -> Layout:
        wanted = {topic for each in subscriptions.values() for topic in each.topics}
        counts = {topic: count for topic in sorted(wanted) if (count := view.partition_count(topic))}
        if not any(each.rack for each in subscriptions.values()):
            return cls(counts, {})
        nodes = view.nodes
        racks: dict[str, list[frozenset[str]]] = {}
        for topic, count in counts.items():
            by_partition = [frozenset[str]()] * count
            for info in view.partitions(topic):
                found = (nodes[node_id].rack for node_id in info.replicas if node_id in nodes)
                by_partition[info.partition] = frozenset(rack for rack in found if rack is not None)
            racks[topic] = by_partition
        return cls(counts, racks)


def racks_help(member_racks: Iterable[str], partition_racks: Iterable[frozenset[str]]) -> bool:
    """Whether looking at racks can make a difference: some are shared, and not every partition is on all of them."""
    per_partition = list(partition_racks)
    everywhere = frozenset[str]().union(*per_partition)
    return not everywhere.isdisjoint(member_racks) and any(each != everywhere for each in per_partition)


def member_order(member_id: str, subscription: MemberSubscription) -> tuple[int, str]:
    """Static members first, by the name that they keep over restarts, so that a restart changes nothing."""
    return (0, subscription.instance_id) if subscription.instance_id is not None else (1, member_id)
