"""cooperative-sticky: shares as sticky does, without anybody giving up what they keep.

What must move is first taken from its owner and given to nobody; the owner gives it up and the group rebalances once
more, now with the partition free.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final

from barnabas.base.ids import TopicPartition
from barnabas.client.core.consuming.assignors.history import Claim
from barnabas.client.core.consuming.assignors.interface import (
    NO_GENERATION,
    Assignment,
    Assignor,
    MemberSubscription,
    RebalanceProtocol,
    TopicsView,
)
from barnabas.client.core.consuming.assignors.sharing import share_sticky

_GENERATION: Final = struct.Struct(">i")


class CooperativeStickyAssignor(Assignor):
    name = "cooperative-sticky"
    protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def subscription_user_data(self, topics: Sequence[str]) -> bytes | None:
        # Leaders that read only the first versions of subscriptions find the generation here.
        return _GENERATION.pack(self._generation)

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        self._generation = generation

    def assign(self, view: TopicsView, subscriptions: Mapping[str, MemberSubscription]) -> dict[str, Assignment]:
        claims = {member_id: Claim(each.owned, _generation_of(each)) for member_id, each in subscriptions.items()}
        sharing = share_sticky(view, subscriptions, claims)
        shares, moving = sharing.shares, sharing.moving
        if moving is None:
            moving = _moving(subscriptions, shares)
        return {
            member_id: Assignment(tuple(each for each in share if moving.get(each) != member_id))
            for member_id, share in shares.items()
        }


def _generation_of(subscription: MemberSubscription) -> int | None:
    if subscription.generation >= 0:
        return subscription.generation
    if subscription.user_data is None:
        return None
    if len(subscription.user_data) < _GENERATION.size:
        return NO_GENERATION
    found: int = _GENERATION.unpack_from(subscription.user_data)[0]
    return found


def _moving(
    subscriptions: Mapping[str, MemberSubscription], shares: Mapping[str, list[TopicPartition]]
) -> dict[TopicPartition, str]:
    """What goes from one member to another, with the member that it goes to."""
    added: dict[TopicPartition, str] = {}
    taken: set[TopicPartition] = set()
    for member_id, share in shares.items():
        owned, gets = {*subscriptions[member_id].owned}, {*share}
        added.update((partition, member_id) for partition in share if partition not in owned)
        taken |= owned - gets
    return {partition: member_id for partition, member_id in added.items() if partition in taken}
