"""Which partitions a query reads, as the options say it."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.base.ids import TopicPartition
from barnabas.spark.core.java_regex import compile_java


@dataclass(frozen=True, slots=True)
class Topics:
    """All partitions of these topics."""

    topics: tuple[str, ...]

    def matches(self, topic: str) -> bool:
        return topic in self.topics


@dataclass(frozen=True, slots=True)
class Pattern:
    """All partitions of the topics in whose name a Java regular expression is found, be it in the middle."""

    regex: str

    def matches(self, topic: str) -> bool:
        return compile_java(self.regex).search(topic) is not None


@dataclass(frozen=True, slots=True)
class Partitions:
    """These partitions, as far as they exist."""

    partitions: frozenset[TopicPartition]

    def matches(self, topic: str) -> bool:
        return any(partition.topic == topic for partition in self.partitions)


Selection = Topics | Pattern | Partitions
