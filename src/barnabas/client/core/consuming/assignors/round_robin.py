"""roundrobin: the partitions of all topics are dealt out one by one, to each member that wants them in turn."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.base.ids import TopicPartition
from barnabas.client.core.consuming.assignors.interface import (
    Assignment,
    Assignor,
    Layout,
    MemberSubscription,
    TopicsView,
    member_order,
)


class RoundRobinAssignor(Assignor):
    name = "roundrobin"

    def assign(self, view: TopicsView, subscriptions: Mapping[str, MemberSubscription]) -> dict[str, Assignment]:
        in_order = sorted(subscriptions, key=lambda member_id: member_order(member_id, subscriptions[member_id]))
        wanted = [frozenset(subscriptions[member_id].topics) for member_id in in_order]
        shares: list[list[TopicPartition]] = [[] for _ in in_order]
        turn = 0
        for topic, count in Layout.of(view, subscriptions).counts.items():
            for partition in range(count):
                while topic not in wanted[turn]:
                    turn = (turn + 1) % len(wanted)
                shares[turn].append(TopicPartition(topic, partition))
                turn = (turn + 1) % len(wanted)
        return {member_id: Assignment(tuple(share)) for member_id, share in zip(in_order, shares, strict=True)}
