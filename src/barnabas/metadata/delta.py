"""What changed from one image to the next, for those who must act on it."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.base.ids import TopicPartition, Uuid
from barnabas.metadata.image import ClusterImage, ConfigResource, TopicImage


@dataclass(frozen=True, slots=True)
class ClusterDelta:
    """The differences, each in the order in which the records brought them; partitions topic by topic.

    A topic that was deleted and created again under its name is in both lists: it has another id, so its old logs must
    go before the new ones are made. Deletions come first for whoever applies a delta.
    """

    #: As they were.
    topics_deleted: tuple[TopicImage, ...] = ()
    topics_created: tuple[str, ...] = ()
    #: All partitions of created topics, new ones of old topics, and those whose state changed.
    partitions_changed: tuple[TopicPartition, ...] = ()
    configs_changed: tuple[ConfigResource, ...] = ()
    brokers_changed: tuple[int, ...] = ()
    features_changed: bool = False
    #: Those that came or went.
    acls_changed: tuple[Uuid, ...] = ()


def everything(image: ClusterImage) -> ClusterDelta:
    """The difference between nothing and an image: what a node that starts must act on."""
    return ClusterDelta(
        topics_created=tuple(image.topics),
        partitions_changed=tuple(
            TopicPartition(topic.name, number)
            for topic in image.topics.values()
            for number in range(len(topic.partitions))
        ),
        configs_changed=tuple(image.configs),
        brokers_changed=tuple(image.brokers),
        features_changed=bool(image.features),
        acls_changed=tuple(image.acls),
    )
