"""The topics that a consumer reads, followed as the cluster and the subscription change."""

from __future__ import annotations

from barnabas.base.errors import BrokerError
from barnabas.base.ids import TopicPartition
from barnabas.client.core.consuming.subscription import Mode, Subscription
from barnabas.client.network_client import NetworkClient


class SubscribedTopics:
    """Brings the metadata that is asked for, and without a group the assignment, to what is subscribed."""

    def __init__(self, subscription: Subscription, network: NetworkClient, *, exclude_internal: bool) -> None:
        self._subscription = subscription
        self._network = network
        self._exclude_internal = exclude_internal
        self._followed: object = None
        self._told: object = None

    def follow(self) -> None:
        """Without a group: all partitions of the topics subscribed to are this consumer's, also new ones."""
        subscription, network = self._subscription, self._network
        current = (
            subscription.mode,
            subscription.topics_version,
            subscription.assignment_version,
            network.view.version,
        )
        if current == self._followed:
            return
        view = network.view
        if subscription.mode is Mode.PATTERN:
            network.metadata.set_topics(None)
            subscription.match(view, exclude_internal=self._exclude_internal)
        else:
            network.metadata.set_topics(subscription.topics)
        if subscription.uses_group:
            subscription.assigned_from_group(
                TopicPartition(topic, number)
                for topic in sorted(subscription.topics)
                for number in range(view.partition_count(topic) or 0)
            )
        self._followed = (*current[:1], subscription.topics_version, subscription.assignment_version, view.version)

    def raise_errors(self) -> None:
        """Topics that no broker will ever give: told with each news of the cluster, so that the others can be read."""
        view, subscription = self._network.view, self._subscription
        chosen = subscription.topics_version if subscription.uses_group else subscription.assignment_version
        if (view.version, chosen) == self._told:
            return
        self._told = (view.version, chosen)
        for topic in sorted(subscription.topics):
            code = view.topic_error(topic)
            if code is not None and not code.retriable:
                raise BrokerError(code, f"topic {topic!r} cannot be read: {code.text}")
