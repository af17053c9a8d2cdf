"""Which partitions change when brokers come and go, when disks fail, and when somebody asks for other leaders.

What becomes of each of them is decided in `partition_changes.py`. The lists of partitions come from the image's index
by broker, so that a change costs what the broker has, not what the cluster has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from barnabas.base.ids import Uuid
from barnabas.base.log_context import logger
from barnabas.metadata.assignments import active_brokers
from barnabas.metadata.features import DIRECTORY_ASSIGNMENT
from barnabas.metadata.image import (
    NO_LEADER,
    ClusterImage,
    ConfigResourceType,
    PlacedPartition,
    TopicImage,
    is_online,
)
from barnabas.metadata.options import ControllerOptions
from barnabas.metadata.partition_changes import Election, PartitionChangeBuilder, PartitionRules
from barnabas.metadata.topic_configs import topic_default_value
from barnabas.wire.stored.cluster_metadata import MetadataRecord, PartitionChangeRecord

_log = logger("barnabas.controller")

_UNCLEAN: Final = "unclean.leader.election.enable"
MIN_ISR: Final = "min.insync.replicas"
#: How many leaders are elected at a time when nobody asked for it.
MAX_ELECTIONS_AT_A_TIME: Final = 1000


class PartitionChanges:
    """Makes the changes of any partitions of an image.

    While a decision is made, the image still shows the brokers as they were. So `removed` and `unclean` cannot lead
    and are not in sync any more, the latter having lost what they had; `added` can lead, though it is fenced.
    """

    def __init__(
        self,
        image: ClusterImage,
        options: ControllerOptions,
        *,
        removed: int | None = None,
        added: int | None = None,
        unclean: int | None = None,
    ) -> None:
        self._image = image
        self._options = options
        self._gone = frozenset(each for each in (removed, unclean) if each is not None)
        self._unclean = () if unclean is None else (unclean,)
        arriving = () if added is None else (added,)
        self._active = (active_brokers(image) | frozenset(arriving)) - self._gone
        self._rules: dict[str, PartitionRules] = {}

    def builder(
        self,
        placed: PlacedPartition,
        election: Election | None = None,
        directories: Mapping[int, Uuid] = MappingProxyType({}),
    ) -> PartitionChangeBuilder:
        """For a change of this partition; without a kind of election, it goes by what the topic allows. `directories`
        says where replicas lie from now on."""
        rules = self._rules_of(placed.topic)
        if election is not None:
            rules = rules._replace(election=election)
        state = placed.state

        def may_lead(broker_id: int) -> bool:
            return self._has_disk(broker_id, directories.get(broker_id) or state.directory_of(broker_id))

        builder = PartitionChangeBuilder(placed, may_lead, rules)
        builder.isr = [each for each in state.isr if each not in self._gone]
        builder.unclean_shutdown_replicas = self._unclean
        builder.directories = directories
        return builder

    def after_event(
        self, partitions: Iterable[PlacedPartition], election: Election | None = None
    ) -> list[MetadataRecord]:
        """What becomes of these partitions (Kafka's generateLeaderAndIsrUpdates)."""
        changes = (self.builder(placed, election).build() for placed in partitions)
        return [change for change in changes if change is not None]

    def elected(self, placed: PlacedPartition, election: Election) -> PartitionChangeRecord | None:
        return self.builder(placed, election).build()

    def _has_disk(self, broker_id: int, directory: Uuid) -> bool:
        if broker_id not in self._active:
            return False
        broker = self._image.brokers.get(broker_id)
        return broker is not None and is_online(directory, broker.log_dirs)

    def _rules_of(self, topic: TopicImage) -> PartitionRules:
        rules = self._rules.get(topic.name)
        if rules is None:
            allowed = allows_unclean(self._image, self._options, topic.name)
            rules = self._rules[topic.name] = PartitionRules(
                metadata_version=self._image.features.metadata_version or 0,
                is_elr_enabled=self._image.features.is_elr_enabled,
                min_isr=effective_min_isr(self._image, self._options, topic),
                election=Election.UNCLEAN if allowed else Election.ONLINE,
            )
        return rules


# What happens to brokers


def changes_when_fenced(
    image: ClusterImage, options: ControllerOptions, broker_id: int, election: Election | None = None
) -> list[MetadataRecord]:
    """A broker is fenced, or leaves: it gives up what it leads, and leaves the in-sync sets.

    Without ELR the last member of an in-sync set stays in it without leading: it has all that was acknowledged, so it
    leads again when it is back.
    """
    return PartitionChanges(image, options, removed=broker_id).after_event(in_isr(image, broker_id), election)


def changes_when_unregistered(image: ClusterImage, options: ControllerOptions, broker_id: int) -> list[MetadataRecord]:
    """Kafka looks at the ELR too, but leaves the broker in it: one of that id counts as new, and is taken out then."""
    changes = PartitionChanges(image, options, removed=broker_id)
    return changes.after_event(in_isr(image, broker_id)) + changes.after_event(in_elr(image, broker_id))


def changes_when_unfenced(image: ClusterImage, options: ControllerOptions, broker_id: int) -> list[MetadataRecord]:
    """A broker can lead: partitions without leader look for one."""
    return PartitionChanges(image, options, added=broker_id).after_event(image.topics.led_by(NO_LEADER))


def changes_when_restarted(
    image: ClusterImage, options: ControllerOptions, broker_id: int, *, was_clean: bool
) -> list[MetadataRecord]:
    """A broker comes back in a new life. After an unclean stop it may lack what it acknowledged as a follower, so it
    may not lead before it has caught up; only with ELR there is a way to say so."""
    if was_clean or not image.features.is_elr_enabled:
        return changes_when_fenced(image, options, broker_id)
    changes = PartitionChanges(image, options, unclean=broker_id)
    return changes.after_event(in_isr(image, broker_id)) + changes.after_event(in_elr(image, broker_id))


def changes_when_directories_fail(
    image: ClusterImage, options: ControllerOptions, broker_id: int, directories: Collection[Uuid]
) -> list[MetadataRecord]:
    """Directories of a broker have failed: what lies in them is as if the broker had left."""
    if (image.features.metadata_version or 0) < DIRECTORY_ASSIGNMENT:
        return []
    lost = (each for each in image.topics.hosted_by(broker_id) if each.state.directory_of(broker_id) in directories)
    return PartitionChanges(image, options, removed=broker_id).after_event(lost)


def in_isr(image: ClusterImage, broker_id: int) -> Iterator[PlacedPartition]:
    return (each for each in image.topics.hosted_by(broker_id) if broker_id in each.state.isr)


def in_elr(image: ClusterImage, broker_id: int) -> Iterator[PlacedPartition]:
    hosted = image.topics.hosted_by(broker_id)
    return (each for each in hosted if broker_id in each.state.eligible_leader_replicas)


def leads_anything(image: ClusterImage, broker_id: int) -> bool:
    return image.topics.leaders.has_any(broker_id)


# What the controller does by itself


def balance_leaders(image: ClusterImage, options: ControllerOptions) -> list[MetadataRecord]:
    """Give partitions back to their first replica, where it is in sync; as many as may be at a time."""
    changes = PartitionChanges(image, options)
    records: list[MetadataRecord] = []
    for topic in image.topics.values():
        for number, state in enumerate(topic.partitions):
            if state.leader == state.replicas[0]:
                continue
            change = changes.elected(PlacedPartition(topic, number, state), Election.PREFERRED)
            if change is not None:
                records.append(change)
            if len(records) >= MAX_ELECTIONS_AT_A_TIME:
                return records
    return records


def elect_unclean_leaders(image: ClusterImage, options: ControllerOptions) -> list[MetadataRecord]:
    """Partitions that nobody leads get a leader at the price of data, where their topic allows that."""
    changes = PartitionChanges(image, options)
    records: list[MetadataRecord] = []
    for placed in image.topics.led_by(NO_LEADER):
        if len(records) >= MAX_ELECTIONS_AT_A_TIME:
            break
        if not allows_unclean(image, options, placed.topic.name):
            continue
        change = changes.elected(placed, Election.UNCLEAN)
        if change is not None:
            _log.warning(
                "Electing %d, which may lack records, as leader of %s-%d: no replica that has them all is left",
                change.leader, placed.topic.name, placed.number,
            )  # fmt: skip
            records.append(change)
    return records


# Settings that bear on it


def allows_unclean(image: ClusterImage, options: ControllerOptions, topic: str) -> bool:
    own = image.config(ConfigResourceType.TOPIC, topic).get(_UNCLEAN)
    return (topic_default_value(_UNCLEAN, options) if own is None else own) == "true"


def effective_min_isr(image: ClusterImage, options: ControllerOptions, topic: TopicImage) -> int:
    """Never more than there are replicas. What is set for the whole cluster is taken from the image, which may be
    newer than the options."""
    asked = image.config(ConfigResourceType.TOPIC, topic.name).get(MIN_ISR)
    if asked is None:
        asked = image.config(ConfigResourceType.BROKER, "").get(MIN_ISR)
    if asked is None:
        asked = topic_default_value(MIN_ISR, options)
    return min(int(asked), len(topic.partitions[0].replicas))
