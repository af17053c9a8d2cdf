"""On which brokers the replicas of new partitions go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.metadata.image import BrokerImage


@dataclass(frozen=True, slots=True)
class _Place:
    broker_id: int
    rack: str | None
    is_fenced: bool


class Placer:
    """Gives one partition after the other its replicas.

    Leaders go round all brokers that are not fenced, in an order that changes racks with every step and begins at
    random. The other replicas are spread over as many racks as there are; which brokers follow a leader changes from
    round to round, so that the load of a broker that dies is shared by many. A fenced broker never leads, and
    holds a replica only when there are too few others: it may come back. Brokers that are shutting down get nothing.
    """

    def __init__(self, brokers: Mapping[int, BrokerImage], randomness: Random) -> None:
        usable = [
            _Place(broker_id, broker.rack, broker.is_fenced)
            for broker_id, broker in sorted(brokers.items())
            if not broker.in_controlled_shutdown
        ]
        randomness.shuffle(usable)
        self._leaders = _alternating([each for each in usable if not each.is_fenced])
        self._all = self._leaders + _alternating([each for each in usable if each.is_fenced])
        self._next = 0

    def place(self, replication_factor: int) -> list[int]:
        """The replicas of the next partition, its first leader in front."""
        if replication_factor > len(self._all):
            raise BrokerError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"the replication factor {replication_factor} needs as many brokers, "
                f"but only {len(self._all)} can take replicas",
            )
        if not self._leaders:
            raise BrokerError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"the replication factor {replication_factor} cannot be reached: "
                "all brokers are fenced or shutting down, so none could lead",
            )
        turn, position = divmod(self._next, len(self._leaders))
        self._next += 1
        leader = self._leaders[position]
        if replication_factor == 1:
            return [leader.broker_id]
        others = self._all[position + 1 :] + self._all[:position]
        shift = turn % len(others)
        return [leader.broker_id, *_followers(leader, others[shift:] + others[:shift], replication_factor - 1)]


def _followers(leader: _Place, others: list[_Place], count: int) -> list[int]:
    used = Counter([leader.rack])
    chosen = []
    for _ in range(count):
        best = min(range(len(others)), key=lambda index: (others[index].is_fenced, used[others[index].rack], index))
        place = others.pop(best)
        used[place.rack] += 1
        chosen.append(place.broker_id)
    return chosen


def _alternating(places: Iterable[_Place]) -> list[_Place]:
    """The brokers of all racks in turn: one of each, then the next of each."""
    racks: dict[str | None, list[_Place]] = {}
    for place in places:
        racks.setdefault(place.rack, []).append(place)
    order: list[_Place] = []
    for turn in range(max(map(len, racks.values()), default=0)):
        order += [rack[turn] for rack in racks.values() if turn < len(rack)]
    return order
