"""Images made by hand, with the index by broker counted afresh from all partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from immutables import Map

from barnabas.base.ids import Uuid
from barnabas.base.persistent_map import PersistentMap
from barnabas.metadata.image import PartitionImage, TopicImage, TopicsImage
from barnabas.metadata.partition_index import PartitionsByBroker
from barnabas.metadata.topic_names import collision_key, may_collide


def topics_image(topics: Iterable[TopicImage]) -> TopicsImage:
    topics = list(topics)
    colliding: dict[str, tuple[str, ...]] = {}
    for name in (topic.name for topic in topics if may_collide(topic.name)):
        colliding[collision_key(name)] = (*colliding.get(collision_key(name), ()), name)
    return TopicsImage(
        by_name=PersistentMap({topic.name: topic for topic in topics}),
        names=Map({topic.topic_id: topic.name for topic in topics}),
        replicas=counted(topics, lambda partition: partition.replicas),
        leaders=counted(topics, lambda partition: (partition.leader,)),
        colliding=Map(colliding),
    )


def counted(topics: Iterable[TopicImage], brokers_of: Callable[[PartitionImage], Iterable[int]]) -> PartitionsByBroker:
    found: dict[int, dict[Uuid, int]] = {}
    for topic in topics:
        for number, partition in enumerate(topic.partitions):
            for broker_id in set(brokers_of(partition)):
                of_broker = found.setdefault(broker_id, {})
                of_broker[topic.topic_id] = of_broker.get(topic.topic_id, 0) | 1 << number
    return PartitionsByBroker(Map({broker_id: Map(of_broker) for broker_id, of_broker in found.items()}))
