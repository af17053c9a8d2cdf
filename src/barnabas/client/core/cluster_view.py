"""What a client knows of the cluster at one moment. A view never changes; each update makes a new one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition, Uuid

NO_LEADER: Final = -1
UNKNOWN_EPOCH: Final = -1
NO_CONTROLLER: Final = -1


class Node(NamedTuple):
    """A broker, and where it listens."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition. `leader_id` is -1 where there is none, `leader_epoch` -1 where it is not known."""

    topic: str
    partition: int
    leader_id: int
    leader_epoch: int = UNKNOWN_EPOCH
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()
    error_code: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class TopicView:
    """One topic. With an error it has no partitions."""

    name: str
    topic_id: Uuid = Uuid.ZERO
    is_internal: bool = False
    #: In the order of their numbers.
    partitions: tuple[PartitionInfo, ...] = ()
    error_code: ErrorCode = ErrorCode.NONE
    #: The same by number, and the numbers of those that have a leader: asked for once per batch, so made once.
    by_number: Mapping[int, PartitionInfo] = field(init=False, compare=False, repr=False)
    available: tuple[int, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_number", {each.partition: each for each in self.partitions})
        available = tuple(each.partition for each in self.partitions if each.leader_id >= 0)
        object.__setattr__(self, "available", available)


class ClusterView:
    """Brokers, topics and leaders. Immutable, so any thread may read one.

    A topic whose last answer was an error is not among `topics()`, and `topic_error` tells which error it was.
    """

    __slots__ = ("_names", "_topics", "cluster_id", "controller", "nodes", "version")

    def __init__(
        self,
        version: int = 0,
        cluster_id: str | None = None,
        controller: Node | None = None,
        nodes: Mapping[int, Node] | None = None,
        topics: Iterable[TopicView] = (),
    ) -> None:
        #: Grows with each update.
        self.version = version
        self.cluster_id = cluster_id
        self.controller = controller
        self.nodes: Mapping[int, Node] = MappingProxyType(dict(nodes or {}))
        self._topics = {each.name: each for each in topics}
        self._names = {each.topic_id: each.name for each in self._topics.values() if each.topic_id != Uuid.ZERO}

    def __repr__(self) -> str:
        return f"ClusterView(version={self.version}, nodes={list(self.nodes)}, topics={self.topics()})"

    def topics(self) -> list[str]:
        """The names of the topics whose partitions are known."""
        return [each.name for each in self._topics.values() if not each.error_code]

    def entries(self) -> list[TopicView]:
        """All that is known of topics, also of those with errors."""
        return list(self._topics.values())

    def entry(self, topic: str) -> TopicView | None:
        return self._topics.get(topic)

    def partition_count(self, topic: str) -> int | None:
        """None if it is not known."""
        found = self._topics.get(topic)
        return len(found.partitions) if found is not None and not found.error_code else None

    def partitions(self, topic: str) -> tuple[PartitionInfo, ...]:
        """In the order of their numbers; none if the topic is not known."""
        found = self._topics.get(topic)
        return found.partitions if found is not None else ()

    def partition(self, tp: TopicPartition) -> PartitionInfo | None:
        found = self._topics.get(tp[0])
        return found.by_number.get(tp[1]) if found is not None else None

    def available_partitions(self, topic: str) -> tuple[int, ...]:
        """The numbers of those that have a leader."""
        found = self._topics.get(topic)
        return found.available if found is not None else ()

    def leader_of(self, tp: TopicPartition) -> Node | None:
        found = self.partition(tp)
        return self.nodes.get(found.leader_id) if found is not None else None

    def leader_epoch(self, tp: TopicPartition) -> int:
        """-1 if it is not known."""
        found = self.partition(tp)
        return found.leader_epoch if found is not None else UNKNOWN_EPOCH

    def topic_id(self, topic: str) -> Uuid:
        """`Uuid.ZERO` if it is not known; brokers before 2.8 have none."""
        found = self._topics.get(topic)
        return found.topic_id if found is not None else Uuid.ZERO

    def topic_name(self, topic_id: Uuid) -> str | None:
        return self._names.get(topic_id)

    def topic_error(self, topic: str) -> ErrorCode | None:
        """The error that the brokers last answered with for a topic, None if there was none."""
        found = self._topics.get(topic)
        return found.error_code if found is not None and found.error_code else None

    def is_internal(self, topic: str) -> bool:
        found = self._topics.get(topic)
        return found is not None and found.is_internal
