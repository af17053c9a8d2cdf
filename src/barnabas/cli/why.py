"""`barnabas why`: why a partition has no leader, takes no records, or shows none to read_committed, and what to do.

Kafka has nothing like it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.base.system_runtime import new_randomness
from barnabas.cli.admin_options import ClusterOptions
from barnabas.cli.diagnosis import BrokerFacts, ClusterFacts, Diagnosis, PartitionFacts, Verdict, diagnose
from barnabas.cli.hanging_transactions import OpenTransaction, open_transactions, with_coordinators
from barnabas.cli.held_back import first_open, with_open_transaction
from barnabas.cli.kafka_options import GivenOptions, KafkaTool, connection
from barnabas.cli.output import print_json, say, shown
from barnabas.net.channel import Channel
from barnabas.net.errors import ChannelError, UnsupportedRequestError, address_text
from barnabas.net.security import ChannelSecurity

if TYPE_CHECKING:
    from barnabas.client.admin import Admin, TopicDescription, TopicPartitionInfo
    from barnabas.client.core.cluster_view import Node

#: A broker that takes longer than this to say anything counts as silent.
_ANSWER_S: Final = 3.0


@click.command(cls=KafkaTool)
@click.argument("name", metavar="TOPIC[:PARTITION]")
@connection()
@click.pass_context
def why(ctx: click.Context, name: str, bootstrap_server: str | None, command_config: str | None, as_json: bool) -> None:
    """Say why a partition has no leader, why writes with acks=all are refused, which transaction read_committed waits
    for, or that all is well; and what to do.

    It asks the cluster who is in sync, who may lead, who led last, which brokers are fenced and whose directories have
    failed, each of these brokers whether it answers, and leaders and coordinators which transactions are open. It
    changes nothing.

    \b
    Examples:
      barnabas why clicks --bootstrap-server 127.0.0.1:9092
      barnabas why clicks:0 --bootstrap-server 127.0.0.1:9092 --json
    """
    GivenOptions(ctx).need("--bootstrap-server")
    topic, partition = parse_name(name)
    cluster = ClusterOptions(bootstrap_server, command_config)
    security = cluster.security()
    found = cluster.run(lambda admin: _ask(admin, bootstrap_server or "", topic, partition, security))
    if as_json:
        print_json([_values(*each) for each in found])
    else:
        _show(found)


def parse_name(name: str) -> tuple[str, int | None]:
    """'clicks' or 'clicks:0'."""
    topic, colon, number = name.partition(":")
    if not topic or (colon and not number.isdecimal()):
        raise click.UsageError(f"{name!r}: a topic, or a topic and the number of a partition like 'clicks:0'")
    return topic, int(number) if colon else None


# Asking


async def _ask(
    admin: Admin, bootstrap: str, topic: str, number: int | None, security: ChannelSecurity
) -> list[tuple[PartitionFacts, Diagnosis]]:
    described = (await admin.describe_topics([topic]))[topic]
    chosen = [each for each in described.partitions if number is None or each.partition == number]
    if not chosen:
        last = len(described.partitions) - 1
        raise BarnabasError(f"{topic} has no partition {number}: they are 0 to {last}")
    needed = await _min_insync_replicas(admin, topic)
    facts = ClusterFacts(
        bootstrap,
        await _brokers(admin, {node.node_id for each in chosen for node in each.replicas}, security),
        await _has_active_controller(admin),
    )
    partitions = [_partition_facts(described, each, needed) for each in chosen]
    held = await _open_transactions(admin, partitions)
    found = []
    for each in partitions:
        diagnosis = diagnose(each, facts)
        open_one = first_open(held, TopicPartition(each.topic, each.partition))
        if open_one is not None:
            diagnosis = with_open_transaction(diagnosis, open_one, int(time.time() * 1000), bootstrap)
        found.append((each, diagnosis))
    return found


async def _open_transactions(admin: Admin, partitions: Iterable[PartitionFacts]) -> list[OpenTransaction]:
    """Those of partitions that are led. Whoever cannot be asked has troubles of another kind, which are told anyway."""
    led = [TopicPartition(each.topic, each.partition) for each in partitions if each.leader is not None]
    try:
        async with asyncio.timeout(2 * _ANSWER_S):
            return await with_coordinators(admin, await open_transactions(admin, led))
    except (BarnabasError, TimeoutError):
        return []


def _partition_facts(topic: TopicDescription, each: TopicPartitionInfo, needed: int) -> PartitionFacts:
    return PartitionFacts(
        topic.name,
        each.partition,
        None if each.leader is None else each.leader.node_id,
        each.leader_epoch,
        _ids(each.replicas),
        _ids(each.isr),
        None if each.elr is None else _ids(each.elr),
        None if each.last_known_elr is None else _ids(each.last_known_elr),
        frozenset(_ids(each.offline_replicas)),
        needed,
    )


def _ids(nodes: Iterable[Any]) -> tuple[int, ...]:
    return tuple(node.node_id for node in nodes)


async def _min_insync_replicas(admin: Admin, topic: str) -> int:
    from barnabas.client.admin import ConfigResource, ConfigResourceType

    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    entry = (await admin.describe_configs([resource]))[resource].get("min.insync.replicas")
    return int(entry.value) if entry is not None and entry.value else 1


async def _has_active_controller(admin: Admin) -> bool:
    try:
        return (await admin.describe_metadata_quorum(timeout=_ANSWER_S)).leader_id >= 0
    except UnsupportedRequestError:
        return True  # Older brokers do not tell.
    except BarnabasError:
        return False


async def _brokers(admin: Admin, wanted: set[int], security: ChannelSecurity) -> dict[int, BrokerFacts]:
    try:
        described = await admin.describe_cluster(include_fenced_brokers=True)
    except UnsupportedRequestError:
        described = await admin.describe_cluster()
    known = [node for node in described.nodes if node.node_id in wanted]
    facts = await asyncio.gather(*(_broker(admin, node, node.node_id in described.fenced, security) for node in known))
    return {each.broker_id: each for each in facts}


async def _broker(admin: Admin, node: Node, is_fenced: bool, security: ChannelSecurity) -> BrokerFacts:
    address = address_text(node.host, node.port)
    facts = BrokerFacts(node.node_id, address, is_fenced=is_fenced, answers=await _answers(node, security))
    if is_fenced or not facts.answers:
        return facts  # Nobody is sent to a broker that is fenced.
    try:
        directories = (await admin.describe_log_dirs([node.node_id], timeout=_ANSWER_S))[node.node_id]
    except BarnabasError:
        return facts
    return replace(facts, failed_directories=tuple(path for path, each in directories.items() if each.error))


async def _answers(node: Node, security: ChannelSecurity) -> bool:
    """Whether it says which requests it understands: a process that is stopped takes connections, but says nothing."""
    channel = Channel(node.host, node.port, client_id="barnabas-why", randomness=new_randomness(), security=security)
    try:
        async with asyncio.timeout(_ANSWER_S):
            await channel.connect()
    except (ChannelError, TimeoutError):
        return False
    else:
        return True
    finally:
        await channel.close()


# Showing


def _show(found: Sequence[tuple[PartitionFacts, Diagnosis]]) -> None:
    """What is worst first. Partitions that are well are told in one line each only if they are few."""
    order = list(Verdict)
    troubled = sorted(
        (each for each in found if each[1].verdict is not Verdict.WELL), key=lambda each: order.index(each[1].verdict)
    )
    well = [diagnosis for _, diagnosis in found if diagnosis.verdict is Verdict.WELL]
    for _, diagnosis in troubled:
        _show_one(diagnosis)
        say()
    if troubled and well:
        say(f"{len(well)} other {'partition is' if len(well) == 1 else 'partitions are'} well.")
    else:
        for diagnosis in well:
            _show_one(diagnosis)


def _show_one(diagnosis: Diagnosis) -> None:
    for sentence in diagnosis.sentences:
        say(shown(f"  {sentence}" if sentence.startswith("- ") else sentence))
    for advice in diagnosis.advice:
        say(shown(f"  → {advice.text}"))
        if advice.command:
            say(shown(f"      {advice.command}"))


def _values(partition: PartitionFacts, diagnosis: Diagnosis) -> dict[str, Any]:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "verdict": diagnosis.verdict.value,
        "leader": partition.leader,
        "leaderEpoch": partition.leader_epoch,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "elr": None if partition.elr is None else list(partition.elr),
        "lastKnownElr": None if partition.last_known_elr is None else list(partition.last_known_elr),
        "minInsyncReplicas": partition.min_insync_replicas,
        "sentences": list(diagnosis.sentences),
        "advice": [
            {"text": each.text, "command": each.command or None, "losesRecords": each.loses_records}
            for each in diagnosis.advice
        ],
    }
