"""sticky: as even as can be, and among the even ways the one that moves the fewest partitions.

Members give everything up before they join, so what they had travels in their user data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from barnabas.base.errors import RemoteProtocolError
from barnabas.base.ids import TopicPartition
from barnabas.client.core.consuming.assignors.history import Claim
from barnabas.client.core.consuming.assignors.interface import (
    NO_GENERATION,
    Assignment,
    Assignor,
    MemberSubscription,
    TopicsView,
)
from barnabas.client.core.consuming.assignors.sharing import share_sticky
from barnabas.client.core.consuming.assignors.user_data import PreviousTopic, StickyUserData


class StickyAssignor(Assignor):
    name = "sticky"

    def __init__(self) -> None:
        self._had: Assignment | None = None
        self._generation = NO_GENERATION

    def subscription_user_data(self, topics: Sequence[str]) -> bytes | None:
        if self._had is None:
            return None
        by_topic: dict[str, list[int]] = {}
        for topic, partition in self._had.partitions:
            by_topic.setdefault(topic, []).append(partition)
        previous = [PreviousTopic(topic=topic, partitions=partitions) for topic, partitions in by_topic.items()]
        return StickyUserData(previous_assignment=previous, generation=self._generation).encode(1)

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        self._had = assignment
        self._generation = generation

    def assign(self, view: TopicsView, subscriptions: Mapping[str, MemberSubscription]) -> dict[str, Assignment]:
        claims = {member_id: claim_of(each.user_data) for member_id, each in subscriptions.items()}
        shares = share_sticky(view, subscriptions, claims).shares
        return {member_id: Assignment(tuple(share)) for member_id, share in shares.items()}


def claim_of(user_data: bytes | None) -> Claim:
    """What a member says that it had. What cannot be read counts as nothing."""
    if not user_data:
        return Claim((), None)
    for version in (1, 0):
        try:
            said, _ = StickyUserData.decode_prefix(user_data, version)
        except RemoteProtocolError:
            continue
        partitions = tuple(
            TopicPartition(each.topic, number) for each in said.previous_assignment for number in each.partitions
        )
        return Claim(partitions, said.generation if version else None)
    return Claim((), NO_GENERATION)
