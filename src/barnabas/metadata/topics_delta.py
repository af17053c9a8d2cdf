"""From one image of the topics to the next: what records about topics and partitions change.

A topic comes as thousands of records. The partitions of topics that change are kept as lists, and what enters or leaves
the index by broker is gathered, until an image is wanted: a batch costs what it changes, however it is distributed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final, TypeVar

from barnabas.base.errors import InvariantError, check
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.metadata.image import MIGRATING_DIRECTORY, PartitionImage, TopicImage, TopicsImage
from barnabas.metadata.partition_index import no_toggles
from barnabas.metadata.topic_names import collision_key, may_collide
from barnabas.wire.stored import cluster_metadata as log

T = TypeVar("T")

_LEADER_STAYS: Final = -2
_RECOVERY_STATE_STAYS: Final = -1


class TopicsDelta:
    """Applies records to an image of the topics. `build` may be called again after more of them."""

    def __init__(self, image: TopicsImage) -> None:
        self._base = image
        self._built = image
        self._by_name = image.by_name
        self._names = image.names
        self._colliding = image.colliding
        #: Of the topics that have changed since the last build.
        self._open: dict[str, list[PartitionImage]] = {}
        self._replicas = no_toggles()
        self._leaders = no_toggles()
        # Since the image that it began with:
        self._deleted: dict[Uuid, TopicImage] = {}
        self._created: dict[str, None] = {}
        self._changed: dict[str, dict[int, None]] = {}

    # What changed

    @property
    def deleted(self) -> tuple[TopicImage, ...]:
        """Topics that were there in the beginning, as they were then."""
        return tuple(self._deleted.values())

    @property
    def created(self) -> tuple[str, ...]:
        return tuple(self._created)

    @property
    def partitions_changed(self) -> tuple[TopicPartition, ...]:
        return tuple(TopicPartition(name, number) for name, changed in self._changed.items() for number in changed)

    def build(self) -> TopicsImage:
        """The topics after the records so far; the same object as before if they changed nothing."""
        for name, partitions in self._open.items():
            self._by_name = self._by_name.set(name, replace(self._by_name[name], partitions=tuple(partitions)))
        self._open.clear()
        if self._by_name is not self._built.by_name:
            self._built = TopicsImage(
                by_name=self._by_name,
                names=self._names,
                replicas=self._built.replicas.toggled(self._replicas) if self._replicas else self._built.replicas,
                leaders=self._built.leaders.toggled(self._leaders) if self._leaders else self._built.leaders,
                colliding=self._colliding,
            )
            self._replicas.clear()
            self._leaders.clear()
        return self._built

    # Records

    def create(self, record: log.TopicRecord) -> None:
        name, topic_id = record.name, record.topic_id
        check(name not in self._by_name, f"topic {name}: created twice without being removed")
        check(topic_id not in self._names, f"topic {name}: its id {topic_id} is taken")
        self._by_name = self._by_name.set(name, TopicImage(name, topic_id, ()))
        self._names = self._names.set(topic_id, name)
        if may_collide(name):
            key = collision_key(name)
            self._colliding = self._colliding.set(key, (*self._colliding.get(key, ()), name))
        self._open[name] = []
        self._created[name] = None

    def remove(self, topic_id: Uuid) -> str:
        """Remove a topic; the name that it had."""
        name = self._name_of(topic_id)
        self._leave_index(topic_id, self._partitions_as_they_are(name))
        self._by_name = self._by_name.delete(name)
        self._names = self._names.delete(topic_id)
        if may_collide(name):
            key = collision_key(name)
            others = tuple(each for each in self._colliding[key] if each != name)
            self._colliding = self._colliding.set(key, others) if others else self._colliding.delete(key)
        self._open.pop(name, None)
        before = self._base.by_id(topic_id)
        if before is not None:
            self._deleted[topic_id] = before
        self._created.pop(name, None)
        self._changed.pop(name, None)
        return name

    def set_partition(self, record: log.PartitionRecord) -> None:
        name = self._name_of(record.topic_id)
        partitions = self._writable_partitions(name)
        number = record.partition_id
        if not 0 <= number <= len(partitions):
            raise InvariantError(f"{name}-{number}: partitions must come in order, {len(partitions)} next")
        replicas = _shared(record.replicas)
        image = PartitionImage(
            replicas=replicas,
            isr=replicas if record.isr == record.replicas else _shared(record.isr),
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            leader_recovery_state=record.leader_recovery_state,
            removing_replicas=_shared(record.removing_replicas) if record.removing_replicas else (),
            adding_replicas=_shared(record.adding_replicas) if record.adding_replicas else (),
            directories=_shared(record.directories or (MIGRATING_DIRECTORY,) * len(replicas)),
            eligible_leader_replicas=_shared(record.eligible_leader_replicas)
            if record.eligible_leader_replicas
            else (),
            last_known_elr=_shared(record.last_known_elr) if record.last_known_elr else (),
        )
        if number == len(partitions):
            self._index(record.topic_id, number, None, image)
            partitions.append(image)
        else:
            self._index(record.topic_id, number, partitions[number], image)
            partitions[number] = image
        self._changed.setdefault(name, {})[number] = None

    def change_partition(self, record: log.PartitionChangeRecord) -> None:
        name = self._name_of(record.topic_id)
        partitions = self._writable_partitions(name)
        number = record.partition_id
        if not 0 <= number < len(partitions):
            raise InvariantError(f"{name}-{number}: a change of a partition that does not exist")
        before = partitions[number]
        after = partitions[number] = changed_partition(before, record)
        self._index(record.topic_id, number, before, after)
        self._changed.setdefault(name, {})[number] = None

    def clear_elr(self, record: log.ClearElrRecord) -> None:
        """Forget eligible leader replicas, of one topic or of all."""
        known = not record.topic_name or record.topic_name in self._by_name
        check(known, f"topic {record.topic_name}: its ELRs are cleared, but it is unknown")
        for name in [record.topic_name] if record.topic_name else list(self._by_name):
            topic_id = self._by_name[name].topic_id
            for number, partition in enumerate(self._partitions_as_they_are(name)):
                if partition.eligible_leader_replicas or partition.last_known_elr:
                    cleared = log.PartitionChangeRecord(
                        partition_id=number, topic_id=topic_id, eligible_leader_replicas=[], last_known_elr=[]
                    )
                    self.change_partition(cleared)

    def _name_of(self, topic_id: Uuid) -> str:
        name = self._names.get(topic_id)
        if name is None:
            raise InvariantError(f"a record about the topic id {topic_id}, which does not exist")
        return name

    def _partitions_as_they_are(self, name: str) -> Iterable[PartitionImage]:
        partitions = self._open.get(name)
        return self._by_name[name].partitions if partitions is None else partitions

    def _writable_partitions(self, name: str) -> list[PartitionImage]:
        partitions = self._open.get(name)
        if partitions is None:
            partitions = self._open[name] = list(self._by_name[name].partitions)
        return partitions

    # The index by broker

    def _index(self, topic_id: Uuid, number: int, before: PartitionImage | None, after: PartitionImage) -> None:
        bit = 1 << number
        replicas, leaders = self._replicas, self._leaders
        if before is None:
            for broker_id in set(after.replicas):
                replicas[broker_id][topic_id] ^= bit
            leaders[after.leader][topic_id] ^= bit
            return
        if before.replicas is not after.replicas:
            for broker_id in set(before.replicas).symmetric_difference(after.replicas):
                replicas[broker_id][topic_id] ^= bit
        if before.leader != after.leader:
            leaders[before.leader][topic_id] ^= bit
            leaders[after.leader][topic_id] ^= bit

    def _leave_index(self, topic_id: Uuid, partitions: Iterable[PartitionImage]) -> None:
        """Toggle what the last image has of the topic, whatever was toggled since: then nothing of it is left."""
        replicas, leaders = self._built.replicas, self._built.leaders
        partitions = tuple(partitions)
        before = self._built.by_id(topic_id)
        known = partitions if before is None else (*partitions, *before.partitions)
        for broker_id in {broker_id for each in known for broker_id in each.replicas}:
            self._replicas[broker_id][topic_id] = replicas.of(broker_id).get(topic_id, 0)
        for broker_id in {each.leader for each in known}:
            self._leaders[broker_id][topic_id] = leaders.of(broker_id).get(topic_id, 0)


def changed_partition(partition: PartitionImage, change: log.PartitionChangeRecord) -> PartitionImage:
    """The partition after a change. Naming a leader, be it the same, begins a new leader epoch."""
    names_leader = change.leader != _LEADER_STAYS
    replicas = partition.replicas if change.replicas is None else _shared(change.replicas)
    directories = _shared(change.directories or ()) or partition.directories
    if len(directories) != len(replicas):
        directories = _shared((MIGRATING_DIRECTORY,) * len(replicas))
    return PartitionImage(
        replicas=replicas,
        isr=partition.isr if change.isr is None else _shared(change.isr),
        leader=change.leader if names_leader else partition.leader,
        leader_epoch=partition.leader_epoch + names_leader,
        partition_epoch=partition.partition_epoch + 1,
        leader_recovery_state=partition.leader_recovery_state
        if change.leader_recovery_state == _RECOVERY_STATE_STAYS
        else change.leader_recovery_state,
        removing_replicas=partition.removing_replicas
        if change.removing_replicas is None
        else _shared(change.removing_replicas),
        adding_replicas=partition.adding_replicas
        if change.adding_replicas is None
        else _shared(change.adding_replicas),
        directories=directories,
        eligible_leader_replicas=partition.eligible_leader_replicas
        if change.eligible_leader_replicas is None
        else _shared(change.eligible_leader_replicas),
        last_known_elr=partition.last_known_elr if change.last_known_elr is None else _shared(change.last_known_elr),
    )


def _shared(values: Sequence[T]) -> tuple[T, ...]:
    """The values as a tuple. Thousands of partitions lie on the same brokers, and should not have a copy each."""
    return _interned(tuple(values)) if values else ()


@lru_cache(maxsize=1 << 14)
def _interned(values: tuple[T, ...]) -> tuple[T, ...]:
    return values
