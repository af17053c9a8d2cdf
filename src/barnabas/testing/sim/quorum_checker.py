"""What must hold in a cluster: nodes tell what they learn, clients what they were answered, and this compares.

Each node's loader tells of every image. All that was ever committed is known by that, so an answer can be held against
it: what was acknowledged must have come to hold, and must be there at the end unless somebody took it back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NoReturn

from barnabas.base.ids import Uuid
from barnabas.metadata.image import ClusterImage, ConfigResource, PartitionImage
from barnabas.metadata.loader import MetadataUpdate
from barnabas.raft.types import LeaderAndEpoch
from barnabas.testing.sim.raft_checkers import InvariantBrokenError

__all__ = ["ClusterChecker", "ClusterInvariant", "NodeWatch", "SettingHistory", "TopicHistory"]


class ClusterInvariant(Enum):
    """What must hold. The values are its name in reports."""

    ACKNOWLEDGED_STAYS = "what was acknowledged came to hold, and is there at the end"
    ONCE = "nothing happens twice"
    TRUE_ANSWERS = "nobody is told of what never was"
    SAME_IMAGES = "images are equal at equal offsets"
    ONE_CONTROLLER = "at most one active controller in an epoch"
    BROKER_EPOCHS_GROW = "epochs of brokers only grow"
    CAUGHT_UP = "a broker is unfenced only once it knows of its own registration"
    PARTITIONS = "epochs of partitions only grow, and who leads is in sync"
    QUIET = "connections that come back in time move no leader"
    PROGRESS = "once healed, the cluster has one active controller, works as a whole and takes changes"
    NO_FAILURE = "no node fails but by a fault of its disk"


_PARTS: Final = ("epoch", "features", "brokers", "controllers", "topics", "configs", "next_producer_id", "pending")


@dataclass(slots=True)
class TopicHistory:
    """What clients asked for and were told of one name."""

    name: str
    creates_sent: int = 0
    deletes_sent: int = 0
    acknowledged_ids: list[Uuid] = field(default_factory=list)
    #: Whether there is an answer to everything that was asked, so that nothing can come into force later.
    is_certain: bool = True
    exists: bool = False
    is_told_to_exist: bool = False


@dataclass(slots=True)
class SettingHistory:
    """What clients asked for and were told of one setting."""

    resource: ConfigResource
    name: str
    acknowledged: list[str] = field(default_factory=list)
    #: Values without an answer; each may come into force at any time.
    unanswered: set[str] = field(default_factory=set)


class ClusterChecker:
    """`own_offset` tells how far a node has read the metadata."""

    def __init__(self, own_offset: Callable[[int], int]) -> None:
        self._own_offset = own_offset
        self._images: dict[int, tuple[int, ClusterImage]] = {}
        #: Parts of images that were found equal, by node and part: from one image to the next most stay as they are.
        self._equal: dict[tuple[int, str], tuple[object, object]] = {}
        self._controllers: dict[int, int] = {}
        self._broker_epochs: dict[int, int] = {}
        self._read: dict[int, int] = {}
        self.newest = ClusterImage()
        #: Told of each image that is newer than all before, with the one before.
        self.on_newest: Callable[[ClusterImage, ClusterImage], None] = lambda before, image: None
        self.leader_change_count = 0
        self.broken: InvariantBrokenError | None = None
        #: All that ever was in a committed image.
        self.ids: dict[str, set[Uuid]] = {}
        self.values: dict[tuple[ConfigResource, str], set[str]] = {}

    @property
    def election_count(self) -> int:
        return len(self._controllers)

    def break_(self, invariant: Enum, text: str) -> NoReturn:
        """It is kept, too: what is raised while a node is told something is taken for a failure of that node."""
        self.broken = self.broken or InvariantBrokenError(invariant, text)
        raise self.broken

    # What nodes learn

    def leads(self, node_id: int, leader: LeaderAndEpoch) -> None:
        if leader.leader_id < 0:
            return
        first = self._controllers.setdefault(leader.epoch, leader.leader_id)
        if first != leader.leader_id:
            self.break_(
                ClusterInvariant.ONE_CONTROLLER,
                f"node {node_id} takes {leader.leader_id} for the active controller of epoch {leader.epoch}, "
                f"which was {first}",
            )

    def learned(self, node_id: int, before: ClusterImage, image: ClusterImage) -> None:
        self._read[node_id] = max(self._read.get(node_id, -1), image.offset)
        first_id, first = self._images.setdefault(image.offset, (node_id, image))
        if first is not image:
            self._compare(node_id, image, first_id, first)
        self._check_succession(node_id, before, image)
        if image.offset > self.newest.offset:
            self._check_brokers(self.newest, image)
            self._check_partitions(self.newest, image)
            self._keep(image)
            before, self.newest = self.newest, image
            self.on_newest(before, image)

    def _compare(self, node_id: int, image: ClusterImage, first_id: int, first: ClusterImage) -> None:
        for part in _PARTS:
            here, there = getattr(image, part), getattr(first, part)
            if here is there:
                continue
            known_here, known_there = self._equal.get((node_id, part), (None, None))
            if here is known_here and there is known_there:
                continue
            if here == there:
                self._equal[node_id, part] = here, there
            else:
                self.break_(
                    ClusterInvariant.SAME_IMAGES,
                    f"at offset {image.offset} the {part} of node {node_id} are {here!r}, of node {first_id} {there!r}",
                )

    def _check_succession(self, node_id: int, before: ClusterImage, image: ClusterImage) -> None:
        """From one image to the next. After a snapshot there may be more between them than was told."""
        is_next = image.features is before.features
        if not is_next or image.topics is before.topics:
            return
        for name, topic in image.topics.items():
            old = before.topics.get(name)
            if old is not None and old.topic_id != topic.topic_id:
                self.break_(
                    ClusterInvariant.ONCE,
                    f"at offset {image.offset} the topic {name} was {old.topic_id} and became {topic.topic_id} on node "
                    f"{node_id} without having been deleted",
                )

    def _check_brokers(self, before: ClusterImage, image: ClusterImage) -> None:
        if image.brokers is before.brokers:
            return
        for broker_id, broker in image.brokers.items():
            highest = self._broker_epochs.get(broker_id, -1)
            if broker.epoch < highest:
                self.break_(
                    ClusterInvariant.BROKER_EPOCHS_GROW,
                    f"at offset {image.offset} broker {broker_id} is in epoch {broker.epoch}, after {highest}",
                )
            self._broker_epochs[broker_id] = broker.epoch
            read = max(self._read.get(broker_id, -1), self._own_offset(broker_id))
            if not broker.is_fenced and read < broker.epoch:
                self.break_(
                    ClusterInvariant.CAUGHT_UP,
                    f"at offset {image.offset} broker {broker_id} is unfenced in epoch {broker.epoch}, but has read "
                    f"the metadata up to {read} only",
                )

    def _check_partitions(self, before: ClusterImage, image: ClusterImage) -> None:
        if image.topics is before.topics:
            return
        for name, topic in image.topics.items():
            old = before.topics.get(name)
            if old is None or old is topic or old.topic_id != topic.topic_id:
                continue
            for number, (was, now) in enumerate(zip(old.partitions, topic.partitions, strict=False)):
                if was is not now and (problem := _wrong_step(was, now)):
                    self.break_(ClusterInvariant.PARTITIONS, f"at offset {image.offset} {name}-{number} {problem}")
                self.leader_change_count += now.leader_epoch != was.leader_epoch

    def _keep(self, image: ClusterImage) -> None:
        if image.topics is not self.newest.topics:
            for name, topic in image.topics.items():
                self.ids.setdefault(name, set()).add(topic.topic_id)
        if image.configs is not self.newest.configs:
            for resource, settings in image.configs.items():
                for name, value in settings.items():
                    self.values.setdefault((resource, name), set()).add(value)

    # What clients were told

    def check_topic(self, history: TopicHistory, images: dict[int, ClusterImage]) -> None:
        """At the end, with the images of all nodes."""
        name, ids = history.name, self.ids.get(history.name, set())
        for topic_id in history.acknowledged_ids:
            if topic_id not in ids:
                self.break_(
                    ClusterInvariant.ACKNOWLEDGED_STAYS, f"{name} was acknowledged as {topic_id}, which it never was"
                )
        if history.is_told_to_exist and not ids:
            self.break_(ClusterInvariant.TRUE_ANSWERS, f"{name} was said to exist, but never did")
        if len(ids) > min(history.creates_sent, 1 + history.deletes_sent):
            self.break_(
                ClusterInvariant.ONCE,
                f"{name} was created {len(ids)} times, after {history.creates_sent} requests to create it and "
                f"{history.deletes_sent} to delete it",
            )
        if history.is_certain or (history.acknowledged_ids and not history.deletes_sent):
            for node_id, image in images.items():
                self._check_end(history, node_id, image)

    def _check_end(self, history: TopicHistory, node_id: int, image: ClusterImage) -> None:
        topic = image.topics.get(history.name)
        wanted = history.acknowledged_ids[-1] if history.exists else None
        found = None if topic is None else topic.topic_id
        if found != wanted:
            self.break_(
                ClusterInvariant.ACKNOWLEDGED_STAYS,
                f"at the end {history.name} is {found} on node {node_id}; by what was acknowledged it should be "
                f"{wanted or 'gone'}",
            )

    def check_setting(self, history: SettingHistory, images: dict[int, ClusterImage], *, is_shared: bool) -> None:
        """What several clients set has no last value; but each that was acknowledged must have been in force."""
        ever = self.values.get((history.resource, history.name), set())
        for value in history.acknowledged:
            if value not in ever:
                self.break_(
                    ClusterInvariant.ACKNOWLEDGED_STAYS,
                    f"{history.name}={value} of {history.resource.name!r} was acknowledged, but never in force",
                )
        if is_shared or not history.acknowledged:
            return
        for node_id, image in images.items():
            found = (image.configs.get(history.resource) or {}).get(history.name)
            if found != history.acknowledged[-1] and found not in history.unanswered:
                self.break_(
                    ClusterInvariant.ACKNOWLEDGED_STAYS,
                    f"at the end {history.name} of {history.resource.name!r} is {found} on node {node_id}; "
                    f"{history.acknowledged[-1]} was acknowledged",
                )


def _wrong_step(was: PartitionImage, now: PartitionImage) -> str:
    """What must not happen to a partition from one image to a later one; there may have been others between them."""
    if now.leader_epoch < was.leader_epoch or now.partition_epoch < was.partition_epoch:
        return (
            f"fell from leader epoch {was.leader_epoch} and partition epoch {was.partition_epoch} to "
            f"{now.leader_epoch} and {now.partition_epoch}"
        )
    if now.leader != was.leader and now.leader_epoch == was.leader_epoch:
        return f"has another leader, {now.leader} after {was.leader}, in the same epoch {now.leader_epoch}"
    if now != was and now.partition_epoch == was.partition_epoch:
        return f"changed within the partition epoch {now.partition_epoch}: from {was} to {now}"
    if now.leader >= 0 and now.leader not in now.isr:
        return f"is led by {now.leader}, who is not in sync: {now.isr}"
    if not set(now.isr) <= set(now.replicas) or set(now.isr) & set(now.eligible_leader_replicas):
        return f"is inconsistent: {now}"
    return ""


class NodeWatch:
    """A publisher beside those of a node: hears of each image in one life of it."""

    def __init__(self, node_id: int, checker: ClusterChecker, tell: Callable[[str], None]) -> None:
        self._node_id = node_id
        self._checker = checker
        self._tell = tell
        self._image = ClusterImage()

    def on_metadata_update(self, update: MetadataUpdate) -> None:
        before, self._image = self._image, update.image
        self._checker.learned(self._node_id, before, update.image)

    def on_controller_change(self, leader: LeaderAndEpoch) -> None:
        if leader.leader_id == self._node_id:
            self._tell(f"node {self._node_id} is the active controller in epoch {leader.epoch}")
        self._checker.leads(self._node_id, leader)
