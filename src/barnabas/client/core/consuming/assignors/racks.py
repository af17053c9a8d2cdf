"""Who is near which partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from barnabas.base.ids import TopicPartition
from barnabas.client.core.consuming.assignors.interface import Layout, MemberSubscription, racks_help


@dataclass(frozen=True, slots=True)
class Racks:
    """Racks of members and partitions. Both are empty where racks make no difference, and then nobody is far."""

    members: dict[str, str]
    partitions: dict[TopicPartition, frozenset[str]]

    @classmethod
    def of(cls, layout: Layout, subscriptions: Mapping[str, MemberSubscription]) -> Racks:
        members = {member_id: each.rack for member_id, each in subscriptions.items() if each.rack}
        partitions = {
            TopicPartition(topic, number): racks
            for topic, by_partition in layout.racks.items()
            for number, racks in enumerate(by_partition)
        }
        return cls(members, partitions) if racks_help(members.values(), partitions.values()) else cls({}, {})

    def __bool__(self) -> bool:
        return bool(self.members)

    def is_far(self, member_id: str, partition: TopicPartition) -> bool:
        rack = self.members.get(member_id)
        return rack is not None and rack not in self.partitions.get(partition, ())

    def is_near(self, member_id: str, partition: TopicPartition) -> bool:
        return self.members.get(member_id) in self.partitions.get(partition, ())

    def scarcest_first(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Those with the fewest members near them first, so that they are not left over when those are full."""
        if not self.members:
            return partitions
        on_rack = Counter(self.members.values())
        return sorted(partitions, key=lambda each: sum(on_rack[rack] for rack in self.partitions.get(each, ())))

    def next_near(self, partition: TopicPartition, members: Sequence[str], start: int) -> int | None:
        """The place of the next member near a partition, from `start` on and around."""
        for step in range(len(members)):
            place = (start + step) % len(members)
            if self.is_near(members[place], partition):
                return place
        return None
