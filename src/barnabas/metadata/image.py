"""The cluster as it stands after some record of the metadata log: what brokers decide and answer by.

An image never changes. The next one shares with it whatever stayed the same, so whoever holds one may go on reading it
while records are applied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from barnabas.base.ids import Uuid
from barnabas.wire.stored.cluster_metadata import MetadataRecord

NO_LEADER: Final = -1

#: In place of a directory's id: it is not known, since the record is older than directory ids.
MIGRATING_DIRECTORY: Final = Uuid.ZERO
#: The broker has not said yet which of its directories it chose.
UNASSIGNED_DIRECTORY: Final = Uuid(bytes(15) + b"\x01")
#: The directory failed while the broker was away.
LOST_DIRECTORY: Final = Uuid(bytes(15) + b"\x02")


class ResourceType(IntEnum):
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


@dataclass(frozen=True, slots=True)
class TopicImage:
    """One topic; its partitions are numbered from 0 without gaps, so they are a tuple."""

    name: str
    topic_id: Uuid
    partitions: tuple[PartitionImage, ...]


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


def _empty() -> Mapping[str, str]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """Everything at once, as of the record at `offset`, which the leader of `epoch` wrote."""

    offset: int = -1
    epoch: int = -1
    features: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    brokers: Mapping[int, BrokerImage] = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, TopicImage] = field(default_factory=lambda: MappingProxyType({}))
    topic_names: Mapping[Uuid, str] = field(default_factory=lambda: MappingProxyType({}))
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=lambda: MappingProxyType({}))
    next_producer_id: int = 0
    #: The newest record of each thing that nothing here acts on yet (ACLs, quotas, credentials, tokens, controllers),
    #: by its type and key: a snapshot must write them again.
    kept: Mapping[tuple[Any, ...], MetadataRecord] = field(default_factory=lambda: MappingProxyType({}))
    #: What a metadata transaction has brought so far; it counts when the transaction ends. None outside of one.
    pending: tuple[MetadataRecord, ...] | None = None

    def topic_by_id(self, topic_id: Uuid) -> TopicImage | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, topic: str, partition: int) -> PartitionImage | None:
        image = self.topics.get(topic)
        return image.partitions[partition] if image is not None and 0 <= partition < len(image.partitions) else None

    def config(self, resource_type: ResourceType, name: str) -> Mapping[str, str]:
        return self.configs.get(ConfigResource(resource_type, name)) or _empty()
