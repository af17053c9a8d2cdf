"""The cluster as it stands after some record of the metadata log: what brokers decide and answer by.

An image never changes. The next one shares with it whatever stayed the same, so whoever holds one may go on reading it
while records are applied, and a change costs what it changes, not what exists.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar, overload

from immutables import Map

from barnabas.base.ids import Uuid
from barnabas.base.persistent_map import PersistentMap
from barnabas.metadata.access_images import AclsImage, ClientQuotasImage, DelegationTokenImage, ScramImage
from barnabas.metadata.features import ELR_VERSION, METADATA_VERSION
from barnabas.metadata.partition_index import PartitionsByBroker, numbers
from barnabas.wire.stored.cluster_metadata import MetadataRecord

D = TypeVar("D")

NO_LEADER: Final = -1

#: In place of a directory's id: it is not known, since the record is older than directory ids.
MIGRATING_DIRECTORY: Final = Uuid.ZERO
#: The broker has not said yet which of its directories it chose.
UNASSIGNED_DIRECTORY: Final = Uuid(bytes(15) + b"\x01")
#: The directory failed while the broker was away.
LOST_DIRECTORY: Final = Uuid(bytes(15) + b"\x02")


def is_online(directory: Uuid, log_dirs: Collection[Uuid]) -> bool:
    """Whether a replica in that directory can be used, by the directories that its broker has at work. One whose
    directory is not known yet can, and so can those of a broker that tells no directories."""
    if directory == LOST_DIRECTORY:
        return False
    return not log_dirs or directory in (MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY) or directory in log_dirs


class ConfigResourceType(IntEnum):
    """What a dynamic setting may belong to; the numbers are the protocol's."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """What a dynamic setting belongs to. The broker with the empty name stands for all brokers."""

    type: int
    name: str


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """One partition: where it lies and who leads it. `directories` goes along with `replicas`, one id each."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    leader_recovery_state: int = 0
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    directories: tuple[Uuid, ...] = ()
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    def directory_of(self, broker_id: int) -> Uuid:
        """Where the replica of a broker lies, as far as that is known."""
        if len(self.directories) != len(self.replicas) or broker_id not in self.replicas:
            return MIGRATING_DIRECTORY
        return self.directories[self.replicas.index(broker_id)]


@dataclass(frozen=True, slots=True)
class TopicImage:
    """One topic; its partitions are numbered from 0 without gaps, so they are a tuple."""

    name: str
    topic_id: Uuid
    partitions: tuple[PartitionImage, ...]


class PlacedPartition(NamedTuple):
    """A partition and where it belongs."""

    topic: TopicImage
    number: int
    state: PartitionImage


@dataclass(frozen=True, slots=True, eq=False)
class TopicsImage(Mapping[str, TopicImage]):
    """All topics by name, in the order in which they were created, and where to find them by other things.

    `TopicsDelta` makes the next one. A topic's partitions are one tuple, which is copied once for a batch that changes
    some of them: 50 µs for ten thousand. A tree would spare that, but every reader would pay for it.
    """

    by_name: PersistentMap[str, TopicImage] = field(default_factory=PersistentMap)
    names: Map[Uuid, str] = field(default_factory=Map)
    #: By whom has a replica.
    replicas: PartitionsByBroker = field(default_factory=PartitionsByBroker)
    #: By who leads; those that nobody leads are under `NO_LEADER`.
    leaders: PartitionsByBroker = field(default_factory=PartitionsByBroker)
    #: Names that metrics cannot tell from one another, by what metrics make of them; only where that can be.
    colliding: Map[str, tuple[str, ...]] = field(default_factory=Map)

    def by_id(self, topic_id: Uuid) -> TopicImage | None:
        name = self.names.get(topic_id)
        return None if name is None else self.by_name[name]

    def hosted_by(self, broker_id: int) -> Iterator[PlacedPartition]:
        """The partitions that the broker has a replica of. Costs what there are of them, as do the next two."""
        return self._found(self.replicas.of(broker_id))

    def led_by(self, broker_id: int) -> Iterator[PlacedPartition]:
        """The partitions that the broker leads; with `NO_LEADER`, those that nobody does."""
        return self._found(self.leaders.of(broker_id))

    def without_leader_on(self, broker_id: int) -> Iterator[PlacedPartition]:
        """The partitions that nobody leads and that the broker has a replica of."""
        hosted = self.replicas.of(broker_id)
        without = self.leaders.of(NO_LEADER)
        return self._found({topic_id: bits & hosted.get(topic_id, 0) for topic_id, bits in without.items()})

    def _found(self, partitions: Mapping[Uuid, int]) -> Iterator[PlacedPartition]:
        # In an order that is the same in every process.
        for topic_id in sorted(partitions):
            topic = self.by_name[self.names[topic_id]]
            for number in numbers(partitions[topic_id]):
                yield PlacedPartition(topic, number, topic.partitions[number])

    # A mapping from names to topics

    def __getitem__(self, name: str) -> TopicImage:
        return self.by_name[name]

    @overload
    def get(self, name: str, /) -> TopicImage | None: ...
    @overload
    def get(self, name: str, /, default: TopicImage | D) -> TopicImage | D: ...
    def get(self, name: str, /, default: Any = None) -> Any:
        return self.by_name.get(name, default)

    def __contains__(self, name: object) -> bool:
        return name in self.by_name

    def __len__(self) -> int:
        return len(self.by_name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_name)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TopicsImage):
            return all(getattr(self, each.name) == getattr(other, each.name) for each in fields(self))
        return self.by_name == other

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class BrokerEndpointImage:
    """Where a broker can be reached; the security protocol by its number (0 for PLAINTEXT)."""

    listener: str
    host: str
    port: int
    security_protocol: int


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """One registered broker. While it is fenced, clients are not sent to it."""

    broker_id: int
    epoch: int
    incarnation_id: Uuid
    endpoints: tuple[BrokerEndpointImage, ...]
    #: Name to the lowest and highest level that the broker supports.
    features: Mapping[str, tuple[int, int]]
    rack: str | None
    is_fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[Uuid, ...] = ()
    cordoned_log_dirs: tuple[Uuid, ...] | None = None

    def endpoint(self, listener: str) -> BrokerEndpointImage | None:
        return next((each for each in self.endpoints if each.listener == listener), None)


@dataclass(frozen=True, slots=True)
class ControllerImage:
    """One registered controller."""

    controller_id: int
    incarnation_id: Uuid
    zk_migration_ready: bool
    endpoints: tuple[BrokerEndpointImage, ...]
    #: Name to the lowest and highest level that the controller supports.
    features: Mapping[str, tuple[int, int]]


class FeaturesImage(PersistentMap[str, int]):
    """The level of each feature that is finalised; one at level 0 is not there."""

    __slots__ = ()

    @property
    def metadata_version(self) -> int | None:
        """None while the log has not said it, which is before its first records."""
        return self.get(METADATA_VERSION)

    @property
    def is_elr_enabled(self) -> bool:
        """Whether eligible leader replicas are kept (KIP-966)."""
        return self.get(ELR_VERSION, 0) > 0


class ConfigurationsImage(PersistentMap[ConfigResource, Mapping[str, str]]):
    """The dynamic settings of each resource that has any."""

    __slots__ = ()


_NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """Everything at once, as of the record at `offset`, which the leader of `epoch` wrote."""

    offset: int = -1
    epoch: int = -1
    features: FeaturesImage = field(default_factory=FeaturesImage)
    brokers: PersistentMap[int, BrokerImage] = field(default_factory=PersistentMap)
    controllers: PersistentMap[int, ControllerImage] = field(default_factory=PersistentMap)
    topics: TopicsImage = field(default_factory=TopicsImage)
    configs: ConfigurationsImage = field(default_factory=ConfigurationsImage)
    client_quotas: ClientQuotasImage = field(default_factory=ClientQuotasImage)
    next_producer_id: int = 0
    acls: AclsImage = field(default_factory=AclsImage)
    scram: ScramImage = field(default_factory=ScramImage)
    delegation_tokens: DelegationTokenImage = field(default_factory=DelegationTokenImage)
    #: What a metadata transaction has brought so far; it counts when the transaction ends. None outside of one.
    pending: tuple[MetadataRecord, ...] | None = None

    def has_state_of(self, other: ClusterImage) -> bool:
        """Whether it is made of the very same parts, so that the same records change both in the same way.

        Two images that were made apart may hold the same and yet not be told to: this looks, and does not compare.
        """
        return self.next_producer_id == other.next_producer_id and all(
            getattr(self, part) is getattr(other, part) for part in _SHARED_PARTS
        )

    @property
    def topic_names(self) -> Mapping[Uuid, str]:
        return self.topics.names

    def topic_by_id(self, topic_id: Uuid) -> TopicImage | None:
        return self.topics.by_id(topic_id)

    def partition(self, topic: str, partition: int) -> PartitionImage | None:
        image = self.topics.get(topic)
        return image.partitions[partition] if image is not None and 0 <= partition < len(image.partitions) else None

    def offline_replicas(self, partition: PartitionImage, reachable: Collection[int]) -> list[int]:
        """The replicas that nobody can use: their broker is not among those that can be reached, or their directory
        has failed."""
        replicas, directories, brokers = partition.replicas, partition.directories, self.brokers
        if len(directories) != len(replicas):
            return [each for each in replicas if each not in reachable]
        return [
            each
            for each, directory in zip(replicas, directories, strict=True)
            # Asked of all partitions of a topic, so what is usual is looked at first.
            if each not in reachable
            or (directory not in brokers[each].log_dirs and not is_online(directory, brokers[each].log_dirs))
        ]

    def config(self, resource_type: ConfigResourceType, name: str) -> Mapping[str, str]:
        return self.configs.get(ConfigResource(resource_type, name)) or _NO_SETTINGS


_SHARED_PARTS: Final = tuple(
    each.name for each in fields(ClusterImage) if each.name not in ("offset", "epoch", "next_producer_id")
)
