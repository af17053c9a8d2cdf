"""What members had before, as far as it can be believed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.base.ids import TopicPartition
from barnabas.client.core.consuming.assignors.interface import NO_GENERATION


@dataclass(frozen=True, slots=True)
class Claim:
    """What a member says that it had, and since which generation (None: it does not say)."""

    partitions: tuple[TopicPartition, ...]
    generation: int | None

    @property
    def weight(self) -> int:
        return NO_GENERATION if self.generation is None else self.generation


@dataclass(frozen=True, slots=True)
class History:
    """Who had what; members in order of their ids, so that the outcome depends on nothing else."""

    #: At most one owner per partition.
    owned: dict[str, list[TopicPartition]]
    #: Claimed by several in one generation, which cannot be; none of them is believed.
    disputed: frozenset[TopicPartition]
    #: Where partitions were before, by members that missed the newest generation.
    earlier: dict[TopicPartition, str]

    @classmethod
    def of(cls, claims: Mapping[str, Claim], counts: Mapping[str, int]) -> History:
        in_order = [(member_id, claims[member_id]) for member_id in sorted(claims)]
        owned: dict[str, dict[TopicPartition, None]] = {}
        owner_of: dict[TopicPartition, str] = {}
        disputed: set[TopicPartition] = set()
        for member_id, claim in in_order:
            mine = owned[member_id] = {}
            for each in claim.partitions:
                if each.partition >= counts.get(each.topic, 0):
                    continue
                other_id = owner_of.get(each)
                if other_id is None or other_id == member_id:
                    mine[each] = None
                elif claim.weight < claims[other_id].weight:
                    continue
                else:
                    owned[other_id].pop(each, None)
                    if claim.weight == claims[other_id].weight:
                        disputed.add(each)
                    else:
                        disputed.discard(each)
                        mine[each] = None
                owner_of[each] = member_id
        lists = {member_id: list(partitions) for member_id, partitions in owned.items()}
        return cls(lists, frozenset(disputed), _earlier(in_order))


def _earlier(claims: list[tuple[str, Claim]]) -> dict[TopicPartition, str]:
    newest = max((claim.weight for _, claim in claims), default=NO_GENERATION)
    found: dict[TopicPartition, tuple[int, str]] = {}
    for member_id, claim in claims:
        if claim.weight < newest:
            for each in claim.partitions:
                if each not in found or claim.weight > found[each][0]:
                    found[each] = claim.weight, member_id
    return {partition: member_id for partition, (_, member_id) in found.items()}
