"""What `barnabas topics --describe` shows: which partitions, and in which form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError, BrokerError
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.cli.output import is_terminal, print_json, print_table, say
from barnabas.cli.output import shown as text
from barnabas.cli.topics import REPORTS, TopicsRequest, find_topics
from barnabas.net.errors import UnsupportedRequestError

if TYPE_CHECKING:
    from barnabas.client.admin import Admin, PartitionReassignment, TopicDescription, TopicPartitionInfo


@dataclass(frozen=True, slots=True)
class ShownTopic:
    """A topic with what else is known of it."""

    topic: TopicDescription
    #: Its settings that differ from the defaults, by name.
    overrides: Mapping[str, str | None]
    min_insync_replicas: int
    reassignments: Mapping[TopicPartition, PartitionReassignment]

    def reassignment(self, partition: TopicPartitionInfo) -> PartitionReassignment | None:
        return self.reassignments.get(TopicPartition(self.topic.name, partition.partition))

    def replication_factor(self, partition: TopicPartitionInfo) -> int:
        """How many replicas the partition is meant to have: those that a reassignment adds do not count yet."""
        moving = self.reassignment(partition)
        if moving is not None:
            # It may have ended between the two questions: then none of what it changes is among the replicas.
            changing = {*moving.adding, *moving.removing}
            if changing.intersection(ids(partition.replicas)):
                return len(moving.replicas) - len(moving.adding)
        return len(partition.replicas)

    def is_reported(self, partition: TopicPartitionInfo, reports: Iterable[str], live: frozenset[int]) -> bool:
        leader = partition.leader
        in_sync = len(partition.isr)
        holds = {
            "--under-replicated-partitions": in_sync < self.replication_factor(partition),
            "--unavailable-partitions": leader is None or leader.node_id not in live,
            "--under-min-isr-partitions": leader is None or in_sync < self.min_insync_replicas,
            "--at-min-isr-partitions": in_sync == self.min_insync_replicas,
        }
        return any(holds[report] for report in reports)


def ids(nodes: Iterable[Any]) -> list[int]:
    return [node.node_id for node in nodes]


async def describe(admin: Admin, wanted: TopicsRequest) -> None:
    found = await _find(admin, wanted)
    reports = wanted.given.among(REPORTS)
    live = frozenset(ids((await admin.describe_cluster()).nodes)) if reports else frozenset()
    if "--topics-with-overrides" in wanted.given:
        found = [each for each in found if each.overrides]
    chosen = [
        (each, [one for one in each.topic.partitions if not reports or each.is_reported(one, reports, live)])
        for each in found
    ]
    with_partitions = "--topics-with-overrides" not in wanted.given
    if wanted.as_json:
        print_json([_values(each, partitions) for each, partitions in chosen if partitions])
        return
    for each, partitions in chosen:
        if is_terminal():
            if partitions:
                _show(each, partitions if with_partitions else [])
            continue
        if not reports:
            say(_topic_line(each))
        if with_partitions:
            for partition in partitions:
                say(_partition_line(each, partition))


async def _find(admin: Admin, wanted: TopicsRequest) -> list[ShownTopic]:
    from barnabas.client.admin import ConfigResource, ConfigResourceType

    described = await _describe_topics(admin, wanted)
    if not described:
        return []
    resources = {topic.name: ConfigResource(ConfigResourceType.TOPIC, topic.name) for topic in described}
    settings = await admin.describe_configs(resources.values())
    reassignments = await _reassignments(admin, described)
    found = []
    for topic in described:
        entries = settings[resources[topic.name]]
        overrides = {name: entry.value for name, entry in sorted(entries.items()) if not entry.is_default}
        needed = int(entries["min.insync.replicas"].value or 1) if "min.insync.replicas" in entries else 1
        found.append(ShownTopic(topic, overrides, needed, reassignments))
    return found


async def _describe_topics(admin: Admin, wanted: TopicsRequest) -> list[TopicDescription]:
    from barnabas.client.admin.topic_descriptions import PAGE_PARTITIONS

    topic_id = _topic_id(wanted.topic_id)
    if topic_id is None:
        names = await find_topics(admin, wanted, must_exist=True)
        described = await admin.describe_topics(names, page_partitions=wanted.partitions_per_answer or PAGE_PARTITIONS)
        return [described[name] for name in names]
    listed = await admin.list_topics(include_internal="--exclude-internal" not in wanted.given)
    if all(each.topic_id != topic_id for each in listed.values()):
        if "--if-exists" in wanted.given:
            return []
        raise BarnabasError(f"no topic has the id {topic_id} (with --if-exists this is no error)")
    return list((await admin.describe_topics([topic_id])).values())


def _topic_id(text: str | None) -> Uuid | None:
    """The id that was given; that of nothing counts as none, as in Kafka's tool."""
    if text is None:
        return None
    try:
        topic_id = Uuid.parse(text)
    except ValueError as problem:
        raise click.UsageError(f"--topic-id: {problem}") from None
    return None if topic_id == Uuid.ZERO else topic_id


async def _reassignments(
    admin: Admin, described: Iterable[TopicDescription]
) -> Mapping[TopicPartition, PartitionReassignment]:
    partitions = [TopicPartition(topic.name, each.partition) for topic in described for each in topic.partitions]
    try:
        return await admin.list_partition_reassignments(partitions)
    except UnsupportedRequestError:
        return {}
    except BrokerError as problem:
        if problem.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return {}
        raise


def _topic_line(shown: ShownTopic, separator: str = "\t") -> str:
    topic = shown.topic
    parts = [f"Topic: {text(topic.name)}"]
    if topic.topic_id != Uuid.ZERO:
        parts.append(f"TopicId: {topic.topic_id}")
    parts.append(f"PartitionCount: {len(topic.partitions)}")
    parts.append(f"ReplicationFactor: {shown.replication_factor(topic.partitions[0]) if topic.partitions else 0}")
    parts.append(f"Configs: {_overrides_text(shown)}")
    return separator.join(parts)


def _overrides_text(shown: ShownTopic) -> str:
    return ",".join(
        f"{text(name)}={'null' if value is None else text(value)}" for name, value in shown.overrides.items()
    )


def _partition_line(shown: ShownTopic, partition: TopicPartitionInfo) -> str:
    parts = [f"Topic: {text(shown.topic.name)}", *(f"{name}: {value}" for name, value in _columns(shown, partition))]
    return "".join(f"\t{part}" for part in parts)


def _columns(shown: ShownTopic, partition: TopicPartitionInfo) -> Iterator[tuple[str, str]]:
    yield "Partition", str(partition.partition)
    yield "Leader", str(partition.leader.node_id) if partition.leader is not None else "none"
    yield "Replicas", _list_text(ids(partition.replicas))
    yield "Isr", _list_text(ids(partition.isr))
    moving = shown.reassignment(partition)
    if moving is not None:
        yield "Adding Replicas", _list_text(moving.adding)
        yield "Removing Replicas", _list_text(moving.removing)
    yield "Elr", _list_text(None if partition.elr is None else ids(partition.elr))
    yield "LastKnownElr", _list_text(None if partition.last_known_elr is None else ids(partition.last_known_elr))


def _list_text(numbers: Iterable[int] | None) -> str:
    return "N/A" if numbers is None else ",".join(map(str, numbers))


def _show(shown: ShownTopic, partitions: list[TopicPartitionInfo]) -> None:
    """For people: what Kafka's tool says of the topic as a title, its partitions as a table."""
    title = _topic_line(shown, separator="   ").removesuffix("   Configs: ")
    if not partitions:
        say(title)
        return
    columns = [dict(_columns(shown, partition)) for partition in partitions]
    headings = list(dict.fromkeys(name for row in columns for name in row))
    print_table(headings, [[row.get(name, "") for name in headings] for row in columns], title=title)


def _values(shown: ShownTopic, partitions: list[TopicPartitionInfo]) -> dict[str, Any]:
    topic = shown.topic
    return {
        "topic": topic.name,
        "topicId": str(topic.topic_id),
        "internal": topic.is_internal,
        "partitionCount": len(topic.partitions),
        "replicationFactor": shown.replication_factor(topic.partitions[0]) if topic.partitions else 0,
        "configs": dict(shown.overrides),
        "partitions": [_partition_values(shown, partition) for partition in partitions],
    }


def _partition_values(shown: ShownTopic, partition: TopicPartitionInfo) -> dict[str, Any]:
    values: dict[str, Any] = {
        "partition": partition.partition,
        "leader": partition.leader.node_id if partition.leader is not None else None,
        "replicas": ids(partition.replicas),
        "isr": ids(partition.isr),
        "elr": None if partition.elr is None else ids(partition.elr),
        "lastKnownElr": None if partition.last_known_elr is None else ids(partition.last_known_elr),
    }
    moving = shown.reassignment(partition)
    if moving is not None:
        values["addingReplicas"] = list(moving.adding)
        values["removingReplicas"] = list(moving.removing)
    return values
