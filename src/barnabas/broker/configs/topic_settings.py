"""The settings that hold for a topic: the node's defaults, and over them what the topic says for itself."""

from __future__ import annotations

from barnabas.broker.settings import BrokerSettings, topic_defaults
from barnabas.metadata.image import ClusterImage, ConfigResourceType
from barnabas.storage.settings import TopicSettings


def effective_topic_settings(settings: BrokerSettings, image: ClusterImage, topic: str) -> TopicSettings:
    return TopicSettings.load(topic_defaults(settings), dict(image.config(ConfigResourceType.TOPIC, topic)))
