"""Sticky sharing: who keeps what, who gets what is left.

There are two ways. If all members want the same topics, everybody's number is known beforehand (`even`). If not, shares
are improved step by step until no step helps (`uneven`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.base.ids import TopicPartition
from barnabas.client.core.consuming.assignors.even import EvenSharing
from barnabas.client.core.consuming.assignors.history import Claim, History
from barnabas.client.core.consuming.assignors.interface import Layout, MemberSubscription, TopicsView
from barnabas.client.core.consuming.assignors.racks import Racks
from barnabas.client.core.consuming.assignors.uneven import UnevenSharing


@dataclass(frozen=True, slots=True)
class Sharing:
    shares: dict[str, list[TopicPartition]]
    #: What changes hands, and to whom; None if that is not known and must be looked up.
    moving: dict[TopicPartition, str] | None


def share_sticky(
    view: TopicsView, subscriptions: Mapping[str, MemberSubscription], claims: Mapping[str, Claim]
) -> Sharing:
    layout = Layout.of(view, subscriptions)
    history = History.of(claims, layout.counts)
    racks = Racks.of(layout, subscriptions)
    if _want_the_same(subscriptions):
        even = EvenSharing(layout.counts, history, racks)
        return Sharing(even.share_out(), even.moving)
    wanted = {member_id: subscriptions[member_id].topics for member_id in sorted(subscriptions)}
    return Sharing(UnevenSharing(layout.counts, wanted, history, racks).share_out(), None)


def _want_the_same(subscriptions: Mapping[str, MemberSubscription]) -> bool:
    return len({frozenset(each.topics) for each in subscriptions.values()}) <= 1
