"""Sharing when all members want the same topics: each gets the same number, or one more.

Members keep what they had up to their number; what is left goes around to those who have less. How many may have one
more is fixed (`_extra_seats`), so a member with more than the lower number keeps it only while there are seats.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.base.errors import check
from barnabas.base.ids import TopicPartition
from barnabas.client.core.consuming.assignors.history import History
from barnabas.client.core.consuming.assignors.racks import Racks


class EvenSharing:
    """One sharing-out. `moving` has, afterwards, what somebody has to give up before it can be had."""

    def __init__(self, counts: Mapping[str, int], history: History, racks: Racks) -> None:
        self.moving: dict[TopicPartition, str] = {}
        self._counts = counts
        self._history = history
        self._racks = racks
        self._lower, self._extra_seats = divmod(sum(counts.values()), max(1, len(history.owned)))
        self._upper = self._lower + (self._extra_seats > 0)
        self._shares: dict[str, list[TopicPartition]] = {member_id: [] for member_id in history.owned}
        #: What was taken from somebody who had too much, or was far from it.
        self._taken_from: dict[TopicPartition, str] = {}
        self._below: list[str] = []
        self._at_lower: list[str] = []

    def share_out(self) -> dict[str, list[TopicPartition]]:
        for member_id, owned in self._history.owned.items():
            self._let_keep(member_id, owned)
        kept = {each for share in self._shares.values() for each in share}
        everything = [TopicPartition(topic, number) for topic, count in self._counts.items() for number in range(count)]
        left = self._racks.scarcest_first([each for each in everything if each not in kept])
        self._below.sort()
        self._at_lower.sort()
        if self._racks:
            left = self._give_to_near(left)
        self._give_around(left)
        return self._shares

    def _let_keep(self, member_id: str, owned: list[TopicPartition]) -> None:
        near = []
        for each in owned:
            if self._racks.is_far(member_id, each):
                self._taken_from[each] = member_id
            elif each not in self._history.disputed:
                near.append(each)
        near.sort(key=lambda each: (each.partition, each.topic))
        if len(near) < self._lower:
            keeps = len(near)
            self._below.append(member_id)
        elif len(near) >= self._upper and self._extra_seats:
            keeps = self._upper
            self._take_extra_seat()
        else:
            keeps = self._lower
            if self._extra_seats:
                self._at_lower.append(member_id)
        self._shares[member_id] += near[:keeps]
        self._taken_from.update(dict.fromkeys(near[keeps:], member_id))

    def _take_extra_seat(self) -> None:
        self._extra_seats -= 1
        if not self._extra_seats:
            self._at_lower.clear()

    def _give_to_near(self, left: list[TopicPartition]) -> list[TopicPartition]:
        """Give away what has a near member with room; return the rest."""
        rest = []
        turn = 0
        for each in left:
            place = self._racks.next_near(each, self._below, turn)
            if place is not None:
                member_id = self._below[place]
                if self._give(each, member_id) >= self._lower:
                    del self._below[place]
                    if len(self._shares[member_id]) < self._upper and self._extra_seats:
                        self._at_lower.append(member_id)
                else:
                    place += 1
                turn = place % len(self._below) if self._below else 0
                continue
            place = self._racks.next_near(each, self._at_lower, 0)
            if place is None:
                rest.append(each)
                continue
            member_id = self._at_lower[place]
            if self._give(each, member_id) == self._upper:
                del self._at_lower[place]
                self._take_extra_seat()
        return rest

    def _give_around(self, left: list[TopicPartition]) -> None:
        turn = 0
        for each in left:
            if self._below:
                turn = turn if turn < len(self._below) else 0
                member_id = self._below[turn]
                if self._give(each, member_id) == self._lower:
                    del self._below[turn]
                    self._at_lower.append(member_id)
                else:
                    turn += 1
            else:
                check(self._at_lower, "partitions are left, and every member has its number")
                self._give(each, self._at_lower.pop(0))

    def _give(self, partition: TopicPartition, member_id: str) -> int:
        share = self._shares[member_id]
        share.append(partition)
        if self._taken_from.get(partition, member_id) != member_id or partition in self._history.disputed:
            self.moving[partition] = member_id
        return len(share)
