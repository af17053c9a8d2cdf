"""Sharing when members want different topics: no number is right for all, so shares are improved step by step.

Partitions that can go to few members are placed first. Then a partition moves whenever its owner has at least two more
than somebody else who may have it; a move that would undo another of the same topic is made with the other partition
instead, so that two members do not swap. If all that made nothing better, what was there before stays.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from itertools import combinations

from barnabas.base.ids import TopicPartition
from barnabas.client.core.consuming.assignors.history import History
from barnabas.client.core.consuming.assignors.racks import Racks


class UnevenSharing:
    """One sharing-out."""

    def __init__(
        self, counts: Mapping[str, int], wanted: Mapping[str, tuple[str, ...]], history: History, racks: Racks
    ) -> None:
        self._racks = racks
        self._earlier = history.earlier
        self._shares = {member_id: list(owned) for member_id, owned in history.owned.items()}
        self._topics_of = {
            member_id: {topic: None for topic in topics if topic in counts} for member_id, topics in wanted.items()
        }
        self._members_of: dict[str, list[str]] = {topic: [] for topic in counts}
        for member_id, topics in self._topics_of.items():
            for topic in topics:
                self._members_of[topic].append(member_id)
        self._counts = counts
        in_order = sorted(counts, key=lambda topic: (len(self._members_of[topic]), topic))
        self._all = [TopicPartition(topic, number) for topic in in_order for number in range(counts[topic])]
        self._owner: dict[TopicPartition, str] = {}
        self._ranking = _Ranking()
        self._moves = _Moves()

    def share_out(self) -> dict[str, list[TopicPartition]]:
        must_give_up = self._drop_what_cannot_be_kept()
        left = [each for each in self._all if each not in self._owner]
        self._ranking.rank(self._shares)
        is_first_time = not self._shares[self._ranking.last]
        self._place(left)
        self._balance(left, may_move_new_first=not must_give_up, is_first_time=is_first_time)
        return self._shares

    def _drop_what_cannot_be_kept(self) -> bool:
        """Take from members what they want no more or are far from; whether there was any."""
        found = False
        for member_id, share in self._shares.items():
            kept = []
            for each in share:
                if each.topic not in self._topics_of[member_id] or self._racks.is_far(member_id, each):
                    found = True
                else:
                    kept.append(each)
                    self._owner[each] = member_id
            share[:] = kept
        return found

    def _place(self, left: list[TopicPartition]) -> None:
        if self._racks:
            left = [each for each in left if not self._give(each, only_near=True)]
        for each in left:
            self._give(each, only_near=False)

    def _give(self, partition: TopicPartition, *, only_near: bool) -> bool:
        """Give a partition to who has least of those who may have it."""
        for member_id in self._ranking:
            if partition.topic in self._topics_of[member_id] and not (
                only_near and self._racks.is_far(member_id, partition)
            ):
                with_one_more = self._shares[member_id]
                self._ranking.remove(member_id, len(with_one_more))
                with_one_more.append(partition)
                self._owner[partition] = member_id
                self._ranking.add(member_id, len(with_one_more))
                return True
        return False

    def _balance(self, new: list[TopicPartition], *, may_move_new_first: bool, is_first_time: bool) -> None:
        # What only one member may have, and who has only that, cannot be changed.
        movable = [each for each in self._all if len(self._members_of[each.topic]) > 1]
        settled = {member_id: self._shares[member_id] for member_id in self._topics_of if self._is_settled(member_id)}
        for member_id, share in settled.items():
            self._ranking.remove(member_id, len(share))
            del self._shares[member_id]

        before = {member_id: list(share) for member_id, share in self._shares.items()}
        if may_move_new_first:
            self._improve([each for each in new if len(self._members_of[each.topic]) > 1])
        if self._improve(movable) and not is_first_time and _unevenness(self._shares) >= _unevenness(before):
            self._shares = before
        self._shares = {
            member_id: settled[member_id] if member_id in settled else self._shares[member_id]
            for member_id in self._topics_of
        }

    def _is_settled(self, member_id: str) -> bool:
        share = self._shares[member_id]
        if len(share) < sum(self._counts[topic] for topic in self._topics_of[member_id]):
            return False
        return all(len(self._members_of[each.topic]) < 2 for each in share)

    def _improve(self, partitions: list[TopicPartition]) -> bool:
        """Move partitions to members that have less, until no move helps; whether any was made."""
        has_moved = False
        while True:
            moved_now = False
            for each in partitions:
                if self._is_balanced():
                    break
                receiver = self._better_owner(each)
                if receiver is not None:
                    self._move(each, receiver)
                    has_moved = moved_now = True
            if not moved_now:
                return has_moved

    def _is_balanced(self) -> bool:
        """Whether nobody has two more than somebody who may have one of theirs."""
        if self._ranking.least >= self._ranking.most - 1:
            return True
        most_of_topic = dict.fromkeys(self._counts, 0)
        for share in self._shares.values():
            for each in share:
                if len(share) > most_of_topic[each.topic]:
                    most_of_topic[each.topic] = len(share)
        return not any(
            len(share) + 1 < most_of_topic[topic]
            for member_id, share in self._shares.items()
            for topic in self._topics_of[member_id]
        )

    def _better_owner(self, partition: TopicPartition) -> str | None:
        owner = self._owner[partition]
        size = len(self._shares[owner])
        earlier = self._earlier.get(partition)
        # Who had it in an earlier generation goes first, if it may have it now.
        if (
            earlier is not None
            and earlier in self._shares
            and partition.topic in self._topics_of[earlier]
            and size > len(self._shares[earlier]) + 1
        ):
            return earlier
        if any(size > len(self._shares[other]) + 1 for other in self._members_of[partition.topic]):
            return next(member_id for member_id in self._ranking if partition.topic in self._topics_of[member_id])
        return None

    def _move(self, partition: TopicPartition, receiver: str) -> None:
        partition = self._moves.instead_of(partition, self._owner[partition], receiver)
        giver = self._owner[partition]
        for member_id in (giver, receiver):
            self._ranking.remove(member_id, len(self._shares[member_id]))
        self._moves.note(partition, giver, receiver)
        self._shares[giver].remove(partition)
        self._shares[receiver].append(partition)
        self._owner[partition] = receiver
        for member_id in (giver, receiver):
            self._ranking.add(member_id, len(self._shares[member_id]))


class _Ranking:
    """Members by how much they have, least first."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: list[tuple[int, str]] = []

    def rank(self, shares: Mapping[str, list[TopicPartition]]) -> None:
        self._places = sorted((len(share), member_id) for member_id, share in shares.items())

    def __iter__(self) -> Iterator[str]:
        return (member_id for _, member_id in self._places)

    @property
    def least(self) -> int:
        return self._places[0][0]

    @property
    def most(self) -> int:
        return self._places[-1][0]

    @property
    def last(self) -> str:
        return self._places[-1][1]

    def remove(self, member_id: str, size: int) -> None:
        del self._places[bisect_left(self._places, (size, member_id))]

    def add(self, member_id: str, size: int) -> None:
        insort(self._places, (size, member_id))


class _Moves:
    """Which partition went from whom to whom, seen from where it was at first."""

    __slots__ = ("_by_pair", "_of")

    def __init__(self) -> None:
        self._of: dict[TopicPartition, tuple[str, str]] = {}
        self._by_pair: dict[tuple[str, str, str], dict[TopicPartition, None]] = {}

    def instead_of(self, partition: TopicPartition, giver: str, receiver: str) -> TopicPartition:
        """A partition of the same topic that went the other way before: moving it back does the same with one less."""
        first_giver, _ = self._of.get(partition, (giver, receiver))
        went_back = self._by_pair.get((partition.topic, receiver, first_giver))
        return next(iter(went_back)) if went_back else partition

    def note(self, partition: TopicPartition, giver: str, receiver: str) -> None:
        before = self._of.pop(partition, None)
        if before is not None:
            giver = before[0]
            del self._by_pair[partition.topic, *before][partition]
        if giver != receiver:
            self._of[partition] = giver, receiver
            self._by_pair.setdefault((partition.topic, giver, receiver), {})[partition] = None


def _unevenness(shares: Mapping[str, list[TopicPartition]]) -> int:
    """The differences between all members, summed: 0 if all have the same number."""
    return sum(abs(len(one) - len(other)) for one, other in combinations(shares.values(), 2))
