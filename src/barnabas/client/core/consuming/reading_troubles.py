"""What a consumer waits for in silence, by its own choice: topics of a pattern, and partitions that are not there."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import cast

from barnabas.base.ids import TopicPartition
from barnabas.client.core.consuming.subscription import Mode, Subscription
from barnabas.client.core.metadata import Metadata
from barnabas.client.core.troubles import Trouble, listed


class ReadingTroubles:
    """What keeps a consumer from its records beside what is wrong with the cluster."""

    def __init__(self, subscription: Subscription, metadata: Metadata) -> None:
        self._subscription = subscription
        self._metadata = metadata

    def topics(self) -> Collection[str]:
        """Those that are read. For a pattern the metadata holds all topics of the cluster."""
        wanted = self._metadata.topics()
        return self._subscription.topics if wanted is None else wanted

    def troubles(self) -> dict[Hashable, Trouble]:
        subscription, view = self._subscription, self._metadata.view
        found: dict[Hashable, Trouble] = {}
        if subscription.mode is Mode.PATTERN and subscription.pattern is not None and self._metadata.topics() is None:
            text = subscription.pattern.pattern
            if not any(map(subscription.matches, view.topics())):
                found["pattern", text] = Trouble(
                    f"no topic matches the pattern {text!r} as a whole; the topics of the cluster are looked at every "
                    f"{self._metadata.policy.max_age_ms / 1000:g} s (metadata.max.age.ms)",
                    view.version,
                )
        if subscription.mode is Mode.PARTITIONS:
            for partition in subscription.assigned():
                count = view.partition_count(partition.topic)
                if count is not None and partition.partition >= count:
                    found["partition", partition] = Trouble(
                        f"{partition} is to be read, and topic {partition.topic!r} has only {count} partition"
                        f"{'s' if count != 1 else ''}; the number counts from 0",
                        view.version,
                    )
        return found

    def trouble_ended(self, kind: str, name: object) -> str | None:
        view, subscription = self._metadata.view, self._subscription
        if kind == "pattern" and subscription.mode is Mode.PATTERN and subscription.pattern is not None:
            matching = [topic for topic in view.topics() if subscription.matches(topic)]
            is_same = subscription.pattern.pattern == name
            return f"the pattern {name!r} matches {listed(matching)}" if matching and is_same else None
        if kind == "partition" and view.partition(cast(TopicPartition, name)) is not None:
            return f"{name} is there now"
        return None
