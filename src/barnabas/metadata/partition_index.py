"""Which partitions a broker has: what must be known when one is fenced, shuts down, leaves or comes back.

The partitions of one topic are the bits of an integer, partition 5 being `1 << 5`. Their numbers have no gaps, so it is
a small one, and what enters or leaves it is the same operation: the bit is toggled.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from immutables import Map

from barnabas.base.ids import Uuid

#: Broker, then topic, then the partitions that have come or gone.
Toggles = Mapping[int, Mapping[Uuid, int]]

_NOTHING: Map[Uuid, int] = Map()


def no_toggles() -> defaultdict[int, defaultdict[Uuid, int]]:
    return defaultdict(lambda: defaultdict(int))


class PartitionsByBroker:
    """The partitions of each broker, in one respect: it has a replica of them, or it leads them. Never changes."""

    __slots__ = ("_topics",)

    def __init__(self, topics: Map[int, Map[Uuid, int]] | None = None) -> None:
        self._topics: Map[int, Map[Uuid, int]] = Map() if topics is None else topics

    def of(self, broker_id: int) -> Mapping[Uuid, int]:
        """The topics of which the broker has partitions, and which; in no order."""
        return self._topics.get(broker_id, _NOTHING)

    def has_any(self, broker_id: int) -> bool:
        return broker_id in self._topics

    def toggled(self, toggles: Toggles) -> PartitionsByBroker:
        """With these partitions where they were not, and without them where they were."""
        brokers = self._topics
        for broker_id, of_broker in toggles.items():
            before = brokers.get(broker_id, _NOTHING)
            with before.mutate() as mutation:
                for topic_id, bits in of_broker.items():
                    had = mutation.get(topic_id, 0)
                    if had ^ bits:
                        mutation[topic_id] = had ^ bits
                    elif had:
                        del mutation[topic_id]
                after = mutation.finish()
            if after:
                brokers = brokers.set(broker_id, after)
            elif before:
                brokers = brokers.delete(broker_id)
        return PartitionsByBroker(brokers)

    def __eq__(self, other: object) -> bool:
        return self._topics == other._topics if isinstance(other, PartitionsByBroker) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = {
            broker_id: {
                str(topic_id): list(numbers(bits)) for topic_id, bits in sorted(self._topics[broker_id].items())
            }
            for broker_id in sorted(self._topics)
        }
        return f"PartitionsByBroker({shown})"


def numbers(bits: int) -> Iterator[int]:
    """The partitions that an integer stands for, in order.

    >>> list(numbers(0b101001))
    [0, 3, 5]
    """
    digits = bin(bits)[:1:-1]
    number = digits.find("1")
    while number >= 0:
        yield number
        number = digits.find("1", number + 1)
