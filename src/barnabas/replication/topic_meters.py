"""What is written to topics and read from them on this node, by topic and in all (Kafka's BrokerTopicMetrics)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from barnabas.replication._kernel.following import TopicMeter

FIELDS: Final = (
    "bytes_in",
    "messages_in",
    "produce_requests",
    "failed_produce_requests",
    "bytes_rejected",
    "bytes_out",
    "fetch_requests",
    "failed_fetch_requests",
    "replication_bytes_in",
    "replication_bytes_out",
)


class TopicMeters:
    """The meters of the topics that have partitions here. Guarantee: totals never fall, also when topics leave."""

    def __init__(self) -> None:
        self._meters: dict[str, TopicMeter] = {}
        #: How many partitions count in each.
        self._users: dict[str, int] = {}
        self._gone = TopicMeter()

    def of(self, topic: str) -> TopicMeter:
        """The meter for one more partition of a topic."""
        self._users[topic] = self._users.get(topic, 0) + 1
        meter = self._meters.get(topic)
        if meter is None:
            meter = self._meters[topic] = TopicMeter()
        return meter

    def let_go(self, topic: str) -> None:
        """A partition of a topic has left."""
        left = self._users[topic] = self._users[topic] - 1
        if not left:
            del self._users[topic]
            _add(self._gone, self._meters.pop(topic))

    def __iter__(self) -> Iterator[tuple[str, TopicMeter]]:
        return iter(list(self._meters.items()))

    def all(self) -> TopicMeter:
        """All topics together, and those that have left."""
        found = TopicMeter()
        _add(found, self._gone)
        for meter in self._meters.values():
            _add(found, meter)
        return found


def _add(to: TopicMeter, more: TopicMeter) -> None:
    for name in FIELDS:
        setattr(to, name, getattr(to, name) + getattr(more, name))
