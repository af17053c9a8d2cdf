"""range: of each topic, every member gets a run of neighbouring partitions.

Members of topics with equally many partitions get the same numbers of each, so that what belongs together by key is
read by one member. Where members and replicas say their racks, partitions go to a member on the rack of a replica as
far as the sizes of the shares, and equal numbers, allow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from barnabas.base.ids import TopicPartition
from barnabas.client.core.consuming.assignors.interface import (
    Assignment,
    Assignor,
    Layout,
    MemberSubscription,
    TopicsView,
    member_order,
    racks_help,
)


class RangeAssignor(Assignor):
    name = "range"

    def assign(self, view: TopicsView, subscriptions: Mapping[str, MemberSubscription]) -> dict[str, Assignment]:
        layout = Layout.of(view, subscriptions)
        in_order = sorted(subscriptions, key=lambda member_id: member_order(member_id, subscriptions[member_id]))
        members_of: dict[str, dict[str, str | None]] = defaultdict(dict)
        for member_id in in_order:
            for name in subscriptions[member_id].topics:
                members_of[name][member_id] = subscriptions[member_id].rack or None

        topics = [
            _Topic(name, count, members_of[name], layout.racks.get(name)) for name, count in layout.counts.items()
        ]
        if any(topic.racks_help for topic in topics):
            _match_racks(topics)
        shares: dict[str, list[TopicPartition]] = {member_id: [] for member_id in subscriptions}
        for topic in topics:
            topic.share_out(lambda member_id, partition: True)
            for member_id, partitions in topic.shares.items():
                shares[member_id] += [TopicPartition(topic.name, partition) for partition in sorted(partitions)]
        return {member_id: Assignment(tuple(partitions)) for member_id, partitions in shares.items()}


class _Topic:
    """One topic while it is shared out."""

    __slots__ = ("_at_least", "_extra", "count", "left", "members", "name", "racks", "racks_help", "shares")

    def __init__(
        self, name: str, count: int, members: dict[str, str | None], racks: list[frozenset[str]] | None
    ) -> None:
        self.name = name
        self.count = count
        self.members = members
        self.left = dict.fromkeys(range(count))
        self.shares: dict[str, list[int]] = {member_id: [] for member_id in members}
        self._at_least, self._extra = divmod(count, len(members))
        member_racks = [rack for rack in members.values() if rack is not None]
        self.racks = racks if racks is not None and member_racks else []
        self.racks_help = racks_help(member_racks, self.racks)

    def room(self, member_id: str) -> int:
        return max(0, self._at_least + (self._extra > 0) - len(self.shares[member_id]))

    def is_near(self, member_id: str, partition: int) -> bool:
        rack = self.members[member_id]
        return rack is None or (bool(self.racks) and rack in self.racks[partition])

    def give(self, member_id: str, partitions: Iterable[int]) -> None:
        share = self.shares[member_id]
        for partition in partitions:
            share.append(partition)
            del self.left[partition]
        if len(share) > self._at_least:
            self._extra -= 1

    def share_out(self, may_have: Callable[[str, int], bool]) -> None:
        for member_id in self.members:
            room = self.room(member_id)
            chosen = [partition for partition in self.left if may_have(member_id, partition)][:room]
            if chosen:
                self.give(member_id, chosen)


def _match_racks(topics: list[_Topic]) -> None:
    """Give away what can be read from a near replica; topics with the same members and size go together."""
    alike: dict[tuple[tuple[tuple[str, str | None], ...], int], list[_Topic]] = defaultdict(list)
    for topic in topics:
        if topic.racks:
            alike[tuple(topic.members.items()), topic.count].append(topic)
    for together in alike.values():
        first = together[0]
        if len(together) > 1:
            _match_racks_together(together)
        elif first.racks_help:
            first.share_out(first.is_near)


def _match_racks_together(topics: list[_Topic]) -> None:
    candidates = list(topics[0].members)
    for partition in range(topics[0].count):
        for member_id in candidates:
            if all(topic.room(member_id) and topic.is_near(member_id, partition) for topic in topics):
                for topic in topics:
                    topic.give(member_id, [partition])
                if not any(topic.room(member_id) for topic in topics):
                    candidates.remove(member_id)
                break
