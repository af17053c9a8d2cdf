"""What a node tells of each change that it applies: topics, partitions and settings, one line each or one for many.

The lines come from the difference of two images, not from the requests: every broker tells what it sees, whoever asked
for it, and what was refused is not told. Names and values are others', and one request may be about thousands of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from barnabas.base.foreign_text import one_line
from barnabas.base.log_context import logger
from barnabas.base.settings import Password
from barnabas.broker.configs.config_resources import is_secret
from barnabas.broker.told_names import MOST_LINES, name_text, names_text
from barnabas.metadata.delta import ClusterDelta
from barnabas.metadata.image import ClusterImage, ConfigResource, ConfigResourceType, TopicImage
from barnabas.storage.settings import TOPIC_SETTINGS

_log = logger("barnabas.broker")

_MOST_SETTINGS: Final = 20
_VALUE_BYTES: Final = 200
_DEFAULT: Final = "(default)"
_KINDS: Final[Mapping[int, str]] = {
    ConfigResourceType.TOPIC: "topic",
    ConfigResourceType.BROKER: "broker",
    ConfigResourceType.CLIENT_METRICS: "client metrics subscription",
    ConfigResourceType.GROUP: "group",
}


def tell_changes(before: ClusterImage, after: ClusterImage, delta: ClusterDelta) -> None:
    """Log what a node has just applied. Each kind has a place of its own: a flood of one must not hide the others."""
    if before.offset < 0:
        _log.info("%s", loaded_line(after))
        return
    for line in deletion_lines(delta):
        _log.info("%s", line)
    for line in creation_lines(after, delta):
        _log.info("%s", line)
    for line in growth_lines(before, after, delta):
        _log.info("%s", line)
    for line in setting_lines(before, after, delta):
        _log.info("%s", line)


def loaded_line(image: ClusterImage) -> str:
    """What a node found when it started."""
    partitions = sum(len(topic.partitions) for topic in image.topics.values())
    counts = f"{_count(len(image.topics), 'topic')} with {_count(partitions, 'partition')}"
    return f"Loaded the cluster metadata up to offset {image.offset}: {counts}"


def creation_lines(after: ClusterImage, delta: ClusterDelta) -> list[str]:
    created = [after.topics[name] for name in delta.topics_created if name in after.topics]
    return _lines("Created", created, lambda topic: _creation(after, topic))


def deletion_lines(delta: ClusterDelta) -> list[str]:
    return _lines(
        "Deleted",
        delta.topics_deleted,
        lambda topic: f"{_identity(topic)}: {_count(len(topic.partitions), 'partition')}",
    )


def growth_lines(before: ClusterImage, after: ClusterImage, delta: ClusterDelta) -> list[str]:
    """Of topics that were there and have more partitions than they had."""
    created = frozenset(delta.topics_created)
    grown = []
    for name in dict.fromkeys(each.topic for each in delta.partitions_changed if each.topic not in created):
        old, new = before.topics.get(name), after.topics.get(name)
        if old is not None and new is not None and len(new.partitions) > len(old.partitions):
            grown.append((name, len(old.partitions), len(new.partitions)))
    if len(grown) > MOST_LINES:
        added = sum(new - old for _, old, new in grown)
        return [
            f"Added {_count(added, 'partition')} to {len(grown):,} topics: {names_text(name for name, _, _ in grown)}"
        ]
    return [
        f"Added {_count(new - old, 'partition')} to topic {name_text(name)}, which has {new:,} now"
        for name, old, new in grown
    ]


def setting_lines(before: ClusterImage, after: ClusterImage, delta: ClusterDelta) -> list[str]:
    """Of settings that were changed; those that a topic is created with are told with it, and go with it."""
    topics = {*delta.topics_created, *(topic.name for topic in delta.topics_deleted)}
    told = [each for each in delta.configs_changed if each.type != ConfigResourceType.TOPIC or each.name not in topics]
    lines = []
    for resource in told:
        changes = _changes(before, after, resource)
        if changes:
            lines.append((resource, f"Updated {_resource(resource)} with new configuration: {_listed(changes)}"))
    if len(lines) > MOST_LINES:
        names = names_text(_resource(each) for each, _ in lines)
        return [f"Updated {len(lines):,} resources with new configuration: {names}"]
    return [line for _, line in lines]


def _lines(verb: str, topics: Sequence[TopicImage], text: Callable[[TopicImage], str]) -> list[str]:
    if len(topics) <= MOST_LINES:
        return [f"{verb} topic {text(topic)}" for topic in topics]
    partitions = sum(len(topic.partitions) for topic in topics)
    names = names_text(topic.name for topic in topics)
    return [f"{verb} {len(topics):,} topics with {_count(partitions, 'partition')}: {names}"]


def _creation(image: ClusterImage, topic: TopicImage) -> str:
    replicas = len(topic.partitions[0].replicas) if topic.partitions else 0
    text = f"{_identity(topic)}: {_count(len(topic.partitions), 'partition')}, replication factor {replicas}"
    resource = ConfigResource(ConfigResourceType.TOPIC, topic.name)
    settings = [f"{name_text(name)}={_value(resource, name, value)}" for name, value in _config(image, resource)]
    return f"{text}, configuration {_listed(settings)}" if settings else text


def _changes(before: ClusterImage, after: ClusterImage, resource: ConfigResource) -> list[str]:
    old, new = dict(_config(before, resource)), dict(_config(after, resource))
    names = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
    return [
        f"{name_text(name)} -> {_value(resource, name, new.get(name))} (was {_value(resource, name, old.get(name))})"
        for name in names
    ]


def _config(image: ClusterImage, resource: ConfigResource) -> Iterable[tuple[str, str]]:
    return sorted(image.configs.get(resource, {}).items())


def _value(resource: ConfigResource, name: str, value: str | None) -> str:
    if value is None:
        return _DEFAULT
    return Password.HIDDEN if _must_hide(resource, name) else one_line(value, _VALUE_BYTES)


def _must_hide(resource: ConfigResource, name: str) -> bool:
    if resource.type == ConfigResourceType.BROKER:
        return is_secret(name)
    if resource.type == ConfigResourceType.TOPIC:
        setting = TOPIC_SETTINGS.get(name)
        return setting is None or setting.secret
    return False


def _resource(resource: ConfigResource) -> str:
    kind = _KINDS.get(resource.type, "resource")
    if resource.type == ConfigResourceType.BROKER and not resource.name:
        return "the default of all brokers"
    return f"{kind} {name_text(resource.name)}"


def _identity(topic: TopicImage) -> str:
    return f"{name_text(topic.name)} with topic ID {topic.topic_id}"


def _listed(settings: Sequence[str]) -> str:
    text = ", ".join(settings[:_MOST_SETTINGS])
    return f"{text} and {len(settings) - _MOST_SETTINGS:,} more" if len(settings) > _MOST_SETTINGS else text


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
